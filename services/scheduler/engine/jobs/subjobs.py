"""Sub-jobs: the tasks of a job that belong together, by `subGroupPolicy` of its PodGroup (T06).

A job without policies is one sub-job, so that placement within a network topology only deals with
sub-jobs. Labels decide which sub-job a task is in; the result is cached until tasks are added or
removed. Tasks are counted per status, because a job may have thousands of sub-jobs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from services.scheduler.engine.tasks.task import Task
from shared.api.scheduling import NetworkTopology, PodGroupSpec, SubGroupPolicy
from shared.api.selectors import BadSelector, matches
from shared.model.status import READY, TaskStatus

_ID_MAX = 128
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


class SubJob:
    """Tasks of one job that are placed together."""

    __slots__ = (
        "_counts",
        "id",
        "job_key",
        "match_index",
        "min_available",
        "policy",
        "tasks",
        "topology",
    )

    def __init__(
        self,
        job_key: str,
        identity: str,
        *,
        policy: str = "",
        min_available: int,
        topology: NetworkTopology | None,
        match_index: int = 0,
    ) -> None:
        self.id = identity
        self.job_key = job_key
        self.policy = policy
        """Name of its policy; empty for tasks that none is about."""
        self.min_available = min_available
        self.topology = topology
        self.match_index = match_index
        """The first label value by which it was matched, when that is a number (SS09)."""
        self.tasks: dict[str, Task] = {}
        self._counts = [0] * (len(TaskStatus) + 1)
        """Tasks per status; best-effort pending ones in one more entry."""

    def take(self, task: Task) -> None:
        """Count a task in, under its present status."""
        self.tasks[task.uid] = task
        self.tally(task.status, 1, best_effort=task.task_class.best_effort)

    def tally(self, status: TaskStatus, sign: int, *, best_effort: bool) -> None:
        """Add a task under a status; a negative sign removes it."""
        self._counts[status] += sign
        if status is TaskStatus.PENDING and best_effort:
            self._counts[-1] += sign

    def count(self, *statuses: TaskStatus) -> int:
        """Return the number of tasks in these statuses."""
        return sum(self._counts[status] for status in statuses)

    @property
    def ready_count(self) -> int:
        """Tasks that count towards its minimum, pending best-effort ones included."""
        return self.count(*READY) + self._counts[-1]

    @property
    def missing(self) -> int:
        """Number of tasks missing to its minimum; 0 means ready."""
        return max(0, self.min_available - self.ready_count)

    @property
    def is_pipelined(self) -> bool:
        """Whether it will be ready once terminating pods have released their resources."""
        return self.ready_count + self.count(TaskStatus.PIPELINED) >= self.min_available

    @property
    def priority(self) -> int:
        """The highest priority of its tasks, at least 0."""
        return max((task.priority for task in self.tasks.values()), default=0)

    @property
    def states_topology(self) -> bool:
        """Whether its spec has a network topology."""
        return self.topology is not None

    def pending(self) -> list[Task]:
        """Return the tasks that are still to be placed."""
        return [task for task in self.tasks.values() if task.status is TaskStatus.PENDING]


def match_values(policy: SubGroupPolicy, labels: Mapping[str, str]) -> list[str] | None:
    """Return the label values of a pod's subgroup, None if the policy does not select the pod.

    ⚠ A policy without keys gives no values, and such a pod stays in the default subgroup (T06).
    """
    if policy.label_selector is not None:
        try:
            if not matches(policy.label_selector, labels):
                return None
        except BadSelector:
            return None
    values = [labels.get(key, "") for key in policy.match_label_keys]
    return values if all(values) else None


def subjob_id(job_key: str, policy: str, values: Sequence[str]) -> str:
    """Return the id of a subgroup: `<job>/<policy>-<values>`, hashed when the values are long."""
    joined = "-".join(values)
    if len(joined) > _ID_MAX:
        joined = "".join(_SAFE[ord(char) % len(_SAFE)] for char in str(_fnv32a(joined.encode())))
    return f"{job_key}/{policy}-{joined}"


def _fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


class SubJobs:
    """The sub-jobs of one job. `tasks` is the job's own mapping of uid to task, read on demand."""

    def __init__(self, job_key: str, tasks: Mapping[str, Task], spec: PodGroupSpec) -> None:
        self._job_key = job_key
        self._tasks = tasks
        self.topology = spec.network_topology
        self.policies = spec.sub_group_policy
        self._min_member = spec.min_member
        self._by_id: dict[str, SubJob] | None = None
        self._by_task: dict[str, SubJob] = {}
        self._matched: dict[str, tuple[SubGroupPolicy | None, list[str]]] = {}
        """Task → its policy, and the label values that tell its sub-job."""
        self._there: Counter[str] = Counter()
        """Policy → its sub-jobs; those that are ready, or will be; kept up to date."""
        self._ready: Counter[str] = Counter()
        self._pipelined: Counter[str] = Counter()

    def matches(self, spec: PodGroupSpec) -> bool:
        """Return whether these sub-jobs were made from an equal spec."""
        return (self.topology, self.policies, self._min_member) == (
            spec.network_topology,
            spec.sub_group_policy,
            spec.min_member,
        )

    def invalidate(self, uid: str = "") -> None:
        """Drop the cached sub-jobs, because a task was added, or the one of `uid` removed."""
        self._by_id = None
        self._matched.pop(uid, None)

    def move(self, tasks: Iterable[Task], before: TaskStatus, status: TaskStatus) -> None:
        """Recount tasks whose status has changed from `before`."""
        for task in tasks if self._by_id is not None else ():
            sub = self._by_task[task.uid]
            best_effort = task.task_class.best_effort
            self._count(sub, -1)
            sub.tally(before, -1, best_effort=best_effort)
            sub.tally(status, 1, best_effort=best_effort)
            self._count(sub, 1)

    def _count(self, sub: SubJob, sign: int) -> None:
        self._ready[sub.policy] += sign * (not sub.missing)
        self._pipelined[sub.policy] += sign * sub.is_pipelined

    def by_id(self) -> dict[str, SubJob]:
        """Return the sub-jobs that have tasks, by id in alphabetical order."""
        if self._by_id is None:
            found: dict[str, SubJob] = {}
            self._by_task = {}
            for task in self._tasks.values():
                sub = self._make(task)
                sub = found.setdefault(sub.id, sub)
                sub.take(task)
                self._by_task[task.uid] = sub
            self._by_id = dict(sorted(found.items()))
            for counter in (self._there, self._ready, self._pipelined):
                counter.clear()
            for sub in found.values():
                self._there[sub.policy] += 1
                self._count(sub, 1)
        return self._by_id

    def of_task(self, task: Task) -> SubJob:
        """Return the sub-job of a task of the job."""
        self.by_id()
        return self._by_task[task.uid]

    def _match(self, labels: Mapping[str, str]) -> tuple[SubGroupPolicy | None, list[str]]:
        """Return the first policy that selects a pod, and the label values of its subgroup."""
        for policy in self.policies:
            values = match_values(policy, labels)
            if values:
                return policy, values
        return None, []

    def _make(self, task: Task) -> SubJob:
        found = self._matched.get(task.uid)
        if found is None:
            found = self._matched[task.uid] = self._match(task.labels)
        policy, values = found
        if policy is not None:
            return SubJob(
                self._job_key,
                subjob_id(self._job_key, policy.name, values),
                policy=policy.name,
                min_available=policy.sub_group_size,
                topology=policy.network_topology,
                match_index=_number(values[0]),
            )
        return SubJob(
            self._job_key,
            self._job_key,
            min_available=1 if self.policies else self._min_member,
            topology=self.topology,
        )

    def states_topology(self) -> bool:
        """Tell whether the job or one of its subgroups states a network topology."""
        return self.topology is not None or any(
            sub.topology is not None for sub in self.by_id().values()
        )

    def minima(self) -> dict[str, int]:
        """Return policy → number of subgroups that must be placed, where that is not 0."""
        return {p.name: p.min_sub_groups for p in self.policies if p.min_sub_groups}

    def short_policies(self, *, pipelined: bool = False, exists: bool = False) -> int:
        """Return how many policies have fewer subgroups ready (pipelined, there) than they must.

        Used by the plugin gang (PL01).
        """
        minima = self.minima()
        if not minima:
            return 0
        self.by_id()
        have = self._there if exists else self._pipelined if pipelined else self._ready
        return sum(have[name] < minimum for name, minimum in minima.items())


def has_sub_jobs(spec: PodGroupSpec) -> bool:
    """Return whether a spec has sub-job policies or a network topology; most have neither."""
    return spec.network_topology is not None or bool(spec.sub_group_policy)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
