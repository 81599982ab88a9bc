"""Extension points and Volcano's rules for combining what plugins say (SS05 to SS09).

`Registrar` is what one plugin adds to; it knows the plugin's flags and its tier, so that a
function of a switched-off extension point never gets into `Hooks`. `Hooks` asks them and combines
their answers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pumice.plugins import (
    CodeArray,
    Condition,
    EvictionContext,
    FloatArray,
    IntArray,
    Invalid,
    Opinion,
    Reason,
    Vote,
    WideScore,
    WideVerdict,
)
from services.scheduler.engine.grouping import FLAGS, GroupPoints, GroupRegistrar
from services.scheduler.engine.points import OrderKey, Point, permitted
from services.scheduler.engine.records import Job, Queue
from services.scheduler.engine.rows import Rows
from services.scheduler.engine.shapes import TaskClass
from services.scheduler.engine.tasks import Task
from services.scheduler.engine.watching import WatchPoints, WatchRegistrar

_FLAGS: Final[Mapping[str, str]] = {
    "job_order": "enableJobOrder",
    "queue_order": "enableQueueOrder",
    "task_order": "enableTaskOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "job_starving": "enableJobStarving",
    "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
    "preemptive": "enablePreemptive",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "victim_tasks": "enabledVictim",
    "predicate": "enablePredicate",
    "node_score": "enableNodeOrder",
    "node_rank": "enableNodeOrder",
    "wide_predicate": "enablePredicate",
    "wide_score": "enableNodeOrder",
}
"""Extension point → flag (K02).

⚠ job_valid, evictable, victim_queue_order, judged and changed have none (SS07).
"""


class Predicate(NamedTuple):
    """A registered predicate."""

    fn: Callable[[TaskClass, Rows], CodeArray]
    reasons: tuple[Reason, ...]
    static: bool
    identity: str
    """What tells its answers from those of other predicates, between cycles too."""


class Rank(NamedTuple):
    """A registered ranking that is normalised over the candidates."""

    fn: Callable[[TaskClass, Rows], IntArray]
    weight: float
    reverse: bool
    identity: str
    """As for predicates."""


class WidePredicate(NamedTuple):
    """A registered predicate whose answer for one node depends on others."""

    fn: Callable[[TaskClass], WideVerdict | None]
    reasons: tuple[Reason, ...]


class Weighted(NamedTuple):
    """A registered score over all candidates."""

    fn: Callable[[TaskClass], WideScore | None]
    weight: float


class Hooks(GroupPoints, WatchPoints):
    """All extension points of a session."""

    def __init__(self) -> None:
        super().__init__()
        self.job_valid: Point[Callable[[Job], Invalid | None]] = Point()
        self.job_order: Point[Callable[[Job], Any]] = Point()
        self.queue_order: Point[Callable[[Queue], Any]] = Point()
        self.task_order: Point[Callable[[Task], Any]] = Point()
        self.job_ready: Point[Callable[[Job], int]] = Point()
        self.job_pipelined: Point[Callable[[Job], Vote]] = Point()
        self.job_starving: Point[Callable[[Job], bool]] = Point()
        self.job_enqueueable: Point[Callable[[Job], Opinion]] = Point()
        self.job_enqueued: Point[Callable[[Job], None]] = Point()
        self.overused: Point[Callable[[Queue], bool]] = Point()
        self.allocatable: Point[Callable[[Queue, TaskClass, int], int]] = Point()
        self.preemptive: Point[Callable[[Queue, Sequence[Task]], bool]] = Point()
        self.preemptable: Point[Callable[[Task, Sequence[Task]], Sequence[Task] | None]] = Point()
        self.reclaimable: Point[Callable[[Task, Sequence[Task]], Sequence[Task] | None]] = Point()
        self.evictable: Point[Callable[[EvictionContext, Sequence[Task]], Sequence[Task] | None]]
        self.evictable = Point()
        self.victim_queue_order: Point[Callable[[Queue, Queue], Any]] = Point()
        self.victim_tasks: Point[Callable[[Sequence[Task]], Sequence[Task]]] = Point()
        self.predicate: Point[Predicate] = Point()
        self.node_score: Point[Callable[[TaskClass, Rows], FloatArray]] = Point()
        self.node_rank: Point[Rank] = Point()
        self.wide_predicate: Point[WidePredicate] = Point()
        self.wide_score: Point[Weighted] = Point()
        self.judged: Point[Callable[[Job], Condition | None]] = Point()
        self.changed: Point[Callable[[Job, TaskClass, int], None]] = Point()

    # --- jobs --------------------------------------------------------------------------------

    def invalidity(self, job: Job) -> Invalid | None:
        """Return why a job cannot be scheduled at all: the first plugin's objection."""
        for fn in self.job_valid.all():
            found = fn(job)
            if found is not None:
                return found
        return None

    def job_key(self, job: Job) -> OrderKey:
        """Return a job's place: plugins in order, then age, then uid (SS09)."""
        return (*[fn(job) for fn in self.job_order.all()], job.created, job.key)

    def queue_key(self, queue: Queue) -> OrderKey:
        """Return a queue's place: plugins in order, then age, then name (SS09)."""
        return (*[fn(queue) for fn in self.queue_order.all()], queue.created, queue.name)

    def task_key(self, task: Task) -> OrderKey:
        """Return a task's place: plugins in order, then index, age and uid (SS09)."""
        return (*[fn(task) for fn in self.task_order.all()], task.order())

    def missing(self, job: Job) -> int:
        """Return how many tasks must at least still be placed; 0 = the job is ready (SS07: AND)."""
        return max((fn(job) for fn in self.job_ready.all()), default=0)

    def pipelined(self, job: Job) -> bool:
        """Tell whether a job may keep what it waits for (SS07: ternary)."""
        return permitted(self.job_pipelined, lambda fn: Opinion(fn(job))).vote >= 0

    def starving(self, job: Job) -> bool:
        """Tell whether a job may take from others (SS07: the first tier that has a function)."""
        for tier in self.job_starving.tiers:
            if tier:
                return all(fn(job) for fn in tier)
        return False

    def enqueueable(self, job: Job) -> Opinion:
        """Return whether a job may enter its queue, and who says no (SS07: ternary)."""
        return permitted(self.job_enqueueable, lambda fn: fn(job))

    # --- queues ------------------------------------------------------------------------------

    def is_overused(self, queue: Queue) -> bool:
        """Tell whether a queue may not get more (SS07: OR)."""
        return any(fn(queue) for fn in self.overused.all())

    def allowed(self, queue: Queue, shape: TaskClass, count: int) -> int:
        """Return how many of `count` tasks of a class a queue may get (SS07: AND)."""
        for fn in self.allocatable.all():
            count = fn(queue, shape, count)
        return count

    def may_preempt(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        """Tell whether a queue may take from others for these tasks (SS07: AND)."""
        return all(fn(queue, tasks) for fn in self.preemptive.all())

    # --- victims -----------------------------------------------------------------------------

    def preemption_victims(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Return whom a task may evict within its queue."""
        return victims(self.preemptable.tiers, preemptor, candidates)

    def reclaim_victims(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        """Return whom a task may evict from other queues."""
        return victims(self.reclaimable.tiers, reclaimer, candidates)

    def gang_victims(self, context: EvictionContext, candidates: Sequence[Task]) -> list[Task]:
        """Return whom an action may evict for a whole gang."""
        return victims(self.evictable.tiers, context, candidates)

    def unwanted(self, running: Sequence[Task]) -> list[Task]:
        """Return the tasks that should go for nobody's sake, each once.

        Those that were given come first, in that order; a plugin may name others as well.

        A tier unites what its plugins name; the first tier that names a task decides.
        """
        for tier in self.victim_tasks.tiers:
            named = {task.uid: task for fn in tier for task in fn(running)}
            if named:
                at = {task.uid: place for place, task in enumerate(running)}
                return sorted(
                    named.values(), key=lambda task: (at.get(task.uid, len(at)), task.order())
                )
        return []


_Taker = TypeVar("_Taker")


def victims(
    tiers: Sequence[Sequence[Callable[[_Taker, Sequence[Task]], Sequence[Task] | None]]],
    taker: _Taker,
    candidates: Sequence[Task],
) -> list[Task]:
    """Combine the lists of victims that plugins propose (SS06 ⚠).

    Within a tier lists are intersected and None abstains. An empty list from a plugin ends the tier
    without result; an intersection that becomes empty starts anew with the next plugin's list. The
    first tier that ends with victims decides.
    """
    for tier in tiers:
        agreed: list[Task] = []
        for fn in tier:
            proposed = fn(taker, candidates)
            if proposed is None:
                continue
            if not proposed:
                agreed = []
                break
            if agreed:
                wanted = {task.uid for task in proposed}
                agreed = [task for task in agreed if task.uid in wanted]
            else:
                agreed = list(proposed)
        if agreed:
            return agreed
    return []


class Registrar(GroupRegistrar, WatchRegistrar):
    """What one plugin contributes to; implements `pumice.plugins.Hooks`."""

    def __init__(
        self, hooks: Hooks, *, tier: int, flags: Mapping[str, bool], identity: str
    ) -> None:
        super().__init__(self._add)
        self._hooks = hooks
        self._tier = tier
        self._flags = flags
        self._identity = identity
        self._added = 0

    def enabled(self, flag: str) -> bool:
        """Tell whether a flag of the plugin is set."""
        return self._flags[flag]

    def _next_identity(self) -> str:
        self._added += 1
        return f"{self._identity}#{self._added}"

    def _add(self, point: str, fn: object) -> None:
        flag = _FLAGS.get(point) or FLAGS.get(point)
        if flag is None or self._flags[flag]:
            getattr(self._hooks, point).add(self._tier, fn)

    def job_valid(self, fn: Callable[[Any], Invalid | None]) -> None:
        """See `pumice.plugins.Hooks`, as for all methods below."""
        self._add("job_valid", fn)

    def job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order jobs."""
        self._add("job_order", fn)

    def queue_order(self, fn: Callable[[Any], Any]) -> None:
        """Order queues."""
        self._add("queue_order", fn)

    def task_order(self, fn: Callable[[Any], Any]) -> None:
        """Order tasks."""
        self._add("task_order", fn)

    def job_ready(self, fn: Callable[[Any], int]) -> None:
        """Say how many tasks a job lacks."""
        self._add("job_ready", fn)

    def job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote on waiting jobs."""
        self._add("job_pipelined", fn)

    def job_starving(self, fn: Callable[[Any], bool]) -> None:
        """Tell starving jobs."""
        self._add("job_starving", fn)

    def job_enqueueable(self, fn: Callable[[Any], Opinion]) -> None:
        """Vote on pending jobs."""
        self._add("job_enqueueable", fn)

    def job_enqueued(self, fn: Callable[[Any], None]) -> None:
        """Hear of enqueued jobs."""
        self._add("job_enqueued", fn)

    def overused(self, fn: Callable[[Any], bool]) -> None:
        """Tell overused queues."""
        self._add("overused", fn)

    def allocatable(self, fn: Callable[[Any, Any, int], int]) -> None:
        """Limit what a queue gets."""
        self._add("allocatable", fn)

    def preemptive(self, fn: Callable[[Any, Sequence[Any]], bool]) -> None:
        """Limit what a queue may take."""
        self._add("preemptive", fn)

    def preemptable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Propose victims of the same queue."""
        self._add("preemptable", fn)

    def reclaimable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Propose victims of other queues."""
        self._add("reclaimable", fn)

    def evictable(
        self, fn: Callable[[EvictionContext, Sequence[Any]], Sequence[Any] | None]
    ) -> None:
        """Propose victims for whole gangs."""
        self._add("evictable", fn)

    def victim_queue_order(self, fn: Callable[[Any, Any], Any]) -> None:
        """Order queues of victims."""
        self._add("victim_queue_order", fn)

    def victim_tasks(self, fn: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        """Name tasks that should go."""
        self._add("victim_tasks", fn)

    def predicate(
        self,
        fn: Callable[[Any, Any], CodeArray],
        *,
        reasons: Sequence[Reason],
        static: bool = False,
    ) -> None:
        """Refuse nodes."""
        self._add("predicate", Predicate(fn, tuple(reasons), static, self._next_identity()))

    def node_score(self, fn: Callable[[Any, Any], FloatArray]) -> None:
        """Score nodes."""
        self._add("node_score", fn)

    def node_rank(
        self, fn: Callable[[Any, Any], IntArray], *, weight: float, reverse: bool = False
    ) -> None:
        """Rank nodes."""
        self._add("node_rank", Rank(fn, weight, reverse, self._next_identity()))

    def wide_predicate(
        self, fn: Callable[[Any], WideVerdict | None], *, reasons: Sequence[Reason]
    ) -> None:
        """Refuse nodes for what happens elsewhere."""
        self._add("wide_predicate", WidePredicate(fn, tuple(reasons)))

    def wide_score(self, fn: Callable[[Any], WideScore | None], *, weight: float) -> None:
        """Score candidates by what happens elsewhere."""
        self._add("wide_score", Weighted(fn, weight))

    def judged(self, fn: Callable[[Any], Condition | None]) -> None:
        """Say what a PodGroup should show."""
        self._add("judged", fn)

    def changed(self, fn: Callable[[Any, Any, int], None]) -> None:
        """Hear of placements."""
        self._add("changed", fn)
