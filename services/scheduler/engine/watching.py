"""Extension points for plugins that tell tasks apart by more than their pods, or follow placements.

A *trait* is a fact about a task that its pod does not state (its queue, its bucket): tasks with
different traits are of different classes from then on, so that predicates and scores may read
`shape.traits`. `moved` tells of every placement and eviction with its nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pumice.plugins import IntArray
from services.scheduler.engine.points import Point

if TYPE_CHECKING:
    from services.scheduler.engine.records import Job
    from services.scheduler.engine.shapes import Shapes, TaskClass
    from services.scheduler.engine.tasks import Task

Trait = tuple[str, Callable[["Task"], str]]


class WatchPoints:
    """The extension points; `Hooks` is one."""

    def __init__(self) -> None:
        super().__init__()
        self.trait: Point[Trait] = Point()
        self.closed: Point[Callable[[], None]] = Point()
        self.binding: Point[Callable[[Task], Mapping[str, str]]] = Point()
        self.moved: Point[Callable[[Job, TaskClass, IntArray, IntArray], None]] = Point()

    def bind_annotations(self, task: "Task") -> dict[str, str]:
        """Return what the binding of a placed task adds to its pod."""
        added: dict[str, str] = {}
        for fn in self.binding.all():
            added.update(fn(task))
        return added

    def tell_apart(self, tasks: "Sequence[Task]", shapes: "Shapes") -> None:
        """Give tasks the classes that go with their traits; does nothing without a `trait`."""
        traits = list(self.trait.all())
        if not traits:
            return
        for task in tasks:
            stated = {**task.shape.traits, **{name: fn(task) for name, fn in traits}}
            if stated != task.shape.traits:
                task.shape = shapes.marked(task.shape, stated)


class WatchRegistrar:
    """What one plugin adds to; `Registrar` is one."""

    _to: Callable[[str, object], None]
    """What adds a function to an extension point if the plugin's flags say so."""

    def trait(self, name: str, fn: Callable[[Any], str]) -> None:
        """Tell pending tasks apart."""
        self._to("trait", (name, fn))

    def closed(self, fn: Callable[[], None]) -> None:
        """Hear of the end of the cycle."""
        self._to("closed", fn)

    def binding(self, fn: Callable[[Any], Mapping[str, str]]) -> None:
        """Add annotations with the binding."""
        self._to("binding", fn)

    def moved(self, fn: Callable[[Any, Any, IntArray, IntArray], None]) -> None:
        """Hear of placements with their nodes."""
        self._to("moved", fn)
