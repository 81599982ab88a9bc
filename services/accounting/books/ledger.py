"""From events and facts to changed rows. Pure.

A row is keyed by the uid of its object, so what comes twice changes nothing. Events and facts may
come in any order: an event opens an allocation whose fact is still on its way, and a fact one whose
event is. A pod that is on a node counts until its containers ended or it was deleted.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from pumice.events.envelope import CloudEvent
from pumice.events.types import (
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
)
from services.accounting.books.rows import (
    GROUPS,
    Allocation,
    AllocationEnd,
    EndReason,
    JobRow,
    UsageKey,
    amounts,
    finished_s,
    group_of,
    job_uid,
    owner_of,
    scalars_of,
    scheduled_s,
    shares,
    usage_of,
)
from shared.api import keys
from shared.api import time as times
from shared.api.batch import ENDED
from shared.api.core import Pod
from shared.api.kinds import JOB, POD, PODGROUP
from shared.api.scheduling import PodGroup
from shared.contracts.messages import Fact, Op
from shared.model.quantity import BadQuantity
from shared.model.requests import pod_request

ADMISSION: Final = "admission"
"""Gate of a job until its queue admits it."""
PLACEMENT: Final = "placement"
"""Gate of an admitted job until the scheduler names another one."""
_DELETED_KEPT_S: Final = 900.0
"""How long the end of an unknown pod is kept for its event: longer than its tombstone."""
_ENDED_PHASES: Final = {"Succeeded": EndReason.COMPLETED, "Failed": EndReason.FAILED}

_pods: Final = msgspec.json.Decoder(Pod)


class _Gang(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup of either kind, as far as rows need it."""

    kind: str = ""
    job_uid: str = ""
    queue: str = ""
    user: str = ""


class RowChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction writes."""

    allocations: list[Allocation]
    jobs: list[JobRow]
    usage: dict[UsageKey, float]
    """What to add to the daily sums."""

    def __bool__(self) -> bool:
        return bool(self.allocations or self.jobs)


class UsageLedger:
    """Open allocations and jobs, and what changed since it was last written."""

    def __init__(self, scheduler_names: Collection[str], *, observed_s: float) -> None:
        """Begin empty; `observed_s` is when the rows were last known to be current."""
        self._scheduler_names = frozenset(scheduler_names)
        self._allocations: dict[str, Allocation] = {}
        self._jobs: dict[str, JobRow] = {}
        self._changed: set[str] = set()
        self._changed_jobs: set[str] = set()
        self._written: dict[str, Allocation] = {}
        """Allocations as the database has them, of those in `_changed`."""
        self._ended: set[str] = set()
        """Allocations to forget once they are written."""
        self._gangs: dict[str, _Gang] = {}
        self._pods: set[str] = set()
        """Uids of the pods on STATE."""
        self._ends: dict[str, AllocationEnd] = {}
        """Ends of pods without an allocation, or of whose amounts nothing is known yet."""
        self._unseen: dict[str, float] = {}
        """Pods without a fact so far, and when the event of their bind was stored."""
        self.observed_s = observed_s
        """When the rows were last known to be current, in Unix seconds."""
        self._is_complete = False
        """Whether all facts were observed once since they are read."""

    # --- what is in the database -------------------------------------------------------------

    def unknown(
        self, events: Iterable[CloudEvent] = (), facts: Iterable[Fact] = ()
    ) -> tuple[set[str], set[str]]:
        """Return the uids of pods and of jobs whose rows, if there are any, have to be loaded."""
        pods, jobs = set(), set()
        for fact in facts:
            if fact.kind == POD.token:
                pods.add(fact.uid)
            elif fact.kind in GROUPS and fact.op is Op.PUT:
                jobs.add(owner_of(fact, group_of(fact))[0])
        for event in events:
            match event.data:
                case PodBound(uid=uid, gang=gang, job=job):
                    pods.add(uid)
                    jobs.add(job_uid(gang, "", job))
                case PodEvicted(uid=uid):
                    pods.add(uid)
                case JobPhaseChanged(uid=uid):
                    jobs.add(uid)
                case GangAdmitted() | GangPlaced() | GangUnschedulable():
                    jobs.add(job_uid(event.data.gang, event.data.uid, event.data.job))
                case _:
                    pass
        return pods - self._allocations.keys(), jobs - self._jobs.keys()

    def load(self, allocations: Iterable[Allocation], jobs: Iterable[JobRow]) -> None:
        """Take over rows of the database."""
        for row in allocations:
            self._allocations[row.pod_uid] = row
            if row.ended is not None:
                self._ended.add(row.pod_uid)
        self._jobs.update((row.uid, row) for row in jobs)

    def take_changes(self) -> RowChanges:
        """Return what changed, and forget the allocations that ended."""
        usage: dict[UsageKey, float] = {}
        for uid in self._changed:
            for sign, row in ((1.0, self._allocations[uid]), (-1.0, self._written.get(uid))):
                for key, amount in usage_of(row):
                    usage[key] = usage.get(key, 0.0) + sign * amount
        changes = RowChanges(
            allocations=[self._allocations[uid] for uid in sorted(self._changed)],
            jobs=[self._jobs[uid] for uid in sorted(self._changed_jobs)],
            usage={key: amount for key, amount in sorted(usage.items()) if amount},
        )
        self._changed.clear()
        self._changed_jobs.clear()
        self._written.clear()
        for uid in self._ended:
            del self._allocations[uid]
        self._ended.clear()
        return changes

    # --- events ------------------------------------------------------------------------------

    def apply(self, event: CloudEvent, stored_s: float) -> None:
        """Take one event into account, which was stored at `stored_s`."""
        at_s, data = event.time.timestamp(), event.data
        match data:
            case PodBound():
                self._bound(data, at_s)
                if data.uid not in self._pods:
                    self._unseen[data.uid] = stored_s
            case PodEvicted():
                row = self._allocations.get(data.uid)
                if row is not None and row.reason in ("", EndReason.DELETED):
                    self._put(replace(row, reason=EndReason.EVICTED))
            case JobPhaseChanged():
                self._phase(data, at_s)
            case GangAdmitted():
                self._admitted(data, at_s)
            case GangPlaced():
                self._placed(self._job(data.gang, data.uid, data.job, at_s), at_s)
            case GangUnschedulable() if data.gate:
                job = self._jobs.get(job_uid(data.gang, data.uid, data.job))
                if job is not None and job.started is None:
                    self._at_gate(job, data.gate, at_s)
            case _:
                pass

    def _bound(self, data: PodBound, at_s: float) -> None:
        namespace, _, name = data.pod.partition("/")
        row = self._allocations.get(data.uid) or Allocation(
            pod_uid=data.uid, pod=name, namespace=namespace, started=at_s, approximate=True
        )
        uid = job_uid(data.gang, "", data.job) or self._gang(data.gang).job_uid
        row = replace(
            row,
            node=data.node,
            queue=data.queue or row.queue,
            job=(data.job or data.gang).partition("/")[2],
            job_uid=uid,
            started=at_s,
            ended=row.ended and max(at_s, row.ended),  # in whole seconds: perhaps before its bind
        )
        self._put(row)
        if uid:
            self._placed(self._job(data.gang, uid, data.job, at_s), at_s)

    def _phase(self, data: JobPhaseChanged, at_s: float) -> None:
        namespace, _, name = data.job.partition("/")
        row = self._jobs.get(data.uid) or JobRow(
            uid=data.uid, namespace=namespace, name=name, kind=JOB.kind, submitted=at_s
        )
        self._put_job(
            replace(
                row,
                queue=data.queue or row.queue,
                phase=data.phase,
                reason=data.reason,
                restarts=max(row.restarts, data.version),
                requested=amounts(data.min_resources) or row.requested,
                ended=at_s if data.phase in ENDED else None,
            )
        )

    def _admitted(self, data: GangAdmitted, at_s: float) -> None:
        row = self._job(data.gang, data.uid, data.job, at_s)
        submitted = min(row.submitted, times.read(data.created or None) or at_s)
        row = replace(
            row,
            queue=data.queue or row.queue,
            submitted=submitted,
            min_member=data.min_member or row.min_member,
            requested=amounts(data.min_resources) or row.requested,
        )
        if row.admitted is None:
            row = replace(row, admitted=at_s, gate=ADMISSION, gate_since=submitted)
            self._at_gate(row, PLACEMENT, at_s)
        else:
            self._put_job(row)

    def _placed(self, row: JobRow, at_s: float) -> None:
        if row.started is None or row.started > at_s:
            self._at_gate(replace(row, started=at_s), "", at_s)

    def _at_gate(self, row: JobRow, gate: str, at_s: float) -> None:
        """Record that a job waits at another gate from now on, or at none."""
        if row.gate and row.gate_since is not None:
            waited = round(max(0.0, at_s - row.gate_since) + row.waits.get(row.gate, 0.0), 3)
            row = replace(row, waits={**row.waits, row.gate: waited})
        self._put_job(replace(row, gate=gate, gate_since=at_s if gate else None))

    # --- facts -------------------------------------------------------------------------------

    def observe(self, fact: Fact, at_s: float) -> None:
        """Take one fact into account, which was stored at `at_s`."""
        if fact.kind == POD.token:
            self._observe_pod(fact, at_s)
        elif fact.kind in GROUPS:
            self._observe_group(fact, at_s)

    def forget_facts(self) -> None:
        """Begin to read all facts again."""
        self._pods.clear()
        self._gangs.clear()
        self._is_complete = False

    def complete(self, at_s: float) -> None:
        """All facts that were stored before `at_s` were observed: end the rows of what is gone."""
        for uid in sorted(self._allocations.keys() - self._pods - self._ended):
            if self._unseen.get(uid, 0.0) < at_s:
                self._end_unseen(self._allocations[uid], min(self.observed_s, at_s))
        self._unseen = {uid: since for uid, since in self._unseen.items() if since >= at_s}
        ended = {uid for uid, job in self._jobs.items() if job.ended is not None}
        if ended:
            used = {row.job_uid for row in self._allocations.values() if row.ended is None}
            for uid in ended - used - self._changed_jobs:
                del self._jobs[uid]
        if not self._is_complete:
            self._is_complete = True
            self._end_jobs(min(self.observed_s, at_s))
        expired = [uid for uid, end in self._ends.items() if end.at_s < at_s - _DELETED_KEPT_S]
        for uid in expired:
            del self._ends[uid]
        self.observed_s = max(self.observed_s, at_s)

    def _end_unseen(self, row: Allocation, observed_s: float) -> None:
        """End the row of a pod that is gone; what no fact said comes from its job."""
        job = self._jobs.get(row.job_uid)
        if row.approximate and job is not None:
            row = replace(row, user=row.user or job.user, **shares(job))
        end = self._ends.pop(row.pod_uid, None)
        if end is None:
            ended_s = max(observed_s, (job.ended if job else None) or 0.0)
            end = AllocationEnd(ended_s, EndReason.UNOBSERVED)
            row = replace(row, approximate=True)
        self._put(row.end(end))

    def _end_jobs(self, at_s: float) -> None:
        """End the started jobs that have neither a PodGroup nor a pod any more."""
        there = {gang.job_uid for gang in self._gangs.values()}
        there |= {row.job_uid for row in self._allocations.values() if row.ended is None}
        for uid in sorted(self._jobs.keys() - there):
            row = self._jobs[uid]
            if row.started is not None and row.ended is None:
                self._put_job(replace(row, ended=max(row.started, at_s)))

    def _observe_pod(self, fact: Fact, at_s: float) -> None:
        if fact.op is Op.DELETE:
            self._pods.discard(fact.uid)
            self._end(fact.uid, AllocationEnd(at_s, EndReason.DELETED))
            return
        self._pods.add(fact.uid)
        if fact.op is not Op.PUT:
            return  # the pod is there, but the fact was too large to hold it
        pod = _pods.decode(fact.body)
        if pod.spec.node_name and self._is_ours(pod):
            self._observe_placed(fact, pod, at_s)

    def _observe_placed(self, fact: Fact, pod: Pod, at_s: float) -> None:
        row = self._allocations.get(fact.uid)
        reason = _ENDED_PHASES.get(pod.status.phase)
        if row is None or (row.approximate and row.ended is None):
            row = self._filled(row, fact, pod, at_s)
            self._put(row)
        if reason is not None:
            self._end(fact.uid, AllocationEnd(finished_s(pod) or at_s, reason))

    def _filled(self, row: Allocation | None, fact: Fact, pod: Pod, at_s: float) -> Allocation:
        """Return the row of a pod with what its fact says."""
        meta = pod.metadata
        name = pod.group_name
        group = f"{meta.namespace}/{name}" if name else ""
        job = meta.annotations.get(keys.JOB_NAME, "")
        gang = self._gang(group)
        uid = job_uid(group, "", f"{meta.namespace}/{job}" if job else "") or gang.job_uid
        row = row or Allocation(
            pod_uid=fact.uid,
            pod=meta.name,
            namespace=meta.namespace,
            started=scheduled_s(pod) or at_s,
        )
        try:
            request = pod_request(pod)
        except BadQuantity:
            return row  # it stays approximate: its amounts come from its gang when it ends
        return replace(
            row,
            job=row.job or job or name,
            job_uid=row.job_uid or uid,
            queue=row.queue or gang.queue or meta.annotations.get(keys.QUEUE_NAME, ""),
            user=meta.annotations.get(keys.USER, "") or gang.user or row.user,
            node=pod.spec.node_name,
            cpu_milli=int(request.cpu_milli),
            memory_bytes=int(request.memory_bytes),
            scalars=scalars_of(request),
            approximate=False,
        )

    def _observe_group(self, fact: Fact, at_s: float) -> None:
        """Take a PodGroup into account; Volcano's counts where both kinds have one of a name."""
        gang = self._gangs.get(fact.key)
        if fact.op is Op.DELETE:
            if gang is not None and gang.kind == fact.kind:
                del self._gangs[fact.key]
                row = self._jobs.get(gang.job_uid)
            else:
                row = self._jobs.get(fact.uid)
            if row is not None and row.ended is None:
                self._put_job(replace(row, ended=at_s))
        elif fact.op is Op.PUT and (gang is None or fact.kind in {gang.kind, PODGROUP.token}):
            self._observe_current_group(fact, group_of(fact), at_s)

    def _observe_current_group(self, fact: Fact, group: PodGroup, at_s: float) -> None:
        uid, job = owner_of(fact, group)
        queue = group.spec.queue
        user = group.metadata.annotations.get(keys.USER, "")
        created_s = times.read(group.metadata.creation_timestamp) or at_s
        row = self._job(fact.key, uid, job, created_s)
        self._put_job(
            replace(
                row,
                queue=queue or row.queue,
                user=user or row.user,
                submitted=min(row.submitted, created_s),
                min_member=group.spec.min_member or row.min_member,
                requested=amounts(group.spec.min_resources) or row.requested,
            )
        )
        gang = _Gang(kind=fact.kind, job_uid=uid, queue=queue, user=user)
        if self._gangs.get(fact.key) == gang:
            return
        self._gangs[fact.key] = gang
        for each in list(self._allocations.values()):
            if each.job_uid == uid or (not each.job_uid and each.job == fact.key.partition("/")[2]):
                self._put(
                    replace(each, job_uid=uid, queue=each.queue or queue, user=each.user or user)
                )

    # --- rows --------------------------------------------------------------------------------

    def _is_ours(self, pod: Pod) -> bool:
        return (
            keys.GROUP_NAME in pod.metadata.annotations
            or pod.spec.scheduler_name in self._scheduler_names
        )

    def _gang(self, key: str) -> _Gang:
        return self._gangs.get(key) or _Gang()

    def _job(self, gang: str, uid: str, job: str, at_s: float) -> JobRow:
        """Return the row of a gang's job, made now if there is none."""
        own = job_uid(gang, uid, job)
        namespace, _, name = (job or gang).partition("/")
        return self._jobs.get(own) or JobRow(
            uid=own,
            namespace=namespace,
            name=name,
            kind=JOB.kind if job else PODGROUP.kind,
            submitted=at_s,
        )

    def _end(self, uid: str, end: AllocationEnd) -> None:
        row = self._allocations.get(uid)
        if row is None or (row.approximate and row.ended is None):
            self._ends[uid] = end
        elif row.ended is None:
            self._put(row.end(end))

    def _put(self, row: Allocation) -> None:
        before = self._allocations.get(row.pod_uid)
        if row == before:
            return
        if row.pod_uid not in self._changed and before is not None:
            self._written[row.pod_uid] = before
        self._changed.add(row.pod_uid)
        if row.ended is not None:
            self._ended.add(row.pod_uid)
        self._allocations[row.pod_uid] = row

    def _put_job(self, row: JobRow) -> None:
        if row != self._jobs.get(row.uid):
            self._jobs[row.uid] = row
            self._changed_jobs.add(row.uid)
