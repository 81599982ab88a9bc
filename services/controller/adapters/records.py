"""The controller's memory of one job between two reconciliations.

Mutable state beside the stores: what cannot be read from the objects themselves.
A record is changed by the informers (facts, own writes) and by the reconciler of its job, all on
one event loop and never across an `await`, so it needs no lock.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from services.controller.job.completed_indexes import has_succeeded, recorded, succeeded_and_gone
from services.controller.job.facts import PodView
from services.controller.job.group import DesiredGroupSpec, desired_group
from services.controller.job.phases import ALIVE
from services.controller.job.policies import Delayed
from services.controller.job.rejected_creates import RejectedCreates
from services.controller.job.requests import JobRequest, PodSums, at_start, compare, of_group
from services.controller.job.validate import problems
from shared.api.batch import Job, JobSpec
from shared.api.core import PodPhase
from shared.api.scheduling import PodGroup
from shared.jobs.defaults import defaulted


class KnownCompanion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A companion object that this process has created or read."""

    uid: str
    digest: int
    """Of the content that it was given last."""


class JobRecord:
    """One job by uid: its object, its pods, its group, and what waits for an answer."""

    def __init__(self, job: Job, pods: dict[str, PodView], *, scheduler_name: str) -> None:
        self.uid = job.metadata.uid
        self.key = job.metadata.key
        self.rv = 0
        self.pods = pods
        self.group: PodGroup | None = None
        self.admitted = False  # whether scheduling has admitted this version of `group`
        self.requests: dict[tuple[str, str, int], JobRequest] = {}
        self.delayed: tuple[Delayed, ...] = ()
        self.owned = False
        """Whether this replica owns the job: only then requests are kept up to date."""
        self.applied = 0
        """Digest of the plugins' objects that this process wrote last."""
        self.companions: dict[tuple[str, str], KnownCompanion] = {}
        """(token of the kind, name) → companion object that exists."""
        self.name_conflicts: Counter[str] = Counter()
        """Name of a sealed object → how often an object of another owner had that name."""
        self.seen_from_start = False
        """Whether this process knew the job before its first object, and so knows all of them."""
        self.reported_pending = ""  # reason of its PodGroup's wait, as in the last event
        self.refused: defaultdict[str, list[str]] = defaultdict(list)
        """Reason of an event → the API server's message in the present stage."""
        self.refusals = 0
        """Consecutive reconciliations with a permanent refusal of the API server (J13)."""
        self.rejected = RejectedCreates()
        self.interrupted = False
        """Whether the last reconciliation was interrupted."""
        self.completed: dict[str, set[int]] = {}
        """Task → indexes that have succeeded: what the status records, and what is newer."""
        self.ended: dict[str, PodView] = {}
        """Pods that had succeeded when they went, by name: what tombstones say."""
        self._unrecorded: dict[str, PodView] = {}
        self._sums = PodSums(())
        """Of `pods`, while requests are kept up to date."""
        self._scheduler_name, self._generation = scheduler_name, -1
        self._desired: tuple[JobSpec, Mapping[str, int], DesiredGroupSpec] | None = None
        self.job = job
        self._problems: tuple[str, ...] | None = None
        self.take(job)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems of the spec, computed when the job is reconciled.

        There an unexpected error quarantines only this job; in the fold of facts it would end the
        process again and again.
        """
        if self._problems is None:
            self._problems = problems(self.job)
        return self._problems

    def desired_group(self, priorities: Mapping[str, int]) -> DesiredGroupSpec | None:
        """Return the desired spec of the PodGroup (J27, J28), rebuilt after a change of its inputs.

        `priorities` holds the value of each PriorityClass.
        """
        if self.problems:
            return None
        known = self._desired
        if known is None or known[0] is not self.job.spec or known[1] != priorities:
            made = desired_group(self.job, priorities)
            self._desired = known = (self.job.spec, dict(priorities), made)
        return known[2]

    def take(self, job: Job) -> bool:
        """Store a newer version of the job; return whether it is newer."""
        rv = int(job.metadata.resource_version or 0)
        if rv <= self.rv:
            return False
        self.rv = rv
        before = self.job.status
        if job.metadata.generation != self._generation or job.metadata.generation == 0:
            self._generation = job.metadata.generation
            self._problems = None
            self.job = defaulted(job, scheduler_name=self._scheduler_name)
        else:
            self.job = msgspec.structs.replace(job, spec=self.job.spec)
        after = self.job.status
        if (after.version, after.retry_count) != (before.version, before.retry_count):
            self._unrecorded.clear()  # a restart: the pods that it kept are in this status
            self.ended.clear()
        self._know_completed()
        return True

    def _know_completed(self) -> None:
        """Combine the completed indexes in the status with those completed since it was written."""
        self.completed = recorded(self.job)
        for name, pod in list(self._unrecorded.items()):
            if pod.index in self.completed.setdefault(pod.task, set()):
                del self._unrecorded[name]
            else:
                self.completed[pod.task].add(pod.index)

    def acquire(self) -> None:
        """Start to own the job: add a request for every event that may be unhandled."""
        if not self.owned:
            self.owned = True
            self._sums = PodSums(self.pods.values())
            self.seen_from_start = self.job.status.state.phase is None
            self._unrecorded = {n: p for n, p in self.pods.items() if has_succeeded(self.job, p)}
            went = {
                name: pod
                for name, pod in self.ended.items()
                if name not in self.pods and succeeded_and_gone(self.job, self.rv, pod)
            }
            self._unrecorded.update(went)
            self.ended.clear()
            self._know_completed()
            self.add(at_start(self.job, self.pods, self._sums, self.completed))
            for pod in went.values():
                self._add_requests(None, pod)
            if self.job.status.state.phase in ALIVE:
                self.add(of_group(self.job, None, self.group))

    def release(self) -> None:
        """Stop owning the job: its next owner derives the requests from facts."""
        self.owned = False
        self._sums = PodSums(())
        self.requests = {}
        self.delayed = ()
        self.applied = 0
        self.companions = {}
        self.name_conflicts.clear()
        self.seen_from_start = False

    def changed(
        self, before: PodView | None, after: PodView | None, *, ours: bool = False
    ) -> tuple[JobRequest, ...]:
        """Apply the change of a pod to `pods`; return the resulting requests."""
        known = self._replace(before, after)
        if after is None or after.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
            self.rejected.quota_may_be_free()
        if not self.owned:
            return ()
        self._sums.change(known, after)
        self._note_completed(after)
        return self._add_requests(before, after, ours=ours)

    def _replace(self, before: PodView | None, after: PodView | None) -> PodView | None:
        """Put or remove a pod; return the former one of that name."""
        if after is not None:
            known = self.pods.get(after.name)
            self.pods[after.name] = after
            self.ended.pop(after.name, None)
            return known
        return self.pods.pop(before.name, None) if before is not None else None

    def _add_requests(
        self, before: PodView | None, after: PodView | None, *, ours: bool = False
    ) -> tuple[JobRequest, ...]:
        found = compare(
            self.job, before, after, self._sums, deleted_by_us=ours, completed=self.completed
        )
        self.add(found)
        return found

    def note_tombstone(self, pod: PodView) -> None:
        """Record a deleted pod whose tombstone says that it had succeeded.

        The owner of the job knows every restart so far; the next owner goes by the status.
        """
        if self.owned:
            self._note_completed(pod)
            self._add_requests(None, pod)
        else:
            self.ended[pod.name] = pod

    def _note_completed(self, pod: PodView | None) -> None:
        if pod is None:
            return
        if has_succeeded(self.job, pod):
            self._unrecorded[pod.name] = pod
            self.completed.setdefault(pod.task, set()).add(pod.index)
        elif pod.out_of_sync or pod.phase != PodPhase.SUCCEEDED:
            # A pod that is to run, or runs, once more: a restart has struck it out.
            self._unrecorded.pop(pod.name, None)
            done = self.completed.get(pod.task, set())
            if pod.index in done:
                done.remove(pod.index)
                self._sums.restarted(pod.task)

    def group_changed(self, group: PodGroup | None) -> None:
        """Store the current PodGroup; None if it does not exist."""
        before, self.group, self.admitted = self.group, group, False
        if self.owned:
            self.add(of_group(self.job, before, group))

    def add(self, requests: Iterable[JobRequest]) -> None:
        """Add requests that are not waiting yet."""
        for request in requests:
            self.requests.setdefault(request.key, request)

    def forget(self, answered: Iterable[tuple[str, str, int]]) -> None:
        """Drop requests whose actions have been carried out."""
        for key in answered:
            self.requests.pop(key, None)
