"""The owner of the mirror: folds facts into it, and runs one query on it at a time.

The mirror belongs to one thread, as the scheduler's cluster state does (ADR 6). Folds and
queries take turns in it; a query that changes the mirror undoes that before its turn ends.

Without queries, the bus is read in batches, and after ten minutes not at all (`shared.bus.pace`).
The next query then waits until all messages are folded that the bus had when it arrived.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, TypeVar

from services.scheduler.adapters.feed import Gathered, Inbox, StateFeed
from services.scheduler.decision import FoldFailure
from services.scheduler.engine.journal import BrokenOff
from services.scheduler.engine.state.local_uids import local_uids
from services.visibility.queries.cluster_mirror import ClusterMirror
from shared.bus.pace import Pace
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.tasks import in_thread

T = TypeVar("T")
FOLD_EVERY_S: Final = 0.1
"""Facts are gathered for so long: a busy cluster changes all the time."""
WAITING_MAX: Final = 64
"""Queries that may wait for their turn; more are refused with 429."""
_RETRY_AFTER_S: Final = 1.0
_STAGE: Final = "fold"


class MirrorOwner:
    """Owns the mirror and its thread; a part of the service."""

    name: Final = "mirror"

    def __init__(
        self,
        mirror: ClusterMirror,
        *,
        inbox: Inbox,
        state: StateFeed,
        pace: Pace,
        executor: Executor,
        env: Env,
    ) -> None:
        self._mirror = mirror
        self._inbox = inbox
        self._state = state
        self.pace: Final = pace
        self._executor = executor
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._log = env.log
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._folded_epoch = -1
        """The epoch of STATE that was folded up to its marker."""

    @property
    def version(self) -> int:
        """Return a number that changes with each change of the mirror."""
        return self._mirror.version

    async def run(self) -> None:
        """Fold until cancelled."""
        while True:
            await self._inbox.changed.wait()
            async with self._turn:
                await self._fold()
            await self._clock.sleep(FOLD_EVERY_S)

    def follow_closely(self) -> None:
        """Read each message as it comes for a while: a reader waits for changes."""
        self.pace.read_live()

    async def query(self, work: Callable[[ClusterMirror], T]) -> T:
        """Return what `work` finds in the cluster as the bus has it now.

        It runs in the mirror's thread when its turn has come. Raises Retryable while the cluster
        is not known, or when too many others wait.
        """
        if self._waiting >= WAITING_MAX:
            raise Retryable("too many queries wait", retry_after_s=_RETRY_AFTER_S)
        self._waiting += 1
        try:
            self.pace.read_live()
            if not self.pace.resumes:
                self._require_synced()
            await self.pace.caught_up()
            async with self._turn:
                if self._inbox.changed.is_set():
                    await self._fold()
                return await self._work(work)
        finally:
            self._waiting -= 1

    async def peek(self, work: Callable[[ClusterMirror], T]) -> T:
        """Return what `work` finds in what is folded so far, for work that no user waits for.

        Raises Retryable while the cluster is not known.
        """
        await self.pace.settled()
        async with self._turn:
            return await self._work(work)

    async def _work(self, work: Callable[[ClusterMirror], T]) -> T:
        self._require_synced()
        found = await self._in_thread(lambda: work(self._mirror))
        self._require_consistent()
        return found

    def _require_synced(self) -> None:
        if not self._state.synced.is_set() or self._folded_epoch != self._state.epoch:
            raise Retryable(
                "the state of the cluster is not synced yet", retry_after_s=_RETRY_AFTER_S
            )

    def _require_consistent(self) -> None:
        if not self._mirror.is_consistent:
            self._resync()
            raise Retryable("the state of the cluster is read again", retry_after_s=_RETRY_AFTER_S)

    def _resync(self) -> None:
        self._log.warning("state_read_again", reason="the cluster state is inconsistent")
        self._state.resync("the cluster state is inconsistent")

    async def _fold(self) -> None:
        synced, epoch = self._state.synced.is_set(), self._state.epoch
        gathered = self._inbox.take()
        failures = await self._in_thread(lambda: self._fold_in(gathered))
        self._report_failures(gathered, failures)
        if not self._mirror.is_consistent:
            self._resync()
        elif synced:
            self._folded_epoch = epoch
            await self._state.audit(lambda: self._in_thread(lambda: local_uids(self._mirror.state)))

    def _fold_in(self, gathered: Gathered) -> list[FoldFailure]:
        if gathered.forget:
            self._mirror.forget()
        failures = self._mirror.fold(gathered.facts)
        self._mirror.outcomes(gathered.outcomes)
        return failures

    def _report_failures(self, gathered: Gathered, failures: Sequence[FoldFailure]) -> None:
        if gathered.forget:
            self._quarantine.begin_anew(stage=_STAGE)
        bad = {(failure.kind, failure.key) for failure in failures}
        for fact in gathered.facts:
            if (fact.kind, fact.key) not in bad:
                self._quarantine.handled(fact.kind, fact.key, stage=_STAGE)
        for failure in failures:
            self._quarantine.failed(
                failure.kind, failure.key, stage=_STAGE, error=failure.reason, uid=failure.uid
            )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in the one thread of the mirror."""
        try:
            return await in_thread(self._executor, work)
        except BrokenOff as error:
            self._mirror.state.mark_inconsistent()
            self._resync()
            raise Retryable(
                f"a session broke off: {error}", retry_after_s=_RETRY_AFTER_S
            ) from error
