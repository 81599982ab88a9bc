"""Looks at jobs: one key at a time per job, facts in, pure pass, effects out.

A look that fails leaves its requests waiting and is repeated by the mailbox. What the API server
refuses for good counts towards `--max-requeue-num`, after which the job is terminated (J13); an API
server that is away does not count, however long it takes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from services.controller.adapters.announcer import ControllerEvents
from services.controller.adapters.ownership import Ownership
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.records import JobRecord
from services.controller.adapters.replica import Replica
from services.controller.adapters.strays import Strays
from services.controller.adapters.touched import Touched
from services.controller.adapters.writer import Writer
from services.controller.job import effects
from services.controller.job.group import why_pending
from services.controller.job.phases import ALIVE
from services.controller.job.plan import Pass, advance
from services.controller.job.requests import Request, pod_name
from services.controller.metrics import ControllerMetrics
from shared.api import time
from shared.api.batch import Action, JobEvent, JobPhase
from shared.jobplugins.foreign import PluginFailed
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger
from shared.runtime.mailbox import Mailbox

COALESCE_S: Final = 0.5
"""A mere change of counts waits that long for the next, which is often the one that matters."""
COALESCE_PER_JOB_S: Final = 0.01
COALESCE_MOST_S: Final = 5.0
"""It waits longer for each job that waits for a look: pods come before their counts."""
GLANCE_S: Final = 1e-4
"""Wait per pod of a job before a look that no policy waits for: looks cost in proportion."""
GLANCE_MOST_S: Final = 0.25


def patience_s(backlog: int) -> float:
    """Return how long counts may wait, in seconds, where `backlog` jobs wait for a look."""
    return min(COALESCE_S + COALESCE_PER_JOB_S * backlog, COALESCE_MOST_S)


class JobWorker:
    """The handler of the jobs' mailbox."""

    name: Final = "jobs"

    def __init__(
        self,
        *,
        replica: Replica,
        ownership: Ownership,
        writer: Writer,
        strays: Strays,
        mailbox: Mailbox[str],
        recorder: Recorder,
        events: ControllerEvents,
        is_synced: Callable[[], bool],
        max_refusals: int,
        workers: int,
        clock: Clock,
        faults: Faults,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._replica = replica
        self._ownership = ownership
        self._writer = writer
        self._strays = strays
        self._mailbox = mailbox
        self._recorder = recorder
        self._events = events
        self._is_synced = is_synced
        self._max_refusals = max_refusals
        self._workers = workers
        self._clock = clock
        self._faults = faults
        self._metrics = metrics
        self._log = log
        ownership.on_change(self._partition_changed)

    async def run(self) -> None:
        """Look at jobs for ever."""
        await self._mailbox.run(self.look, self._workers)

    def touch(self, touched: Touched) -> None:
        """Have jobs looked at, at once or after a wait in proportion to their size."""
        for key, urgent in touched.jobs.items():
            record = self._replica.jobs.get(key)
            if record is None:
                self._metrics.forget_job(key)
            if self._ownership.owns(key):
                pods = 0 if urgent or record is None else len(record.pods)
                self._mailbox.poke_later(key, min(GLANCE_S * pods, GLANCE_MOST_S))

    def touch_all(self) -> None:
        """Have every job that this replica owns looked at (first sync, new partition)."""
        for key in (*self._replica.jobs, *self._replica.oversized):
            if self._ownership.owns(key):
                self._mailbox.poke_later(key, 0.0)

    def _partition_changed(self, partition: int) -> None:
        for key in (*self._replica.jobs, *self._replica.oversized):
            if self._ownership.partition(key) != partition:
                continue
            if self._ownership.owns(key):
                self._mailbox.poke_later(key, 0.0)
            elif key in self._replica.jobs:
                self._replica.jobs[key].rest()

    async def look(self, key: str) -> None:
        """Look at one job and do what it needs. Raises Retryable to be called again later."""
        if not self._ownership.owns(key) or not self._is_synced():
            return  # everything is looked at once it is ours, and known
        if key in self._replica.oversized:
            with self._ownership.looking(key):
                await self._writer.refuse_oversized(key, self._replica.oversized[key])
            return
        with self._ownership.looking(key):
            await self._strays.drop(key)
        record = self._replica.jobs.get(key)
        if record is None:
            return
        with self._ownership.looking(key), self._metrics.looks.time():
            if not record.primed:
                record.prime()
                self._events.perhaps_untold(record.job, now=self._clock.now())
            await self._pass(record)

    async def _pass(self, record: JobRecord) -> None:
        try:
            found = self._advance(record)
            postponed = await self._carry_out(record, found)
        except Gone:
            self._mailbox.poke_later(record.key, COALESCE_S)
            return
        except Conflict as error:
            self._log.info("job_changed_meanwhile", job=record.key, reason=str(error))
            self._mailbox.poke_later(record.key, 0.0)
            return
        except Rejected as error:
            self._refused(record, error)
            raise Retryable(str(error)) from error
        record.refusals = 0
        self._tell_waiting(record)
        record.forget(found.answered)
        record.delayed = found.delayed
        self._next_look(record, found, postponed=postponed)

    def _advance(self, record: JobRecord) -> Pass:
        try:
            return advance(
                self._replica.facts_of(record),
                tuple(record.requests.values()),
                record.delayed,
                now=self._clock.now(),
            )
        except PluginFailed as error:
            raise Rejected(str(error), field="spec.plugins") from error

    def _tell_waiting(self, record: JobRecord) -> None:
        """Say on the job why its PodGroup does not get on (J34); the same reason once."""
        alive = record.job.status.state.phase in ALIVE
        said = why_pending(record.group) if alive else None
        if said is not None and said.reason != record.told_pending:
            group = record.key.replace("/", ":")
            message = f"PodGroup {group} {said.type.lower()}, reason: {said.message}"
            self._recorder.tell(record.job, "PodGroupPending", message, warning=True)
        record.told_pending = said.reason if said is not None else ""

    def _next_look(self, record: JobRecord, found: Pass, *, postponed: bool) -> None:
        if found.again:
            self._mailbox.poke_later(record.key, 0.0)
        if postponed:
            waited_s = self._clock.monotonic() - record.counts_wait_since
            left_s = patience_s(self._mailbox.backlog) - waited_s
            self._mailbox.poke_later(record.key, max(0.0, left_s))
        if found.delayed:
            due = min(delayed.due for delayed in found.delayed)
            self._mailbox.poke_later(record.key, max(0.0, due - self._clock.now()))

    async def _carry_out(self, record: JobRecord, found: Pass) -> bool:
        """Carry out all stages; returns whether a write of counts was put off."""
        postponed = False
        if not any(isinstance(e, effects.WriteStatus) for stage in found.stages for e in stage):
            record.counts_wait_since = float("inf")
        for stage in found.stages:
            kept = []
            for effect in stage:
                if self._may_wait(record, effect):
                    postponed = True
                else:
                    kept.append(effect)
            await self._writer.stage(record, kept)
            self._after(record, kept)
        return postponed

    def _may_wait(self, record: JobRecord, effect: effects.Effect) -> bool:
        if not isinstance(effect, effects.WriteStatus) or effect.urgent:
            return False
        now = self._clock.monotonic()
        record.counts_wait_since = min(record.counts_wait_since, now)
        return now - record.counts_wait_since < patience_s(self._mailbox.backlog)

    def _after(self, record: JobRecord, stage: list[effects.Effect]) -> None:
        if any(isinstance(effect, effects.DeletePod) for effect in stage):
            self._faults.point("controller.after-kill")
        if any(isinstance(effect, effects.CreateGroup) for effect in stage):
            self._faults.point("controller.after-group")
        if any(isinstance(effect, effects.MarkPod) for effect in stage):
            self._faults.point("controller.after-mark")
        for effect in stage:
            if isinstance(effect, effects.WriteStatus) and effect.status.state.phase != effect.was:
                self._faults.point("controller.after-status")
                self._phase_changed(record, effect)
            elif isinstance(effect, effects.CreatePods):
                self._pods_made(record, effect)

    def _phase_changed(self, record: JobRecord, effect: effects.WriteStatus) -> None:
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
        self._events.phase(record.job, was=was, status=effect.status)

    def _pods_made(self, record: JobRecord, effect: effects.CreatePods) -> None:
        """Observe how long after their job pods were created, in whole seconds as theirs (J36)."""
        begun = record.job.metadata.creation_timestamp
        made = (pod_name(record.job, effect.forge.task, index) for index in effect.indexes)
        created = Counter(record.pods[name].created for name in made if name in record.pods)
        for text, pods in created.items():
            if begun and text:
                millis = max(0.0, time.parse(text) - time.parse(begun)) * 1000.0
                for _ in range(pods):
                    self._metrics.to_pods.observe(millis)

    def _refused(self, record: JobRecord, error: Rejected) -> None:
        """Count what will not succeed by trying again; in the end give the job up (J13)."""
        record.refusals += 1
        self._log.warning("job_refused", job=record.key, times=record.refusals, reason=str(error))
        if self._max_refusals < 0 or record.refusals <= self._max_refusals:
            return
        message = f"Job failed for retry limit reached, after {record.refusals} refusals: {error}"
        self._recorder.tell(record.job, "ExecuteAction", message, warning=True)
        record.add(
            [
                Request(
                    event=JobEvent.COMMAND_ISSUED,
                    job_uid=record.uid,
                    version=record.job.status.version,
                    action=Action.TERMINATE_JOB,
                )
            ]
        )
