"""The leader's loop: gather, fold and decide in a thread, publish; recover before the first cycle.

A cycle starts when something changed (after a short debounce and not sooner than `min_period`
after the last one began) and at the latest after `schedule_period`. No cycle starts while STATE
is not synced.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from services.scheduler.adapters.conf_file import ConfFile
from services.scheduler.adapters.dumper import Dumper
from services.scheduler.adapters.feed import OutcomeFeed, StateFeed
from services.scheduler.adapters.inbox import Gathered, Inbox
from services.scheduler.adapters.publish import PlanPublisher
from services.scheduler.adapters.report import Report
from services.scheduler.settings import SchedulerSettings
from services.scheduler.worker import Decision, Trouble, Worker
from shared.bus.leader import Leadership, Term
from shared.contracts.versions import UnknownVersion
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger
from shared.runtime.tasks import sleep_or_event

T = TypeVar("T")
NEVER: Final = -1
RETRY_S: Final = 0.2
REST: Final = 1.0
"""A cycle is followed by a rest at least as long as itself: cycles take at most half of a core."""
LONG_REST: Final = 3.0
LONG_REST_MOST_S: Final = 0.1
"""Short cycles rest three times as long as they took: a busy cluster changes all the time, and what
the API server does with the cores is what the work waits for."""


def rest_s(cycle_s: float) -> float:
    """Return how long to rest after a cycle that took `cycle_s`, both in seconds."""
    return max(REST * cycle_s, min(LONG_REST * cycle_s, LONG_REST_MOST_S))


class Scheduler:
    """Leads when it can; a standby folds facts all the same, so that its replica is hot."""

    name: Final = "scheduler"

    def __init__(
        self,
        *,
        settings: SchedulerSettings,
        worker: Worker,
        inbox: Inbox,
        state: StateFeed,
        outcomes: OutcomeFeed,
        conf: ConfFile,
        publisher: PlanPublisher,
        leadership: Leadership,
        report: Report,
        dumper: Dumper,
        executor: Executor,
        faults: Faults,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._inbox = inbox
        self._state = state
        self._outcomes = outcomes
        self._conf = conf
        self._publisher = publisher
        self._leadership = leadership
        self._report = report
        self._dumper = dumper
        self._executor = executor
        self._faults = faults
        self._clock = clock
        self._log = log
        self._cycle = 0
        self._recovered_epoch = NEVER
        self._following = asyncio.Event()
        self._following.set()
        self._busy = asyncio.Lock()

    async def run(self) -> None:
        """Stand by and lead, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stand_by(), name="stand-by")
            tasks.create_task(self._leadership.run(self._lead), name="leadership")

    async def _stand_by(self) -> None:
        """Fold what comes while somebody else leads."""
        while True:
            await self._following.wait()
            await self._inbox.changed.wait()
            if self._following.is_set():
                async with self._busy:
                    await self._fold()
                await self._clock.sleep(self._settings.min_period)

    async def _lead(self, term: Term) -> None:
        """Run cycles until the term ends."""
        self._recovered_epoch = NEVER
        self._following.clear()
        self._report.leading(leads=True)
        try:
            while True:
                started = self._clock.monotonic()
                try:
                    async with self._busy:
                        await self._step(term)
                except Retryable as error:
                    self._report.delayed(str(error))
                    await self._clock.sleep(RETRY_S)
                else:
                    self._report.delayed("")
                await self._wait_for_change(started)
        finally:
            self._report.leading(leads=False)
            self._following.set()

    async def _step(self, term: Term) -> None:
        """Fold, and decide if what is known is the whole world."""
        await self._fold()
        if not self._state.synced.is_set():
            return
        if self._state.epoch != self._recovered_epoch:
            await self._recover()
        if self._state.synced.is_set() and self._state.epoch == self._recovered_epoch:
            await self._run_cycle(term)

    async def _wait_for_change(self, started: float) -> None:
        """Wait for a change, then gather more for a moment, the longer the last cycle took."""
        ended = self._clock.monotonic()
        if await sleep_or_event(self._clock, self._settings.schedule_period, self._inbox.changed):
            next_start = max(started + self._settings.min_period, ended + rest_s(ended - started))
            left = next_start - self._clock.monotonic()
            await self._clock.sleep(max(self._settings.debounce, left))

    async def _recover(self) -> None:
        """Read COMMAND, then OUTCOME, and assume what whoever led before has asked for."""
        epoch = self._state.epoch
        try:
            unfinished = await self._publisher.unfinished()
        except UnknownVersion as error:
            raise Retryable(
                f"COMMAND holds what only a newer scheduler can read: {error}"
            ) from error
        recent = await self._outcomes.read_up_to(await self._publisher.last_outcome())
        await self._fold()
        assumed = await self._in_thread(lambda: self._worker.recover(unfinished, recent))
        self._recovered_epoch = epoch
        self._log.info(
            "assumptions_recovered",
            unfinished=len(unfinished),
            outcomes=len(recent),
            assumed=assumed,
        )

    async def _run_cycle(self, term: Term) -> None:
        self._cycle += 1
        cycle, token = self._cycle, term.number
        now, config = self._clock.now(), self._conf.config
        begun = self._clock.monotonic()
        believed = await self._in_thread(self._worker.beliefs) if self._dumper.is_due else None
        decision = await self._in_thread(
            lambda: self._worker.decide(config, now=now, cycle=cycle, token=token)
        )
        if believed is not None:
            self._dumper.take(config, believed, now=now, plan=decision.whole)
        decided = self._clock.monotonic()
        for group in decision.lapsed:
            self._log.warning("reservation_returned", group=group, reason="its pods did not come")
        if decision.commands:
            self._faults.point("scheduler.before-publish")
        await self._publish(decision, term)
        published = self._clock.monotonic()
        self._report.cycle(decision.plan, decide_s=decided - begun, publish_s=published - decided)
        self._report.noticed(decision, now=now)

    async def _publish(self, decision: Decision, term: Term) -> None:
        if decision.plan.is_empty:
            self._report.events(decision.plan, term=term.number)
            return
        published = await self._publisher.publish(decision, term)
        if published.refused:
            refused = published.refused
            await self._in_thread(lambda: self._worker.withdraw(refused))
        if published.usurped is not None:
            raise published.usurped
        if published.statuses:
            await self._in_thread(lambda: self._worker.adopt(decision.plan))
        self._report.events(decision.plan, term=term.number)

    async def _fold(self) -> None:
        gathered = self._inbox.take()
        if gathered.forget:
            self._recovered_epoch = NEVER
        self._dumper.folded(gathered)
        troubles = await self._in_thread(lambda: self._fold_in(gathered))
        for trouble in troubles:
            self._log.warning(
                "fact_not_usable", kind=trouble.kind, key=trouble.key, reason=trouble.reason
            )
        self._report.folded(len(gathered.facts), len(troubles), self._worker.assumed)

    def _fold_in(self, gathered: Gathered) -> list[Trouble]:
        """Fold in the worker's thread."""
        if gathered.forget:
            self._worker.forget()
        troubles = self._worker.fold(gathered.facts)
        self._worker.outcomes(gathered.outcomes)
        return troubles

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in the one worker thread and wait for its end, cancelled or not.

        A cancelled cycle must not leave a thread behind that still changes the replica.
        """
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
