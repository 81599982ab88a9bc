"""State that a plugin keeps from cycle to cycle, beside the scheduling engine.

Cards, volumes, exclusive CPUs and quotas are such states: each follows objects of the API server
and the pods on each node. A plugin names the classes of its states in its attribute `states`:

    class Licences(PolicyState):
        def demand(self, pod): ...         # what a pod requests of it, part of its task class
        def count(self, task, sign): ...   # a task with a demand is on its node, or no longer

    class LicencePlugin:
        name, states = "licences", (Licences,)
        def contribute(self, hooks, cluster):
            licences = cluster.store(Licences)
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from pumice.plugins.interface import Task, TaskClass

_V = TypeVar("_V")


class Fold(NamedTuple):
    """Functions that take the objects of one kind as they change."""

    put: Callable[[str, Any], None]
    """Takes key and object; a `ValueError` for an amount in it means that it counts as absent."""
    remove: Callable[[str], None]
    """Takes the key; the object may be unknown."""


class Journal(Protocol):
    """Records the changes of a session, so that a placement that is given up is undone."""

    def write(self, kept: MutableMapping[str, _V], key: str, value: _V | None) -> None:
        """Set `kept[key]`, or delete it (None), until the session's change is undone."""


class PublishedBind(Protocol):
    """A bind that was sent to the binder."""

    @property
    def uid(self) -> str:
        """The pod's uid."""

    @property
    def node(self) -> str:
        """Name of the node."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations that the pod gets with it."""


_NO_FOLDS: Final[Mapping[str, Fold]] = {}


class PolicyState:
    """State of a plugin; there is one object of each class per cluster state.

    The scheduling engine calls it and never reads it; a class implements the methods that concern
    it. Objects of the API server reach it by `folds`, pods by what `demand` returns for them. A
    task that a session places is counted by the same call as one that runs, and counted out again
    when the placement is undone. What a session is to change beyond that, it writes through the
    journal. All calls come from one thread.
    """

    name: ClassVar[str] = ""
    """Key of its `dump` in a recorded cycle; empty if facts determine its content."""
    managed_resources: ClassVar[frozenset[str]] = frozenset()
    """Resources that it accounts for on its own: the engine does not count them."""
    journal: Journal
    """The journal of the present session."""

    def folds(self) -> Mapping[str, Fold]:
        """Return the functions that take objects, by the plural of their kind (`nodes`)."""
        return _NO_FOLDS

    def manages(self, resource: str) -> bool:
        """Return whether it accounts for a resource on its own; constant per resource."""
        return resource in self.managed_resources

    def demand(self, pod: Any) -> object:  # noqa: ANN401, ARG002 - decoded; few states read pods
        """Return what a pod requests of it, in values that msgspec encodes; None or empty: nothing.

        It becomes `task_class.demands[state]`. May raise `ValueError` for an impossible amount.
        """
        return None

    def join(self, task: Task, pod: Any) -> None:  # noqa: ANN401 - decoded
        """Add a task with a demand; it is on no node yet."""

    def leave(self, task: Task, *, gone: bool) -> None:
        """Remove a task, counted out before; unless it is `gone`, it joins again at once."""

    def count(self, task: Task, sign: int) -> None:
        """Count a task with a demand on `task.node`: sign 1 adds it, -1 removes it."""

    def assume(self, bind: PublishedBind) -> None:
        """Record a published bind, before its pod counts."""

    def node_resources(
        self,
        attributes: Any,  # noqa: ANN401, ARG002 - the engine's; few states offer any
        named: Sequence[str],  # noqa: ARG002
    ) -> Mapping[str, Mapping[str, int]] | None:
        """Return node → resource → amount that nodes have although their objects list none of it.

        Called before each session with the engine's table of node labels, and the resources that
        objects have named. None: as before.
        """
        return None

    def lacking(self, task: Task) -> str:  # noqa: ARG002 - few states delay a bind
        """Return what a placed task with a demand waits for before its bind; "": nothing."""
        return ""

    def awaited(self, task: Task) -> str:  # noqa: ARG002 - few states delay a bind
        """Return what the bind of a task with a demand waits for, by objects alone; "": nothing."""
        return ""

    def bars(self, task_class: TaskClass) -> bool:  # noqa: ARG002 - few states exclude all nodes
        """Return whether no node takes a class with a demand, even with any evictions."""
        return False

    def begin(self, journal: Journal) -> None:
        """Begin a session."""
        self.journal = journal

    def dump(self) -> object:
        """Return what no object says and the state remembers, in values that msgspec encodes."""
        return None

    def restore(self, kept: Any) -> None:  # noqa: ANN401 - of the type that it dumps
        """Take over what `dump` returned elsewhere, before any object comes.

        Raises `msgspec.ValidationError`.
        """
