"""Jobs, queues and priority classes, and the set of jobs that a session has to visit.

A job whose pods are all placed, and whose status shows it, is *settled*: a session counts it in
sums and does not visit it. So the cost of an idle cycle does not grow with the number of running
jobs.
"""

from collections.abc import Iterable, Iterator, Mapping

from pumice.plugins import Condition, Fold, GroupOf, Measure, NodeGroups
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.holders import Holders
from services.scheduler.engine.jobs.records import GroupStatus, Job, LastSeen, Queue, Stamp
from services.scheduler.engine.jobs.rollups import Rollup, Rollups, allocated_of
from services.scheduler.engine.jobs.unschedulable import Demand, UnschedulablePool
from services.scheduler.engine.plan import bounded
from services.scheduler.engine.resources.amounts import AMOUNT_MAX, stretched
from services.scheduler.engine.resources.dimensions import Dimensions, as_listed
from services.scheduler.engine.tasks.from_pod import stated_cost
from services.scheduler.engine.tasks.task import Task
from shared.api import keys, kinds
from shared.api.scheduling import (
    PodGroup,
    PriorityClass,
    QueueAffinity,
    QueueState,
)
from shared.api.scheduling import Queue as QueueObject
from shared.jobs.native_groups import NativeTerms
from shared.jobs.pod_terms import TooManyTerms, excess_of_subgroups
from shared.model.numbers import parse_bool
from shared.model.resources import CPU, MEMORY, is_counted, parse_list
from shared.model.status import READY, TaskStatus


class Jobs:
    """All jobs and queues of the cluster."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._by_key: dict[str, Job] = {}
        self._by_queue: dict[str, dict[str, Job]] = {}
        self.queues: dict[str, Queue] = {}
        self._priorities: dict[str, PriorityClass] = {}
        self._default_priority = 0
        self._rollups = Rollups()
        self._rollups.get(
            allocated_of, ()
        )  # kept from the start: statuses ask for it in mid-session
        self._stale: dict[str, Job] = {}
        self.status_due: dict[str, Job] = {}
        """Jobs that changed since a session last computed their status."""
        self.unmeasured: dict[str, Job] = {}
        """Jobs that changed since the metrics last read them; those that are gone are not kept."""
        self._active: dict[str, Job] = {}
        self.unschedulable = UnschedulablePool()
        """Unsettled jobs that sessions need not visit."""
        self.holders = Holders()
        self._stray: dict[str, Job] = {}

    # --- tasks -------------------------------------------------------------------------------

    def take(self, task: Task) -> None:
        """Count a task into its job."""
        job = self._by_key.get(task.job_key)
        if job is None:
            job = self._by_key[task.job_key] = Job(task.job_key, self._dimensions.capacity)
        job.take(task)
        self.changed(job)

    def drop(self, task: Task) -> None:
        """Count a task out of its job."""
        job = self._by_key[task.job_key]
        job.drop(task)
        self.changed(job)
        self._forget_if_empty(job)

    # --- facts -------------------------------------------------------------------------------

    def folds(self) -> dict[str, list[Fold]]:
        """Return how to fold queues and priority classes; PodGroups are in `state.groups`."""
        priorities = Fold(self.put_priority_class, self.remove_priority_class)
        return {
            kinds.QUEUE.token: [Fold(self.put_queue, self.remove_queue)],
            kinds.PRIORITYCLASS.token: [priorities],
        }

    def put_group(self, key: str, group: PodGroup, native: NativeTerms | None = None) -> None:
        """Store a PodGroup, or one that stands for a native PodGroup with these terms.

        Raises `BadQuantity` and `TooManyTerms`.
        """
        spec, meta = group.spec, group.metadata
        if why := excess_of_subgroups(spec):
            raise TooManyTerms(why)
        minimum = self._dimensions.parse(spec.min_resources) if spec.min_resources else None
        job = self._by_key.get(key)
        if job is None:
            job = self._by_key[key] = Job(key, self._dimensions.capacity)
        if job.queue != spec.queue:
            self._by_queue.get(job.queue, {}).pop(key, None)
            self._by_queue.setdefault(spec.queue, {})[key] = job
        if job.uid != meta.uid:
            job.decided = None
        job.has_group = True
        job.native = native
        job.uid = meta.uid
        job.queue = spec.queue
        job.owner_job = meta.owner_job
        job.controller = meta.controller
        job.priority_class = spec.priority_class_name
        job.priority = self._priority(job)
        job.set_minima(spec.min_member, spec.min_task_member)
        job.min_resources = minimum
        job.beyond = () if minimum is None else self._dimensions.beyond(minimum, AMOUNT_MAX)
        job.min_listed = as_listed(spec.min_resources or {})
        job.divide(spec)
        job.created = meta.creation_timestamp or ""
        job.annotations = meta.annotations
        job.cost_of_pods = stated_cost(meta.annotations) or 0
        preemptable = meta.annotations.get(keys.PREEMPTABLE, meta.labels.get(keys.PREEMPTABLE))
        job.preemptable = bool(parse_bool(preemptable))
        job.non_preemptable = preemptable is not None and not job.preemptable
        job.last_seen = LastSeen(meta.resource_version, _status_of(group), _stamps_of(group))
        self._see_status(job, job.last_seen.status)
        self.changed(job)

    def remove_group(self, key: str) -> None:
        """Forget a PodGroup; its tasks stay, but the job leaves all sessions."""
        job = self._by_key.get(key)
        if job is None:
            return
        self._by_queue.get(job.queue, {}).pop(key, None)
        job.has_group = False
        job.native = None
        job.uid = ""
        job.queue = ""
        job.owner_job, job.controller = "", None
        job.decided = None
        self.changed(job)
        self._forget_if_empty(job)

    @staticmethod
    def _see_status(job: Job, last_seen: GroupStatus) -> None:
        if job.decided is not None and job.decided != last_seen:
            last_seen = job.decided  # our own status is published and not yet shown
        else:
            job.decided = None
        Jobs._set_status(job, last_seen)

    @staticmethod
    def _set_status(job: Job, status: GroupStatus) -> None:
        job.last_status = status
        job.phase = status.phase
        job.conditions = status.conditions

    def assume_status(self, key: str, uid: str, status: GroupStatus) -> None:
        """Use a status that was published until the object shows it."""
        job = self._by_key.get(key)
        if job is not None and job.uid == uid:
            job.decided = status
            self._set_status(job, status)
            self.changed(job)

    def restate(self, key: str, decided: GroupStatus | None) -> None:
        """Restore the status desired before `assume_status`; None: the one of the object."""
        job = self._by_key.get(key)
        if job is not None:
            job.decided = decided
            self._set_status(job, decided or job.last_seen.status)
            self.changed(job)

    def forget_desired(self) -> None:
        """Use what PodGroups and queues show: desired statuses may never have been published."""
        for job in self._by_key.values():
            if job.decided is not None:
                job.decided = None
                self._set_status(job, job.last_seen.status)
                self.changed(job)
        for queue in self.queues.values():
            queue.last_allocated, queue.last_pending = queue.shown_allocated, queue.shown_pending

    def put_queue(self, name: str, obj: QueueObject) -> None:
        """Store a queue. Raises `BadQuantity`."""
        spec, state = obj.spec, obj.status.state
        queue = self.queues.get(name) or Queue()
        queue.compared = ({}, b"")
        queue.name = name
        queue.uid = obj.metadata.uid
        queue.weight = spec.weight
        queue.priority = spec.priority
        queue.created = obj.metadata.creation_timestamp or ""
        queue.state = state.value if state is not None else ""
        queue.is_open = state is QueueState.OPEN
        queue.reclaimable = spec.reclaimable is not False
        queue.parent = spec.parent
        queue.capability = self._capability(spec.capability)
        guarantee = self._dimensions.parse(spec.guarantee.resource)
        queue.deserved = self._dimensions.parse(spec.deserved)
        queue.guarantee = self._dimensions.fitted(guarantee)
        named = {**spec.deserved, **spec.guarantee.resource}
        queue.deserved_dims = self._dimensions.present(parse_list(named))
        queue.affinity = _node_groups(spec.affinity)
        queue.annotations = obj.metadata.annotations
        queue.last_allocated = {name: str(text) for name, text in obj.status.allocated.items()}
        queue.last_pending = obj.status.pending
        queue.shown_allocated, queue.shown_pending = queue.last_allocated, queue.last_pending
        queue.rv = obj.metadata.resource_version
        if name not in self.queues:
            self.queues[name] = queue
            self._queue_changed(name)

    def remove_queue(self, name: str) -> None:
        """Forget a queue; its jobs leave all sessions."""
        if self.queues.pop(name, None) is not None:
            self._queue_changed(name)

    def _queue_changed(self, name: str) -> None:
        for job in self._by_queue.get(name, {}).values():
            self.changed(job)

    def _capability(self, listed: Mapping[str, str | int | float]) -> dict[str, int]:
        """Return the limits of a queue's `capability`; zero CPU or memory means no limit (PL05)."""
        amounts = self._dimensions.parse(listed)
        limits = {}
        for name in listed:
            amount = int(amounts[self._dimensions.index(name)]) if is_counted(name) else 0
            if amount > 0 or (name not in {CPU, MEMORY} and is_counted(name)):
                limits[name] = amount
        return limits

    def put_priority_class(self, name: str, obj: PriorityClass) -> None:
        """Store a priority class."""
        self._priorities[name] = obj
        self._priorities_changed()

    def remove_priority_class(self, name: str) -> None:
        """Forget a priority class."""
        self._priorities.pop(name, None)
        self._priorities_changed()

    def _priority(self, job: Job) -> int:
        if job.native is not None and job.native.priority is not None:
            return job.native.priority
        found = self._priorities.get(job.priority_class)
        return found.value if found else self._default_priority

    def _priorities_changed(self) -> None:
        defaults = [c.value for c in self._priorities.values() if c.global_default]
        self._default_priority = max(defaults, default=0)
        for job in self._by_key.values():
            job.priority = self._priority(job)
        self.activate_all()

    # --- queries of sessions -----------------------------------------------------------------

    def get(self, key: str) -> Job | None:
        """Return a job."""
        return self._by_key.get(key)

    def all(self) -> Iterator[Job]:
        """Return all jobs, those outside of sessions included."""
        return iter(self._by_key.values())

    def of_queue(self, name: str) -> list[Job]:
        """Return the jobs of a queue in any state, in order of their keys."""
        return [job for _, job in sorted(self._by_queue.get(name, {}).items())]

    def takes_part(self, job: Job) -> bool:
        """Tell whether a job is in sessions: it has a PodGroup and a known queue (CA04)."""
        return job.has_group and job.queue in self.queues

    def knows(self, key: str) -> bool:
        """Tell whether a job of that key is in sessions."""
        job = self._by_key.get(key)
        return job is not None and self.takes_part(job)

    def changed(self, job: Job) -> None:
        """Mark a job as changed, so that rollups and statuses are computed again."""
        self._stale[job.key] = job
        self.status_due[job.key] = job
        self.unmeasured[job.key] = job

    def compute_only(self, names: Iterable[str]) -> None:
        """Mark the statuses of all jobs except these as computed."""
        later = ((key, self._by_key.get(key)) for key in names)
        self.status_due = {key: job for key, job in later if job is not None}

    def refresh(self) -> None:
        """Bring rollups and the set of unsettled jobs up to date."""
        for key, job in self._stale.items():
            member = self.takes_part(job)
            self._rollups.update(job, member=member)
            self.unschedulable.remove(key)
            self.holders.update(job)
            if member and not _is_settled(job):
                self._active[key] = job
            else:
                self._active.pop(key, None)
            if not member and (job.has_group or job.by_status[TaskStatus.PENDING]):
                self._stray[key] = job
            else:
                self._stray.pop(key, None)
        self._stale = {}

    def rollup(self, measure: Measure, group_of: GroupOf | None = None) -> Rollup:
        """Return the sums of a measure by queue or group, brought up to date."""
        self.refresh()
        jobs = ((job, self.takes_part(job)) for job in self._by_key.values())
        return self._rollups.get(measure, jobs, group_of)

    def active(self) -> list[Job]:
        """Return the jobs that sessions visit, in order of their keys."""
        self.refresh()
        return [job for _, job in sorted(self._active.items())]

    def add_unschedulable(self, job: Job, order: OrderKey, demand: Demand, *, now: float) -> bool:
        """Move a job to the unschedulable pool, until something that it waits for changes.

        A session has just visited it, and its wait is reported. Returns whether it was moved: not
        if it has changed since, or if an eviction might make room for its group.
        """
        if self._active.get(job.key) is not job or job.key in self._stale:
            return False
        if self.unschedulable.has_contended(job, demand, now):
            return False
        del self._active[job.key]
        self.status_due.pop(job.key, None)
        self.unschedulable.add(job, order, demand, now)
        return True

    def activate(self, job: Job) -> None:
        """Have sessions visit an unschedulable job again."""
        if self.unschedulable.remove(job.key):
            self._active[job.key] = job

    def activate_at_allocate(self) -> None:
        """Activate all jobs that the action allocate refused."""
        for job in self.unschedulable.at_allocate.jobs():
            self.activate(job)

    def activate_all(self) -> None:
        """Have sessions visit all jobs again."""
        self.activate_at_allocate()
        for job in self.unschedulable.at_enqueue.jobs():
            self.activate(job)

    def stray(self) -> list[Job]:
        """Return the jobs without a PodGroup or without its queue, which no session visits."""
        self.refresh()
        return [job for _, job in sorted(self._stray.items())]

    def stretch(self, capacity: int) -> None:
        """Make room for more resources."""
        self.activate_all()
        for job in self._by_key.values():
            job.sums.stretch(capacity)
            if job.min_resources is not None:
                job.min_resources = stretched(job.min_resources, capacity)
        for queue in self.queues.values():
            queue.guarantee = stretched(queue.guarantee, capacity)
            queue.deserved = stretched(queue.deserved, capacity)
        self._rollups.stretch(capacity)

    def _forget_if_empty(self, job: Job) -> None:
        if job.has_group or job.tasks:
            return
        self.refresh()
        del self._by_key[job.key]
        self.status_due.pop(job.key, None)
        self.unmeasured.pop(job.key, None)


def _is_settled(job: Job) -> bool:
    return (
        not job.is_pending
        and job.is_ready
        and not job.by_status[TaskStatus.PENDING]
        and not job.roles_short_of(*READY, best_effort=True)
    )


def _node_groups(stated: QueueAffinity | None) -> NodeGroups | None:
    """Return the node groups of a queue's affinity and anti-affinity."""
    if stated is None:
        return None
    near, off = stated.node_group_affinity, stated.node_group_anti_affinity
    return NodeGroups(
        required=near.required_during_scheduling_ignored_during_execution if near else (),
        preferred=near.preferred_during_scheduling_ignored_during_execution if near else (),
        never=off.required_during_scheduling_ignored_during_execution if off else (),
        rather_not=off.preferred_during_scheduling_ignored_during_execution if off else (),
    )


def _status_of(group: PodGroup) -> GroupStatus:
    status = group.status
    return GroupStatus(
        phase=status.phase.value if status.phase else "",
        counters=(status.running, status.succeeded, status.failed),
        conditions=tuple(
            bounded(Condition(c.type, c.status, c.reason, c.message)) for c in status.conditions
        ),
    )


def _stamps_of(group: PodGroup) -> dict[Condition, Stamp]:
    return {
        bounded(Condition(c.type, c.status, c.reason, c.message)): Stamp(
            c.transition_id, c.last_transition_time or ""
        )
        for c in group.status.conditions
    }
