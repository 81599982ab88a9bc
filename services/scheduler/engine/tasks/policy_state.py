"""State that policy keeps beside the engine: volumes, cards, CPUs, claims, quotas, budgets.

The engine tells it what happens and never looks inside. A cluster state has one object of each
class that it was made with (`policy.catalog.STATES`) and hands them to plugins by class
(`Cluster.store`). Facts reach it by kind, tasks by what their pods ask of it. What a session places
is counted in by the same call as a fact, and counted out again when it is taken back; what it is to
remember beyond the session it writes through the journal.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from services.scheduler.engine.journal import Journal
from shared.api.core import Pod
from shared.contracts.messages import Bind

if TYPE_CHECKING:
    from services.scheduler.engine.tasks.task import Task


class Fold(NamedTuple):
    """How facts of one kind come in."""

    put: Callable[[str, Any], None]
    """Takes key and object; a `BadQuantity` from it means that the object counts as absent."""
    remove: Callable[[str], None]
    """Takes the key; the object may be unknown."""


class PolicyState:
    """Calls of the engine; a state implements those that concern it."""

    name: ClassVar[str] = ""
    """Key of what it remembers in a recorded cycle; empty where facts say everything."""
    managed_resources: ClassVar[frozenset[str]] = frozenset()
    """Resources that it accounts for on its own: the engine counts them nowhere."""
    journal: Journal
    """The journal of the present session."""

    def folds(self) -> Mapping[str, Fold]:
        """Return how it reads facts, by token of their kind (`shared.api.kinds`)."""
        return _NO_FOLDS

    def manages(self, resource: str) -> bool:
        """Tell whether it accounts for a resource on its own; always the same answer."""
        return resource in self.managed_resources

    def demand(self, pod: Pod) -> object:  # noqa: ARG002 - few states read pods
        """Return what a pod asks of it, in values that msgspec encodes; nothing: not concerned.

        Part of the task class, `task_class.demands[state]`. May raise `BadQuantity`.
        """
        return None

    def join(self, task: "Task", pod: Pod) -> None:
        """Take up a task with a demand, as its object is now; it is on no node yet."""

    def leave(self, task: "Task", *, gone: bool) -> None:
        """Let go of a task, counted out before; unless it is `gone`, it joins again at once."""

    def count(self, task: "Task", sign: int) -> None:
        """Count a task with a demand in on its node (-1: out), by a fact or by a decision."""

    def assume(self, bind: Bind) -> None:
        """Take note of a published bind with `devices` or annotations, before its pod counts."""

    def lacking(self, task: "Task") -> str:  # noqa: ARG002 - few states hold a bind back
        """Return what a placed task with a demand has to wait for before its bind; "": nothing."""
        return ""

    def awaited(self, task: "Task") -> str:  # noqa: ARG002 - few binds wait
        """Return what the bind of a task with a demand waits for, by facts alone; "": nothing."""
        return ""

    def begin(self, journal: Journal) -> None:
        """Begin a session."""
        self.journal = journal

    def dump(self) -> object:
        """Return what it remembers that no fact says, in values that msgspec encodes."""
        return None

    def restore(self, kept: Any) -> None:  # noqa: ANN401 - of the type that the state dumps
        """Take over what another one dumped, before any fact. Raises `msgspec.ValidationError`."""


_NO_FOLDS: Final[Mapping[str, Fold]] = {}
