"""The reconciler of Jobs: reads facts, runs one pure pass, carries out its effects.

Second step of the flow "Job event → pods created": `InformerFeed` → `JobReconciler` → `advance`
(pure) → `EffectExecutor` → `Writer`.

A pass that fails keeps its requests, and the work queue repeats it. A request that the API server
rejects counts towards `--max-requeue-num`, after which the job is terminated (J13). An unavailable
API server does not count.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from typing_extensions import override

from services.controller.adapters.executor import EffectExecutor
from services.controller.adapters.reconciler import ControllerContext, Reconciler
from services.controller.adapters.records import JobRecord
from services.controller.adapters.store import Touched
from services.controller.job import effects
from services.controller.job.group import why_pending
from services.controller.job.kills import specified_names
from services.controller.job.phases import ALIVE
from services.controller.job.plan import Pass, advance
from services.controller.job.rejected_creates import is_no_pod, quota_of
from services.controller.job.requests import JobRequest, pod_name
from shared.api import kinds, time
from shared.api.batch import FINISHED, Action, JobEvent, JobPhase
from shared.api.scheduling import podgroup_of
from shared.contracts.subjects import split_key
from shared.jobplugins.foreign import PluginFailed
from shared.model.delayed_status import BacklogDelay, DelayedStatuses
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.workqueue import WorkQueue

_REFUSAL_MAX: Final = 1024
"""Characters of a rejection that a job's status shows."""
COUNTS: Final = BacklogDelay(first_s=0.5, doubled_by=50, longest_s=5.0)
"""Delay of status counts by the length of the work queue: creating pods comes first."""
STARTING_COUNTS: Final = BacklogDelay(first_s=5.0, doubled_by=50, longest_s=30.0)
"""The same for Pending jobs; their counts are written with their next phase."""
GONE_RETRY_S: Final = 0.5
ENQUEUE_DELAY_PER_POD_S: Final = 1e-4
"""Delay per pod of a reconciliation that no policy needs; its cost grows with the pods."""
ENQUEUE_DELAY_MAX_S: Final = 0.25


def counts_delay_s(backlog: int, *, starting: int = 0) -> float:
    """Return the delay of status counts in seconds, with `backlog` jobs in the work queue.

    `starting` is the number of Pending jobs whose counts wait, this one included; 0 if this job is
    not Pending.
    """
    return STARTING_COUNTS.behind(starting - 1) if starting else COUNTS.behind(backlog)


class JobReconciler(Reconciler):
    """Reconciles Jobs; `reconcile` handles one key."""

    name = "jobs"

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._events = manager.events
        self._spans = manager.env.spans
        self._faults = manager.env.faults
        self._max_refusals = manager.settings.max_requeue_num
        self._executor = EffectExecutor(
            manager.writer, recorder=manager.recorder, faults=manager.env.faults
        )
        self._delayed_counts = DelayedStatuses()
        """By key of the job; all counts are one status, so that a longest time is not needed."""
        self._over_quota: dict[str, set[str]] = {}
        """Namespace → keys of the jobs with pods that a quota of it refused."""

    @override
    def keys(self) -> Iterable[str]:
        return (*self._informers.jobs, *self._informers.oversized)

    @override
    def enqueue(self, touched: Touched) -> None:
        """Queue changed jobs, at once or after a delay in proportion to their pods."""
        for key, urgent in touched.of(kinds.JOB).items():
            record = self._informers.jobs.get(key)
            if record is None:
                self._metrics.forget_job(key)
            pods = 0 if urgent or record is None else len(record.pods)
            self.add(key, min(ENQUEUE_DELAY_PER_POD_S * pods, ENQUEUE_DELAY_MAX_S))
        for quota in touched.of(kinds.RESOURCEQUOTA):
            self._try_over_quota(split_key(quota)[0])

    def _try_over_quota(self, namespace: str) -> None:
        """Queue the jobs of a namespace whose quota has more room than before."""
        for key in sorted(self._over_quota.get(namespace, ())):
            if (record := self._informers.jobs.get(key)) is not None:
                record.rejected.quota_has_more_room()
                self.add(key)

    def _note_quota(self, key: str, *, is_over: bool) -> None:
        namespace = split_key(key)[0]
        over_quota = self._over_quota.setdefault(namespace, set())
        if is_over:
            over_quota.add(key)
        else:
            over_quota.discard(key)
        if not over_quota:
            del self._over_quota[namespace]

    @override
    def released(self, key: str) -> None:
        self._delayed_counts.forget(key)
        self._note_quota(key, is_over=False)
        if key in self._informers.jobs:
            self._informers.jobs[key].release()

    @override
    async def reconcile(self, key: str) -> None:
        """Run one pass for a job. Raises `Retryable` to be called again later."""
        if key in self._informers.oversized:
            await self._executor.refuse_oversized(key, self._informers.oversized[key])
            return
        await self._delete_stray_commands(key)
        record = self._informers.jobs.get(key)
        if record is None:
            self._delayed_counts.forget(key)
            self._note_quota(key, is_over=False)
            return
        with self._metrics.reconciles.time():
            if not record.owned:
                record.acquire()
                self._events.announce_if_fresh(record.job, record.group, now=self._clock.now())
            await self._pass(record)

    async def _delete_stray_commands(self, key: str) -> None:
        """Record an Event on each Command to a job that is not there, and delete it (J05).

        A Command and its job come by different watches, so a job that is not known here may be
        there nevertheless: the API server is asked first. A Command that names the uid of an
        earlier job of the same name was meant for that one; Volcano gives it to the present job,
        here it is dropped.
        """
        strays = self._informers.stray_commands(key)
        found = await self._writer.get_job(*split_key(key)) if strays else None
        for command in strays:
            assert command.target is not None, "a Command without a target is for no job"
            if found is not None and command.target.uid in {"", found.metadata.uid}:
                continue  # meant for a job that STATE does not show yet
            why = f"there is no job {key}"
            if found is not None:
                why = f"job {key} has uid {found.metadata.uid}, not {command.target.uid}"
            self._recorder.ignored_command_event(command, why)
            await self._writer.delete(kinds.COMMAND, command.metadata)
            self._log.warning(
                "command_without_job", command=command.metadata.key, action=command.action
            )

    async def _pass(self, record: JobRecord) -> None:
        try:
            found = self._advance(record)
            record.interrupted = True
            counts_left_s = await self._carry_out(record, found)
        except Gone:
            self.add(record.key, GONE_RETRY_S)
            return
        except Conflict as error:
            self._log.info("job_changed_meanwhile", job=record.key, reason=str(error))
            self.add(record.key)
            return
        except Rejected as error:
            if not quota_of(str(error)):
                self._refused(record, error)
                raise Retryable(str(error)) from error
            record.rejected.tried(self._clock.monotonic())
            self._report_rejected(record)  # no failure: it is tried again when the quota has room
            return
        record.interrupted, record.refusals, record.rejected.refusal = False, 0, ""
        self._report_rejected(record)
        self._report_pending(record)
        record.forget(found.answered)
        record.delayed = found.delayed
        self._requeue(record, found, counts_left_s)

    def _advance(self, record: JobRecord) -> Pass:
        try:
            facts = msgspec.structs.replace(
                self._informers.facts_of(record),
                not_due=record.rejected.not_due(self._clock.monotonic()),
                rejection=record.rejected.why(),
            )
            return advance(
                facts,
                tuple(record.requests.values()),
                record.delayed,
                now=self._clock.now(),
            )
        except PluginFailed as error:
            raise Rejected(str(error), field="spec.plugins") from error

    def _report_pending(self, record: JobRecord) -> None:
        """Record on the job why its PodGroup is pending (J34); the same reason once."""
        alive = record.job.status.state.phase in ALIVE
        condition = why_pending(record.group) if alive else None
        if condition is not None and condition.reason != record.reported_pending:
            group = record.key.replace("/", ":")
            message = f"PodGroup {group} {condition.type.lower()}, reason: {condition.message}"
            self._recorder.event(record.job, "PodGroupPending", message, warning=True)
        record.reported_pending = condition.reason if condition is not None else ""

    def _report_rejected(self, record: JobRecord) -> None:
        """Report why objects were rejected, and queue the job for the next try."""
        rejected = record.rejected
        rejected.keep_only(_still_missing(record))
        self._note_quota(record.key, is_over=rejected.is_over_quota)
        reason, message = rejected.why()
        left_s = rejected.until - self._clock.monotonic()
        if rejected and left_s > 0.0:
            self.add(
                record.key, left_s
            )  # objects that are due and were not tried wait for something else
        if (reason, message) != rejected.reported:
            self.add(record.key)  # the status says so, too
            if reason and reason != rejected.reported[0]:
                self._recorder.event(record.job, reason, message, warning=True)
        rejected.reported = (reason, message)

    def _requeue(self, record: JobRecord, found: Pass, counts_left_s: float) -> None:
        if found.requeue:
            self.add(record.key)
        if counts_left_s:
            self.add(record.key, counts_left_s)
        if found.reconcile_at is not None:
            self.add(record.key, max(0.0, found.reconcile_at - self._clock.now()))
        if found.delayed:
            due = min(delayed.due for delayed in found.delayed)
            self.add(record.key, max(0.0, due - self._clock.now()))

    async def _carry_out(self, record: JobRecord, found: Pass) -> float:
        """Carry out all stages; return in how many seconds counts are due, 0.0 if none wait."""
        counts_left_s = 0.0
        if not any(isinstance(e, effects.WriteJobStatus) for stage in found.stages for e in stage):
            self._delayed_counts.forget(record.key)
        for stage in found.stages:
            kept = []
            for effect in stage:
                if left_s := self._delay_left_s(record, effect):
                    counts_left_s = left_s
                else:
                    kept.append(effect)
            begun = self._clock.now()
            await self._executor.stage(record, kept)
            if kept and self._spans.is_on:
                self._trace(record, kept, begun)
            self._after(record, kept)
        return counts_left_s

    def _trace(self, record: JobRecord, stage: list[effects.Effect], begun: float) -> None:
        """Take a span of a stage; the one that ends the job is followed by the job's own."""
        cause = podgroup_of(record.key, record.uid)
        name = ", ".join(sorted({_words(type(effect).__name__) for effect in stage}))
        self._spans.add(cause, name, begun=begun, job=record.key, effects=len(stage))
        ended = [e.status for e in stage if isinstance(e, effects.WriteJobStatus)]
        phase = ended[-1].state.phase if ended else None
        made = time.read(record.job.metadata.creation_timestamp)
        if phase is not None and phase in FINISHED and made is not None:
            self._spans.add_root(cause, "job", begun=made, job=record.key, phase=phase.value)

    def _delay_left_s(self, record: JobRecord, effect: effects.Effect) -> float:
        """Return for how many seconds an effect is put off; only counts of a status are."""
        if not isinstance(effect, effects.WriteJobStatus) or effect.urgent:
            return 0.0
        is_pending = record.job.status.state.phase == JobPhase.PENDING
        starting = max(1, len(self._delayed_counts)) if is_pending else 0
        delay_s = counts_delay_s(self.queue.backlog, starting=starting)
        now = self._clock.monotonic()
        return self._delayed_counts.hold(record.key, "counts", now=now, delay_s=delay_s)

    def _after(self, record: JobRecord, stage: list[effects.Effect]) -> None:
        if any(isinstance(effect, effects.DeletePod) for effect in stage):
            self._faults.point("controller.after-kill")
        if any(isinstance(effect, effects.CreateGroup) for effect in stage):
            self._faults.point("controller.after-group")
        if any(isinstance(effect, effects.MarkPod) for effect in stage):
            self._faults.point("controller.after-mark")
        for effect in stage:
            if isinstance(effect, effects.WriteJobStatus):
                self._delayed_counts.forget(record.key)
                if effect.status.state.phase != effect.was:
                    self._faults.point("controller.after-status")
                    self._phase_changed(record, effect)
            elif isinstance(effect, effects.CreatePods):
                self._pods_made(record, effect)
        if any(isinstance(effect, effects.CreatePods) for effect in stage):
            record.rejected.tried(self._clock.monotonic())

    def _phase_changed(self, record: JobRecord, effect: effects.WriteJobStatus) -> None:
        phase = effect.status.state.phase
        assert phase is not None, "a status is written with a phase"
        was = effect.was.value if effect.was is not None else ""
        if phase == JobPhase.COMPLETED:
            self._metrics.completed.add(record.key, record.job.spec.queue)
        elif phase == JobPhase.FAILED:
            self._metrics.failed.add(record.key, record.job.spec.queue)
        self._log.info(
            "job_phase_changed",
            job=record.key,
            was=was,
            phase=phase.value,
            reason=effect.status.state.message,
            version=effect.status.version,
            retries=effect.status.retry_count,
        )
        self._events.phase(record.job, was=was, status=effect.status, group=record.group)

    def _pods_made(self, record: JobRecord, effect: effects.CreatePods) -> None:
        """Observe how long after their job pods were created, in whole seconds as theirs (J36)."""
        begun = record.job.metadata.creation_timestamp
        made = (pod_name(record.job, effect.builder.task, index) for index in effect.indexes)
        created = Counter(record.pods[name].created for name in made if name in record.pods)
        for text, pods in created.items():
            if begun and text:
                millis = max(0.0, time.parse(text) - time.parse(begun)) * 1000.0
                for _ in range(pods):
                    self._metrics.to_pods.observe(millis)

    def _refused(self, record: JobRecord, error: Rejected) -> None:
        """Count what will not succeed by trying again; in the end give the job up (J13)."""
        record.refusals += 1
        record.rejected.refusal = f"the API server refuses an object of the job: {error}"[
            :_REFUSAL_MAX
        ]
        self._log.warning("job_refused", job=record.key, times=record.refusals, reason=str(error))
        if self._max_refusals < 0 or record.refusals <= self._max_refusals:
            return
        message = f"Job failed for retry limit reached, after {record.refusals} refusals: {error}"
        self._recorder.event(record.job, "ExecuteAction", message, warning=True)
        record.add(
            [
                JobRequest(
                    event=JobEvent.COMMAND_ISSUED,
                    job_uid=record.uid,
                    version=record.job.status.version,
                    action=Action.TERMINATE_JOB,
                    why=message[:_REFUSAL_MAX],
                )
            ]
        )


def _still_missing(record: JobRecord) -> Callable[[str], bool]:
    """Return a function that tells whether a rejected object is still missing."""
    is_alive = record.job.status.state.phase in ALIVE
    is_specified = specified_names(record.job)

    def is_still_missing(name: str) -> bool:
        if not is_alive or name in record.pods:
            return False
        return is_no_pod(name) or is_specified(name)

    return is_still_missing


def _words(name: str) -> str:
    """Return the name of an effect as words: `create pods`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
