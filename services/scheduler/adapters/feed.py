"""Followers of STATE and OUTCOME, which fill the scheduler's inbox, and of USAGE.

Facts and outcomes wait in the inbox while a cycle computes. It is bounded: when `LIMIT` facts wait,
the followers wait too, and the bus holds back the rest.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from shared.bus.audit import LocalUids
from shared.bus.nats import NatsBus
from shared.bus.pace import Pace
from shared.bus.state import Stale, StateFollower, StateItem, Synced
from shared.bus.values import CaughtUp, FromTime, Message, Reset, Started
from shared.contracts import codec
from shared.contracts.messages import Fact, Outcome
from shared.contracts.streams import StreamSpec
from shared.contracts.subjects import Subjects
from shared.contracts.usage import QueueUsage
from shared.contracts.versions import ContractError
from shared.election.installation import InstallationLeadership
from shared.runtime.env import Env
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger

AUDITED: Final = ("pods", "podgroups", "queues")
"""Kinds that are audited: the cluster state keeps the uid of each of their objects."""
LIMIT: Final = 100_000
"""Most facts in the inbox; the follower waits while it is full."""
RECENT_S: Final = 900.0
"""Seconds for which outcomes are kept, for a new leader that recovers assumptions."""


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was received since the last cycle."""

    forget: bool
    """Whether STATE is read from its beginning, so that the cluster state must be emptied."""
    facts: list[Fact]
    last_seq: int
    """Sequence of STATE up to which facts were received."""
    outcomes: list[Outcome]


class Inbox:
    """Received facts and outcomes: followers add them, the cycle takes them."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()
        self.changed = asyncio.Event()
        self._forget = False
        self._facts: list[Fact] = []
        self._last_seq = 0
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        return len(self._facts)

    def unfolded(self) -> set[tuple[str, str]]:
        """Return (kind, key) of each object with a fact in the inbox."""
        return {(fact.kind, fact.key) for fact in self._facts}

    async def facts(self, facts: Sequence[Fact], last_seq: int) -> None:
        """Add facts up to a sequence of STATE; wait while the inbox is full."""
        await self._room.wait()
        self._facts += facts
        self._last_seq = last_seq
        if len(self._facts) >= LIMIT:
            self._room.clear()
        self.changed.set()

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes; one per command of our own, so their number is bounded by ours."""
        self._outcomes += outcomes
        self.changed.set()

    def forget(self) -> None:
        """Record that STATE is read from its beginning."""
        self._forget = True
        self._facts = []
        self._last_seq = 0
        self._room.set()
        self.changed.set()

    def take(self) -> Gathered:
        """Return the content and empty the inbox."""
        gathered = Gathered(
            forget=self._forget,
            facts=self._facts,
            last_seq=self._last_seq,
            outcomes=self._outcomes,
        )
        self._forget, self._facts, self._outcomes = False, [], []
        self._room.set()
        self.changed.clear()
        return gathered


class StateFeed:
    """Reads STATE into the inbox; a part of the service, leader or not."""

    name: Final = "state-feed"

    def __init__(
        self,
        follower: StateFollower,
        inbox: Inbox,
        *,
        installation: InstallationLeadership,
        gate: ReadinessGate,
        log: Logger,
    ) -> None:
        self._follower = follower
        self._installation = installation
        self._inbox = inbox
        self._gate = gate
        self._log = log
        self._skip_until_reset = False
        self.synced = asyncio.Event()
        self.epoch = 0
        """Incremented each time STATE is read from its beginning."""

    def resync(self, reason: str = "the cluster state is inconsistent") -> None:
        """Read STATE from its beginning again."""
        self._skip_until_reset = True
        self._follower.restart(reason)
        self._begin_anew(f"the state is read again: {reason}")

    async def audit(self, local_uids: Callable[[], Awaitable[LocalUids]]) -> None:
        """Compare the cluster state with STATE if it is due; call it after a fold."""
        audit = self._follower.audit
        if audit is None or not audit.is_due() or not self.synced.is_set():
            return
        epoch, unfolded, read = self.epoch, self._inbox.unfolded(), audit.read_so_far(AUDITED)
        reason = audit.compare(await local_uids(), read, unfolded=unfolded)
        if reason and epoch == self.epoch:
            self.resync(reason)

    async def run(self) -> None:
        """Follow STATE until cancelled."""
        self._gate.set(ok=False, reason="the state is being read")
        async with aclosing(self._follower.items()) as items:
            async for item in items:
                if self._skip_until_reset and not isinstance(item, Reset):
                    continue
                await self._handle(item)

    def _begin_anew(self, reason: str) -> None:
        self.epoch += 1
        self._inbox.forget()
        self._mark_stale(reason)

    async def _handle(self, item: StateItem) -> None:
        match item:
            case list(facts):
                await self._inbox.facts(facts, self._follower.last_seq)
            case Synced(marker=marker):
                self._installation.observe(marker)
                self._mark_synced()
            case Stale(reason=reason):
                self._mark_stale(reason)
            case Reset(reason=reason):
                self._skip_until_reset = False
                self._begin_anew(reason)
        if not self.synced.is_set():
            self._gate.set(ok=False, reason=self._follower.why_not_synced())

    def _mark_synced(self) -> None:
        if not self.synced.is_set():
            self._log.info("state_synced", epoch=self.epoch)
            self.synced.set()
            self._gate.set(ok=True)
            self._inbox.changed.set()

    def _mark_stale(self, reason: str) -> None:
        self._log.warning("state_not_synced", reason=reason)
        self.synced.clear()
        self._gate.set(ok=False, reason=reason)


class OutcomeFeed:
    """Reads OUTCOME into the inbox and keeps the last quarter of an hour of it."""

    name: Final = "outcome-feed"

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Subjects,
        inbox: Inbox,
        env: Env,
        pace: Pace | None = None,
    ) -> None:
        self._bus = bus
        self._pace = pace
        self._stream = stream
        self._subject = subjects.outcomes
        self._poison = subjects.poison
        self._inbox = inbox
        self._clock = env.clock
        self._log = env.log
        self._recent: deque[Outcome] = deque()
        self._advanced = asyncio.Condition()
        self._last_seq = 0
        self._replay_end = 0
        self.unreadable = 0

    async def run(self) -> None:
        """Follow OUTCOME until cancelled, starting `RECENT_S` ago."""
        start = FromTime(self._clock.now() - RECENT_S)
        follow = self._bus.follow(self._stream, [self._subject], start=start, pace=self._pace)
        async with aclosing(follow) as items:
            async for item in items:
                match item:
                    case Started(last_seq=last_seq):
                        self._replay_end = last_seq
                    case CaughtUp():
                        await self._note_read(self._replay_end)
                    case list(messages):
                        await self._handle(messages)
                    case Reset():
                        self._recent.clear()
                        self._last_seq = 0
                    case _:
                        pass

    async def _handle(self, messages: list[Message]) -> None:
        outcomes = []
        for message in messages:
            if message.subject == self._poison:
                continue
            try:
                outcomes.append(codec.decode_outcome(message.payload))
            except ContractError as error:
                self.unreadable += 1
                self._log.error("outcome_unreadable", seq=message.sequence, reason=str(error))
        self._recent.extend(outcomes)
        oldest = self._clock.now() - RECENT_S
        while self._recent and self._recent[0].time < oldest:
            self._recent.popleft()
        self._inbox.outcomes(outcomes)
        await self._note_read(messages[-1].sequence)

    async def _note_read(self, sequence: int) -> None:
        async with self._advanced:
            self._last_seq = max(self._last_seq, sequence)
            self._advanced.notify_all()

    async def read_up_to(self, sequence: int) -> list[Outcome]:
        """Wait until everything up to `sequence` has been read; return the recent outcomes."""
        async with self._advanced:
            await self._advanced.wait_for(lambda: self._last_seq >= sequence)
        return list(self._recent)


class PastUsageFeed:
    """Reads USAGE: the last message about each queue."""

    name: Final = "past-usage-feed"

    def __init__(
        self, bus: NatsBus, *, stream: StreamSpec, env: Env, pace: Pace | None = None
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._pace = pace
        self._log = env.log
        self._latest: Mapping[str, QueueUsage] = {}
        self.caught_up = asyncio.Event()
        """Set once everything that was stored at the start has been read."""

    def latest(self) -> Mapping[str, QueueUsage]:
        """Return queue → message; a mapping is never changed."""
        return self._latest

    async def run(self) -> None:
        """Follow USAGE until cancelled."""
        follow = self._bus.follow(self._stream.name, self._stream.subjects, pace=self._pace)
        async with aclosing(follow) as items:
            async for item in items:
                if isinstance(item, list):
                    self._latest = {**self._latest, **dict(self._read(item))}
                elif isinstance(item, CaughtUp):
                    self.caught_up.set()

    def _read(self, messages: Sequence[Message]) -> Iterator[tuple[str, QueueUsage]]:
        for message in messages:
            try:
                usage = codec.decode_usage(message.payload)
            except ContractError as error:
                self._log.error("usage_unreadable", seq=message.sequence, reason=str(error))
            else:
                yield usage.queue, usage
