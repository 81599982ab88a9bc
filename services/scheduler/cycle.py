"""The scheduler's loop: take facts, fold, decide, publish.

Last step of the flow "watch event → scheduler", and first of "bind → POST". `Scheduler._step` folds
the received facts, `_run_cycle` decides in a thread and publishes the decision. A new leader first
recovers the assumptions of the previous one (`_recover`).

A cycle starts after a change (debounced, at least `min_period` after the start of the last one),
and at the latest after `schedule_period`. No cycle starts while STATE is not synced, or while
another installation holds the cluster's Lease (`InstallationLeadership`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import msgspec

from services.scheduler.adapters.conf_file import ConfFile
from services.scheduler.adapters.dumper import Dumper
from services.scheduler.adapters.feed import Gathered, Inbox, OutcomeFeed, PastUsageFeed, StateFeed
from services.scheduler.adapters.publish import PlanPublisher, WaitPublisher
from services.scheduler.adapters.report import Report
from services.scheduler.adapters.watchdog import Watchdog
from services.scheduler.decision import Decision, FoldFailure
from services.scheduler.engine.session.exclusions import Exclusion
from services.scheduler.engine.state.local_uids import local_uids
from services.scheduler.scheduler_state import SchedulerState
from services.scheduler.settings import SchedulerSettings
from shared.contracts.versions import UnknownVersion
from shared.election.installation import InstallationLeadership
from shared.election.leader_elector import LeaderElector, LeadershipTerm
from shared.runtime.backoff import Backoff
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.quarantine import describe
from shared.runtime.tasks import TaskGroup, in_thread, sleep_or_event

T = TypeVar("T")
NEVER: Final = -1
_FOLD: Final = "fold"
_DECIDE: Final = "decide"
_DECIDED: Final = ("podgroups", "queues", "actions")
RETRY_S: Final = 0.2
REST: Final = 1.0
"""Pause after a cycle as a multiple of its duration: cycles use at most half of a core."""
LONG_REST: Final = 3.0
LONG_REST_MAX_S: Final = 0.1
"""The same for short cycles, up to `LONG_REST_MAX_S`.

A busy cluster changes all the time, and pods start sooner if the API server gets the cores."""


def rest_s(cycle_s: float) -> float:
    """Return the pause in seconds after a cycle that took `cycle_s` seconds."""
    return max(REST * cycle_s, min(LONG_REST * cycle_s, LONG_REST_MAX_S))


class SchedulerInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Where the scheduler's knowledge of the cluster, and its configuration, come from."""

    inbox: Inbox
    state: StateFeed
    outcomes: OutcomeFeed
    past_usage: PastUsageFeed
    conf: ConfFile


class SchedulerOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """Where decisions, and reports on them, go."""

    publisher: PlanPublisher
    explained: WaitPublisher
    report: Report
    dumper: Dumper


class Scheduler:
    """Runs scheduling cycles while it leads; a standby only folds facts to stay current."""

    name: Final = "scheduler"

    def __init__(
        self,
        *,
        settings: SchedulerSettings,
        scheduler_state: SchedulerState,
        inputs: SchedulerInputs,
        outputs: SchedulerOutputs,
        watchdog: Watchdog,
        elector: LeaderElector,
        installation: InstallationLeadership,
        env: Env,
    ) -> None:
        self._settings = settings
        self._scheduler_state = scheduler_state
        self._watchdog = watchdog
        self._inbox = inputs.inbox
        self._state = inputs.state
        self._outcomes = inputs.outcomes
        self._past_usage = inputs.past_usage
        self._conf = inputs.conf
        self._publisher = outputs.publisher
        self._explained = outputs.explained
        self._report = outputs.report
        self._dumper = outputs.dumper
        self._elector = elector
        self._installation = installation
        self._decided_in = ""
        """The installation's leadership term of the last cycle."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scheduler")
        self._quarantine = env.quarantine
        self._backoff = Backoff(first_s=0.2, rng=env.rng)
        self._failed_facts: set[tuple[str, str]] = set()
        """(Kind, key) of the objects whose last fact could not be folded."""
        self._deciding = False
        """Whether the current step decides. A decision rolls back its own changes on an error."""
        self._faults = env.faults
        self._clock = env.clock
        self._log = env.log
        self._cycle = 0
        self._recovered_epoch = NEVER
        self._cycle_s = 0.0
        """Duration of the last step in seconds; 0 if it ran no cycle."""
        self._following = asyncio.Event()
        self._following.set()
        self._busy = asyncio.Lock()

    async def run(self) -> None:
        """Alternate between standby and leader until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._stand_by(), name="stand-by")
            tasks.create_task(self._elector.run(self._lead), name="leadership")

    async def _stand_by(self) -> None:
        """Fold facts while another scheduler leads."""
        while True:
            await self._following.wait()
            await self._inbox.changed.wait()
            if self._following.is_set():
                async with self._busy:
                    failed = await self._isolated(self._fold)
                wait_s = self._backoff.next_s() if failed else self._settings.min_period
                await self._clock.sleep(wait_s)

    async def _lead(self, term: LeadershipTerm) -> None:
        """Run cycles until the term ends."""
        self._recovered_epoch = NEVER
        self._following.clear()
        self._report.leading(leads=True)
        self._watchdog.leads = True
        try:
            while True:
                started = self._clock.monotonic()
                try:
                    async with self._busy:
                        failed = await self._isolated(lambda: self._step(term))
                except Retryable as error:
                    self._report.delayed(str(error))
                    await self._clock.sleep(RETRY_S)
                else:
                    self._report.delayed(failed)
                    if failed:
                        await self._clock.sleep(self._backoff.next_s())
                        continue
                    self._backoff.reset()
                await self._wait_for_change(started)
        finally:
            self._report.leading(leads=False)
            self._watchdog.leads = False
            self._explained.forget()
            self._following.set()

    async def _isolated(self, work: Callable[[], Awaitable[None]]) -> str:
        """Run one step; return the text of an unexpected error, "" if there was none (ADR 19).

        A step with an error decides nothing. COMMAND and OUTCOME are read again, and also STATE if
        the cluster state may be inconsistent.
        """
        name = self._settings.scheduler_name[0]
        with self._quarantine.isolate("cycles", name, stage="cycle") as isolated:
            await work()
        if isolated.error is None and self._scheduler_state.is_consistent:
            return ""
        self._recovered_epoch = NEVER
        if not self._scheduler_state.is_consistent or not self._deciding:
            self._log.warning("state_read_again", reason="the cluster state is inconsistent")
            self._state.resync()
        if isolated.error is None:
            return "the cluster state is read again"
        self._report.skipped()
        return f"the last cycle failed: {describe(isolated.error)}"

    async def _step(self, term: LeadershipTerm) -> None:
        """Fold; then run a cycle if STATE is synced and this installation holds the Lease."""
        self._deciding = False
        self._cycle_s = 0.0
        begun = self._clock.monotonic()
        await self._fold()
        if not self._scheduler_state.is_consistent:
            return
        if not self._state.synced.is_set() or not self._installation.held:
            return
        if self._resync_if_another_led():
            return
        if self._state.epoch != self._recovered_epoch:
            await self._recover()
            begun = self._clock.monotonic()
        if self._state.synced.is_set() and self._state.epoch == self._recovered_epoch:
            await self._run_cycle(term)
            self._cycle_s = self._clock.monotonic() - begun

    def _resync_if_another_led(self) -> bool:
        """Read STATE again if another installation has led since the last cycle; return whether.

        Binders refuse intents from before such a change, so their assumptions are wrong.
        """
        before, self._decided_in = self._decided_in, self._installation.term
        if before in ("", self._decided_in):
            return False
        self._log.info("state_read_again", reason="another installation was in charge meanwhile")
        self._state.resync()
        return True

    async def _wait_for_change(self, started: float) -> None:
        """Wait for a change, then pause in proportion to the duration of the last cycle."""
        ended = self._clock.monotonic()
        if await sleep_or_event(self._clock, self._settings.schedule_period, self._inbox.changed):
            next_start = max(started + self._settings.min_period, ended + rest_s(self._cycle_s))
            left = next_start - self._clock.monotonic()
            await self._clock.sleep(max(self._settings.debounce, left))

    async def _recover(self) -> None:
        """Load the quarantine, and assume the intents of the previous leader.

        COMMAND is read before OUTCOME: an intent that finishes between the two reads is then in
        both, and never in neither.
        """
        epoch = self._state.epoch
        await self._watchdog.load()
        try:
            unfinished = await self._publisher.unfinished()
        except UnknownVersion as error:
            raise Retryable(
                f"COMMAND holds what only a newer scheduler can read: {error}"
            ) from error
        await self._past_usage.caught_up.wait()
        recent = await self._outcomes.read_up_to(await self._publisher.last_outcome())
        await self._fold()
        assumed = await self._in_thread(lambda: self._scheduler_state.recover(unfinished, recent))
        self._recovered_epoch = epoch
        self._log.info(
            "assumptions_recovered",
            unfinished=len(unfinished),
            outcomes=len(recent),
            assumed=assumed,
        )

    async def _run_cycle(self, term: LeadershipTerm) -> None:
        self._cycle += 1
        cycle, token, installation_term = self._cycle, term.number, self._installation.term
        now, config = self._clock.now(), self._conf.config
        begun = self._clock.monotonic()
        self._scheduler_state.set_leadership_term(self._installation.signature)
        memory = (
            await self._in_thread(self._scheduler_state.memory) if self._dumper.is_due else None
        )
        self._deciding = True
        decide = partial(
            self._scheduler_state.decide,
            config,
            now=now,
            cycle=cycle,
            token=token,
            quarantined=self._watchdog.quarantined(),
        )
        decision = await self._in_thread(lambda: self._watchdog.watch(decide))
        self._deciding = False
        self._quarantine_excluded(decision.exclusions)
        if memory is not None:
            self._dumper.take(config, memory, now=now, plan=decision.full_plan)
        decided = self._clock.monotonic()
        for group in decision.expired_reservations:
            self._log.warning(
                "reservation_returned", group=group, reason="it did not start in time"
            )
        if decision.commands:
            self._faults.point("scheduler.before-publish")
        await self._publish(decision, term, installation_term, begun=now)
        self._explained.enqueue(decision.explained)
        published = self._clock.monotonic()
        self._report.cycle(
            decision.plan,
            decide_s=decided - begun,
            publish_s=published - decided,
            unschedulable=decision.unschedulable,
        )
        self._report.sample(decision, now=now)

    async def _publish(
        self, decision: Decision, term: LeadershipTerm, installation_term: str, *, begun: float
    ) -> None:
        if decision.is_empty:
            self._report.events(decision, term=term.number, begun=begun)
            return
        published = await self._publisher.publish(decision, term, installation_term)
        if published.refused:
            refused = published.refused
            await self._in_thread(lambda: self._scheduler_state.withdraw(refused))
        if published.superseded is not None:
            raise published.superseded
        if published.statuses:
            await self._in_thread(lambda: self._scheduler_state.assume_statuses(decision.plan))
        self._report.events(decision, term=term.number, begun=begun)

    async def _fold(self) -> None:
        gathered = self._inbox.take()
        if gathered.forget:
            self._recovered_epoch = NEVER
        self._dumper.folded(gathered)
        self._watchdog.observe(gathered.facts)
        failures = await self._in_thread(lambda: self._fold_in(gathered))
        self._report_failures(gathered, failures)
        self._publisher.folded(gathered.facts)
        self._report.folded(len(gathered.facts), len(failures), self._scheduler_state.assumed)
        await self._state.audit(
            lambda: self._in_thread(lambda: local_uids(self._scheduler_state.cluster_state))
        )

    def _report_failures(self, gathered: Gathered, failures: Sequence[FoldFailure]) -> None:
        """Quarantine the objects that could not be folded, and release those that could."""
        if gathered.forget:
            self._quarantine.begin_anew(stage=_FOLD)
            self._failed_facts.clear()
        if self._failed_facts:
            bad = {(failure.kind, failure.key) for failure in failures}
            for at in (
                self._failed_facts.intersection((f.kind, f.key) for f in gathered.facts) - bad
            ):
                self._quarantine.handled(*at, stage=_FOLD)
                self._failed_facts.discard(at)
        for failure in failures:
            self._quarantine.failed(
                failure.kind, failure.key, stage=_FOLD, error=failure.reason, uid=failure.uid
            )
            self._failed_facts.add((failure.kind, failure.key))

    def _quarantine_excluded(self, exclusions: Sequence[Exclusion]) -> None:
        """Quarantine the objects that the cycle excluded, and release the others."""
        for exclusion in exclusions:
            self._quarantine.failed(
                exclusion.kind,
                exclusion.key,
                stage=_DECIDE,
                error=exclusion.error,
                uid=exclusion.uid,
            )
        for kind in _DECIDED:
            keys = {exclusion.key for exclusion in exclusions if exclusion.kind == kind}
            self._quarantine.keep_only(kind, keys, stage=_DECIDE)

    def _fold_in(self, gathered: Gathered) -> list[FoldFailure]:
        """Fold what was received; runs in the worker thread."""
        if gathered.forget:
            self._scheduler_state.forget()
        failures = self._scheduler_state.fold(gathered.facts)
        self._scheduler_state.outcomes(gathered.outcomes)
        return failures

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in the one worker thread."""
        return await in_thread(self._executor, work)
