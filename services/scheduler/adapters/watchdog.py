"""Watches decisions: quarantines objects that take too long, and ends a stuck process.

A decision runs in the worker thread; this part watches it from the event loop, which runs every few
milliseconds. It sums the processor time of the thread per object, because the wall time of a
process that was frozen, or had no processor, would blame the wrong object. An object that takes the
whole budget of a decision is quarantined: in a file for the next process of this pod, on the bus
for standbys and other pods. When the decision takes longer than its limit, `/livez` fails.

A call that never lets other threads in stops this part as well, and the health pages with it. For
that case, and where no kubelet asks for `/livez`, a timer outside of Python ends the process
(`faulthandler`), with the stacks of all threads on stderr. The next process finds the last
object in the marker.
"""

import faulthandler
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

import msgspec

from pumice.events import GangUnschedulable
from services.scheduler.adapters.marker import WatchdogFiles
from services.scheduler.engine.progress import IDLE, Progress, Step
from services.scheduler.engine.session.session import QUARANTINE
from services.scheduler.overruns import LONGEST_S, OverrunEntry, OverrunQuarantine, decode, encode
from shared.api.kinds import PODGROUP
from shared.bus.event_publisher import EventPublisher
from shared.bus.nats import NatsBus
from shared.contracts.messages import Fact
from shared.runtime.errors import Retryable
from shared.runtime.service import Context

T = TypeVar("T")
EVERY_S: Final = 0.25
SLOW_S: Final = 1.0
"""Time in one step from which a death in it is no accident."""
LAST_RESORT: Final = 0.5
"""Time beyond the limit, in limits, after which the process is ended from within: a kubelet is
faster."""
_TTL_S: Final = int(2 * LONGEST_S)
_PLUGINS: Final = "services.scheduler.policy.plugins."
_GUARD: Final = ("pumice.plugins.guarding", "attempt")
_OURS: Final = ("services.scheduler.", "pumice.plugins.")


ThreadClock = Callable[[], float | None]
"""Returns the processor time of one thread in seconds to any thread; None where it is unknown."""


def thread_clock() -> ThreadClock:
    """Return the clock of the calling thread."""
    if sys.platform == "darwin":
        return lambda: None
    number = time.pthread_getcpuclockid(threading.get_ident())

    def processor_s() -> float | None:
        try:
            return time.clock_gettime(number)
        except OSError:  # the thread has ended
            return None

    return processor_s


class DecisionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How long a decision may take, in seconds; 0 is no bound."""

    budget_s: float = 5.0
    limit_s: float = 60.0


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Where the entries are on the bus."""

    bus: NatsBus
    stream: str
    subject: str


class Watchdog:
    """A part of the service; `watch` is called in the worker thread."""

    name: Final = "watchdog"

    def __init__(
        self,
        budget: DecisionBudget,
        *,
        marker: WatchdogFiles,
        shared: Shared,
        event_publisher: EventPublisher,
        context: Context,
        thread_clock: Callable[[], ThreadClock] = thread_clock,
    ) -> None:
        self._budget = budget
        self._thread_clock = thread_clock
        self._processor_s: ThreadClock = lambda: None
        self._marker = marker
        self._shared = shared
        self._publisher = shared.bus.publisher(shared.stream)
        self._event_publisher = event_publisher
        self._clock = context.clock
        self._log = context.log
        self.progress: Final = Progress(marker)
        self.quarantine: Final = OverrunQuarantine(marker.found)
        self.leads = False
        """Whether this process decides: a standby may know less than what is on the bus."""
        self._stored = -1
        self._not_stored = ""
        """Why the file does not hold the present entries; it is tried again at each check."""
        self._published = -1
        self._begun: float | None = None
        self._checked: float | None = None
        """When the decision began that was checked last."""
        self._thread = 0
        self._spent: dict[str, float] = defaultdict(float)
        """Seconds of a processor that the present decision has spent on each PodGroup."""
        self._used: float | None = None
        """Processor time of the deciding thread at the last check."""
        self._reported: set[str] = set()
        self._slow = context.metrics.counter(
            "pumice_scheduler_slow_decisions", "Decisions that took longer than their budget"
        )
        self._quarantines = context.metrics.counter(
            "pumice_scheduler_quarantines",
            "Quarantines of objects whose handling took too long",
            ["stage"],
        )
        context.liveness.add(self._stuck)
        if marker.failure:
            self._log.warning("handling_not_marked", reason=marker.failure)
        if marker.died_at.kind == PODGROUP.token:
            self._note_death(marker.died_at, was_slow=marker.was_slow)

    def watch(self, work: Callable[[], T]) -> T:
        """Decide in the worker thread, watched."""
        self._thread = threading.get_ident()
        self._processor_s = self._thread_clock()
        self._begun = self._clock.monotonic()
        if self._budget.limit_s:
            faulthandler.dump_traceback_later(self._budget.limit_s * (1 + LAST_RESORT), exit=True)
        try:
            return work()
        finally:
            if self._budget.limit_s:
                faulthandler.cancel_dump_traceback_later()
            self._begun = None
            self.progress.begin(IDLE)

    async def run(self) -> None:
        """Check the present decision four times a second until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            self._check()
            await self.store()

    async def load(self) -> None:
        """Store what other processes have quarantined; before the first cycle of a term.

        Raises Retryable.
        """
        found = await self._shared.bus.last(self._shared.stream, self._shared.subject)
        if found is not None:
            self.quarantine.merge(decode(found.payload))

    def quarantined(self) -> dict[str, str]:
        """Return the jobs that are to be left out of the next decision, with reasons."""
        now = self._clock.now()
        self.quarantine.review(now)
        return self.quarantine.jobs(now)

    def observe(self, facts: list[Fact]) -> None:
        """Release objects that their owners have changed."""
        self.quarantine.observe(facts, now=self._clock.now())

    async def store(self) -> None:
        """Store the entries in the file, and on the bus, if they have changed.

        A standby publishes once: what its predecessor in this pod has found.
        """
        changes, entries = self.quarantine.changes, self.quarantine.entries()
        if changes != self._stored:
            try:
                self._marker.store(entries)
            except OSError as error:
                if str(error) != self._not_stored:
                    self._log.warning("quarantine_not_stored", reason=str(error))
                self._not_stored = str(error)
            else:
                self._stored, self._not_stored = changes, ""
        if self._published >= 0 and not self.leads:
            return
        if changes != self._published and (entries or self._published >= 0):
            try:
                if self._published < 0:
                    await self.load()
                    changes, entries = self.quarantine.changes, self.quarantine.entries()
                await self._publisher.publish(self._shared.subject, encode(entries), ttl_s=_TTL_S)
            except Retryable as error:
                self._log.info("quarantine_not_published", reason=str(error))
                return
        self._published = changes

    def _check(self) -> None:
        begun, step = self._begun, self.progress.step
        if begun != self._checked:
            # Short decisions follow each other without a check in the pause between them.
            self._checked = begun
            self._spent.clear()
            self._reported.clear()
            self._used = None
        if begun is None:
            return
        took_s = self._clock.monotonic() - begun
        before, self._used = self._used, self._processor_s()
        used_s = EVERY_S  # since the last check, where no clock says more
        if self._used is not None:
            used_s = min(EVERY_S, self._used - before) if before is not None else 0.0
        spent_s = 0.0
        if step.kind == PODGROUP.token:
            self._spent[step.key] += used_s
            spent_s = self._spent[step.key]
            if spent_s >= SLOW_S:
                self._marker.note_slow()
        if not self._budget.budget_s or took_s < self._budget.budget_s:
            return
        plugin, place = _where(self._thread)
        if "decision" not in self._reported:
            self._reported.add("decision")
            self._slow.inc()
            self._log.error(
                "decision_slow",
                seconds=round(took_s, 1),
                spent_on_object_s=round(spent_s, 1),
                stage=step.stage,
                kind=step.kind,
                key=step.key,
                plugin=plugin,
                place=place,
            )
        if step.key not in self._reported and spent_s >= self._budget.budget_s - 2 * EVERY_S:
            self._reported.add(step.key)
            self._put(step, plugin, f"took {spent_s:.0f} s and longer")

    def _put(self, step: Step, plugin: str, why: str) -> None:
        entry = self.quarantine.put(step, plugin=plugin, why=why, now=self._clock.now())
        self._report(entry)

    def _report(self, entry: OverrunEntry) -> None:
        self._quarantines.labels(entry.stage).inc()
        self._log.error(
            "object_quarantined",
            kind=entry.kind,
            key=entry.key,
            stage=entry.stage,
            plugin=entry.plugin,
            offences=entry.offences,
            reason=entry.reason,
        )
        event = GangUnschedulable(
            gang=entry.key, uid=entry.uid, gate=QUARANTINE, message=entry.reason
        )
        self._event_publisher.publish(
            event, f"quarantined/{entry.uid or entry.key}/{entry.until:.0f}"
        )

    def _note_death(self, step: Step, *, was_slow: bool) -> None:
        now = self._clock.now()
        self._log.warning(
            "died_while_deciding", stage=step.stage, kind=step.kind, key=step.key, slow=was_slow
        )
        if was_slow:
            already = {(e.kind, e.key) for e in self.quarantine.entries() if e.until > now}
            if (step.kind, step.key) not in already:
                self._put(step, "", "was slow when a process died")
        else:
            entry = self.quarantine.note_death(step, now=now)
            if entry.until > now:
                self._report(entry)

    def _stuck(self) -> str:
        """Return why the process should be restarted, "" if it should not."""
        begun, step = self._begun, self.progress.step
        took_s = self._clock.monotonic() - begun if begun is not None else 0.0
        if not self._budget.limit_s or took_s < self._budget.limit_s:
            return ""
        return f"a decision takes {took_s:.0f} s: {step.stage} {step.kind} {step.key}".rstrip()


def _where(thread: int) -> tuple[str, str]:
    """Return in which plugin, and at which place of ours, a thread is at this moment."""
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the way to ask
    plugin = place = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not place and module.startswith(_OURS):
            place = f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        if not plugin and module.startswith(_PLUGINS):
            plugin = module.removeprefix(_PLUGINS)
        elif not plugin and (module, frame.f_code.co_name) == _GUARD:
            blame = str(getattr(frame.f_locals.get("self"), "blame", ""))
            plugin = blame.removeprefix("plugin ").removesuffix(" failed")
        frame = frame.f_back
    return plugin, place
