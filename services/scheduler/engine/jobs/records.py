"""Jobs (PodGroups) and queues, as facts fold into them; tasks are in `engine.tasks`.

A session changes them in place and its journal undoes every change, so nothing is copied per cycle.
Only `Job.take` and `Job.drop` update what a job knows about its tasks (statuses, roles, sums).
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from pumice.plugins import Condition, IntArray, NodeGroups
from services.scheduler.engine.jobs.subjobs import SubJobs, has_sub_jobs
from services.scheduler.engine.resources.amounts import Sums
from services.scheduler.engine.tasks.task import Task
from shared.api.meta import OwnerReference
from shared.api.scheduling import PodGroupSpec
from shared.jobs.expected_durations import Expected, of_gang
from shared.jobs.native_groups import NativeTerms
from shared.jobs.wall_time import max_runtime_s
from shared.model.status import HOLDS_RESOURCES, READY, VALID, TaskStatus

_STATUSES: Final = len(TaskStatus)
_ready: Final = itemgetter(*READY)
_valid: Final = itemgetter(*VALID)
_PENDING: Final = TaskStatus.PENDING
NOWHERE: Final = -1
_HELD, _WANTED, _AWAITED = range(3)


class GroupStatus(NamedTuple):
    """The part of a PodGroup's status that the scheduler writes."""

    phase: str = ""
    counters: tuple[int, int, int] = (0, 0, 0)
    """Running, succeeded, failed."""
    conditions: tuple[Condition, ...] = ()


class Stamp(NamedTuple):
    """Transition time of a condition, as the object shows it."""

    transition_id: str
    time: str


class LastSeen(NamedTuple):
    """The status of a PodGroup as its object last showed it."""

    rv: str = ""
    status: GroupStatus = GroupStatus()
    stamps: Mapping[Condition, Stamp] = {}
    """Time stamps of the conditions that it shows."""


_Counted = tuple[tuple[int, ...], bool]
"""Statuses in which tasks count towards a minimum, and whether pending best-effort ones do."""
_NOTHING: Final[Mapping[str, int]] = {}


class Job:
    """One PodGroup with its tasks; also a group of tasks whose PodGroup was not observed yet."""

    __slots__ = (
        "_short",
        "annotations",
        "beyond",
        "by_status",
        "conditions",
        "controller",
        "cost_of_pods",
        "created",
        "decided",
        "gated",
        "has_group",
        "key",
        "last_seen",
        "last_status",
        "min_available",
        "min_listed",
        "min_resources",
        "min_task_member",
        "min_task_total",
        "name",
        "namespace",
        "native",
        "non_preemptable",
        "owner_job",
        "pending_best_effort",
        "phase",
        "preemptable",
        "priority",
        "priority_class",
        "queue",
        "reservation_expired",
        "roles",
        "sub_jobs",
        "sums",
        "tasks",
        "uid",
    )

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.namespace, _, self.name = key.partition("/")
        self.uid = self.queue = self.owner_job = ""  # owner_job: the controller, if it is a Job
        self.controller: OwnerReference | None = None
        self.phase = ""  # that scheduling goes by; actions change it within a session
        self.priority_class = self.created = ""
        self.priority = self.cost_of_pods = 0  # of evicting a pod that states none
        self.min_available = self.min_task_total = 0
        self.min_task_member: Mapping[str, int] = {}
        self._short: dict[_Counted, dict[str, int]] = {}
        """Statuses that count → role → tasks missing to its minimum, kept up to date: a job may
        have thousands of roles, and each placed task asks."""
        self.min_resources: IntArray | None = None
        self.beyond: tuple[str, ...] = ()
        """Resources of which minResources states more than is counted."""
        self.min_listed: Mapping[str, int] = {}
        """minResources as quotas count: every name that is written, in thousandths."""
        self.conditions: tuple[Condition, ...] = ()
        self.last_status = GroupStatus()
        """Status as last written or desired."""
        self.last_seen = LastSeen()
        """The PodGroup as it showed itself last."""
        self.native: NativeTerms | None = None  # None for a PodGroup of Volcano
        self.decided: GroupStatus | None = None
        """A desired status that the object does not show yet."""
        self.annotations: Mapping[str, str] = {}
        self.preemptable = False
        """Whether the PodGroup says that it may be evicted; ⚠ pods may unless they say no (T05)."""
        self.non_preemptable = False
        """Whether the PodGroup forbids preemption; without a statement it does not (A08)."""
        self.has_group = self.reservation_expired = False
        """Whether its PodGroup exists, and whether the reservation of its admission has expired."""
        self.sub_jobs: SubJobs | None = None
        """Its subgroups; None for a job without policies and topology."""
        self.tasks: dict[str, Task] = {}
        self.by_status: list[dict[str, Task]] = [{} for _ in range(_STATUSES)]
        self.roles: dict[str, list[int]] = {}
        """Role → number of tasks per status; best-effort pending ones in one more entry."""
        self.pending_best_effort = self.gated = 0
        self.sums = Sums((3, capacity))
        """Amounts of its tasks: allocated, requested, and pending."""

    def divide(self, spec: PodGroupSpec) -> None:
        """Create the sub-jobs of a spec; keep the present ones if the spec is equal."""
        if not has_sub_jobs(spec):
            self.sub_jobs = None
        elif self.sub_jobs is None or not self.sub_jobs.matches(spec):
            self.sub_jobs = SubJobs(self.key, self.tasks, spec)

    # --- membership --------------------------------------------------------------------------

    def take(self, task: Task) -> None:
        """Add a task, counted under its present status."""
        self.tasks[task.uid] = task
        self.by_status[task.status][task.uid] = task
        self.sums.weigh(task.task_class.weight)
        self._count(task, 1)
        if self.sub_jobs is not None:
            self.sub_jobs.invalidate()

    def drop(self, task: Task) -> None:
        """Remove a task."""
        del self.tasks[task.uid]
        del self.by_status[task.status][task.uid]
        self._count(task, -1)
        self.sums.weigh(-task.task_class.weight)
        if self.sub_jobs is not None:
            self.sub_jobs.invalidate(task.uid)

    def _count(self, task: Task, sign: int) -> None:
        status = task.status
        if task.task_class.best_effort and status == _PENDING:
            self.pending_best_effort += sign
        if task.gated:
            self.gated += sign
        self._count_role(task.role, status, sign, best_effort=task.task_class.best_effort)
        if HOLDS_RESOURCES[status]:
            self.sums.add(_HELD, sign, task.task_class.request)
            self.sums.add(_WANTED, sign, task.task_class.request)
        elif status == _PENDING:
            self.sums.add(_WANTED, sign, task.task_class.request)

    def _count_role(self, role: str, status: int, count: int, *, best_effort: bool) -> None:
        counts = self.roles.get(role)
        if counts is None:
            counts = self.roles[role] = [0] * (_STATUSES + 1)
        counts[status] += count
        if best_effort and status == _PENDING:
            counts[_STATUSES] += count
        for counted, short in self._short.items():
            self._note_shortage(role, counted, short)

    def move(self, tasks: list[Task], status: TaskStatus) -> None:
        """Change the status of tasks that share class, role and present status.

        One call for the run of a gang: sums change once, not once per task.
        """
        first = tasks[0]
        count, before, task_class = len(tasks), first.status, first.task_class
        source, target = self.by_status[before], self.by_status[status]
        for task in tasks:
            del source[task.uid]
            task.status = status
            target[task.uid] = task
        if task_class.best_effort:
            self.pending_best_effort += count * ((status == _PENDING) - (before == _PENDING))
        if self.sub_jobs is not None:
            self.sub_jobs.move(tasks, before, status)
        self._count_role(first.role, before, -count, best_effort=task_class.best_effort)
        self._count_role(first.role, status, count, best_effort=task_class.best_effort)
        awaited = (status == TaskStatus.PIPELINED) - (before == TaskStatus.PIPELINED)
        if awaited:
            self.sums.add(_AWAITED, awaited * count, task_class.request)
        allocated_delta = int(HOLDS_RESOURCES[status]) - int(HOLDS_RESOURCES[before])
        if allocated_delta:
            self.sums.add(_HELD, allocated_delta * count, task_class.request)
        desired = int(HOLDS_RESOURCES[status] or status == _PENDING) - int(
            HOLDS_RESOURCES[before] or before == _PENDING
        )
        if desired:
            self.sums.add(_WANTED, desired * count, task_class.request)

    def eviction_cost(self, task: Task) -> int:
        """Return what evicting one of its tasks costs: by the pod, else the PodGroup, or 0."""
        return self.cost_of_pods if task.eviction_cost is None else task.eviction_cost

    @property
    def expected(self) -> Expected | None:
        """Expected duration from the start of its pods, if the job or all of its pods state one."""
        pods = (task.expected for task in self.tasks.values())
        return of_gang(self.annotations, pods, limit_s=self.limit_s)

    @property
    def limit_s(self) -> float | None:
        """Seconds after which the controller ends it; None if it has no limit, or is no Job's."""
        return max_runtime_s(self.annotations) if self.owner_job else None

    @property
    def expected_s(self) -> float | None:
        """Seconds until its certain end, else its expected duration; None if unknown."""
        if self.limit_s is not None:
            return self.limit_s
        expected = self.expected
        return None if expected is None else expected.seconds

    # --- figures that rules read (T02, T03) --------------------------------------------------

    @property
    def allocated(self) -> IntArray:
        """Amounts allocated to its tasks. Do not keep the array: it is changed in place."""
        amounts: IntArray = self.sums.value[_HELD]
        return amounts

    @property
    def requested(self) -> IntArray:
        """Requested amounts of its allocated and pending tasks."""
        desired: IntArray = self.sums.value[_WANTED]
        return desired

    @property
    def awaited(self) -> IntArray:
        """Amounts of its Pipelined tasks, which wait on nodes for a release."""
        awaited: IntArray = self.sums.value[_AWAITED]
        return awaited

    @property
    def claimed(self) -> IntArray:
        """Amounts of its allocated and Pipelined tasks."""
        claimed: IntArray = self.allocated + self.awaited
        return claimed

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @property
    def domain_key(self) -> str:
        """Label of which all nodes of its tasks must have one value, "" if there is none."""
        return self.native.domain_key if self.native is not None else ""

    @property
    def disrupted_together(self) -> bool:
        """Whether evictions take all of its tasks or none."""
        return self.native is not None and self.native.disrupted_together

    @property
    def preempts(self) -> bool:
        """Whether tasks of others are evicted for it, as far as its PodGroup says."""
        return self.native is None or self.native.preempts

    @property
    def counters(self) -> tuple[int, int, int]:
        """Running, succeeded and failed tasks as its PodGroup shows them; a native one does not."""
        if self.native is not None:
            return 0, 0, 0
        counted = (TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
        running, succeeded, failed = (len(self.by_status[status]) for status in counted)
        return running, succeeded, failed

    @property
    def ready_count(self) -> int:
        """Tasks that count towards the gang."""
        return sum(map(len, _ready(self.by_status)))

    @property
    def valid_count(self) -> int:
        """Number of tasks that may still become part of the gang."""
        return sum(map(len, _valid(self.by_status)))

    @property
    def waiting_count(self) -> int:
        """Tasks that wait on a node for a release."""
        return len(self.by_status[TaskStatus.PIPELINED])

    @property
    def allocated_count(self) -> int:
        """Tasks that hold resources."""
        return sum(
            len(tasks)
            for tasks, holds in zip(self.by_status, HOLDS_RESOURCES, strict=True)
            if holds
        )

    @property
    def is_ready(self) -> bool:
        """Whether the gang's minimum is reached, pending best-effort tasks included."""
        return self.ready_count + self.pending_best_effort >= self.min_available

    @property
    def is_pending(self) -> bool:
        """Whether the PodGroup has not entered its queue (an absent phase counts as Pending)."""
        return self.phase in {"", "Pending"}

    def role_count(self, role: str, *statuses: int) -> int:
        """Return the number of tasks of a role in these statuses."""
        counts = self.roles.get(role)
        return sum(counts[status] for status in statuses) if counts else 0

    def role_best_effort(self, role: str) -> int:
        """Return the number of pending best-effort tasks of a role."""
        counts = self.roles.get(role)
        return counts[_STATUSES] if counts else 0

    @property
    def role_minima_count(self) -> bool:
        """Whether the minima per role apply (T03).

        ⚠ Where they add up to more than the job's own minimum, only the job's minimum applies.
        """
        return bool(self.min_task_member) and self.min_available >= self.min_task_total

    def set_minima(self, min_available: int, min_task_member: Mapping[str, int]) -> None:
        """Set the minimum number of tasks of the job and of each role."""
        self.min_available = min_available
        self.min_task_member = min_task_member
        self.min_task_total = sum(min_task_member.values())
        self._short.clear()

    def roles_short_of(self, *statuses: int, best_effort: bool) -> Mapping[str, int]:
        """Return role → number of tasks missing to its minimum, counting tasks in these statuses.

        The mapping is live: it changes with the job.
        """
        if not self.role_minima_count:
            return _NOTHING
        counted = (statuses, best_effort)
        short = self._short.get(counted)
        if short is None:
            short = self._short[counted] = {}
            for role in self.min_task_member:
                self._note_shortage(role, counted, short)
        return short

    def _note_shortage(self, role: str, counted: _Counted, short: dict[str, int]) -> None:
        statuses, best_effort = counted
        missing = self.min_task_member.get(role, 0) - self.role_count(role, *statuses)
        if best_effort:
            missing -= self.role_best_effort(role)
        if missing > 0:
            short[role] = missing
        else:
            short.pop(role, None)

    def short_policies(self, *, pipelined: bool = False, exists: bool = False) -> int:
        """Return how many policies have too few subgroups that are ready (pipelined, existing)."""
        if self.sub_jobs is None:
            return 0
        return self.sub_jobs.short_policies(pipelined=pipelined, exists=exists)


class Queue:
    """One queue as scheduling sees it."""

    __slots__ = (
        "affinity",
        "annotations",
        "capability",
        "compared",
        "created",
        "deserved",
        "deserved_dims",
        "guarantee",
        "is_open",
        "last_allocated",
        "last_pending",
        "name",
        "parent",
        "priority",
        "reclaimable",
        "rv",
        "shown_allocated",
        "shown_pending",
        "state",
        "uid",
        "weight",
    )

    name: str
    uid: str
    weight: int
    priority: int
    created: str
    state: str
    is_open: bool
    reclaimable: bool
    parent: str
    capability: Mapping[str, int]
    """Resource → amount; absent names are unlimited."""
    guarantee: IntArray
    deserved: IntArray
    deserved_dims: tuple[int, ...]
    """Resources that `deserved` or `guarantee` name, also with 0."""
    affinity: NodeGroups | None
    annotations: Mapping[str, str]
    last_allocated: Mapping[str, str]
    """status.allocated as last written or desired."""
    compared: tuple[Mapping[str, str], bytes]
    """`last_allocated` and the amounts parsed from it."""
    last_pending: int
    """status.pending, likewise."""
    shown_allocated: Mapping[str, str]
    """status.allocated as the object showed it last."""
    shown_pending: int
    """status.pending, likewise."""
    rv: str
    """resourceVersion as it was seen last."""
