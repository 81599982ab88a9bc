"""Following STATE: facts as they come, and from when on they are the complete cluster state.

The scheduler, the controller and the binder read STATE through this one class. A reader is synced
at the first marker of the cache after the last sequence that the stream had when the reader
subscribed, once the replay is complete (`CaughtUp`): a marker alone proves nothing, because an
object that is updated after a marker moves behind it, also during the replay. Without a marker for
10 s the state is stale: no cycle may start.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import aclosing
from typing import Final

import msgspec

from shared.bus.audit import Audit, LocalUids
from shared.bus.nats import NatsBus
from shared.bus.pace import Pace
from shared.bus.seal import Seal
from shared.bus.values import CaughtUp, FollowItem, Message, Reset, Started
from shared.contracts import codec
from shared.contracts.messages import Fact, Marker
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError, UnknownVersion
from shared.runtime.clock import Clock
from shared.runtime.logs import Logger

STALE_S: Final = 10.0


class Synced(msgspec.Struct, frozen=True):
    """The facts so far are the whole world as of `marker`; comes again with every marker."""

    marker: Marker


class Stale(msgspec.Struct, frozen=True):
    """The facts may be behind the API server; comes once, and `Synced` ends it."""

    reason: str


StateItem = list[Fact] | Synced | Stale | Reset
"""What a follower of STATE yields. Facts are in the order of the stream; a list is never empty."""


class StateFollower:
    """Follows the facts of some kinds."""

    def __init__(
        self,
        bus: NatsBus,
        *,
        subjects: Subjects,
        kinds: Collection[str],
        clock: Clock,
        log: Logger,
        seal: Seal | None = None,
        pace: Pace | None = None,
        audit: Audit | None = None,
    ) -> None:
        """`seal` opens what the cache has sealed; without it, such facts cannot be read.

        An `audit` is for readers that hold what the facts say.
        """
        self.audit: Final = audit
        self._pace = pace
        self._seal = seal or Seal("")
        self._bus = bus
        self._stream = streams(subjects.cluster).state.name
        self._marker = subjects.marker
        self._filter = [*(subjects.state_kind(kind) for kind in sorted(kinds)), subjects.marker]
        self.kinds: Final = frozenset(kinds)
        self._clock = clock
        self._log = log
        self._last_when_subscribed = 0
        self._caught_up = False
        self._latest: tuple[int, Marker] | None = None
        self._fresh_at = 0.0
        self._fresh = False
        self._delayed: dict[str, str] = {}
        self._restart = ""
        self.last_seq = 0
        """Sequence of the last fact that was yielded."""
        self.stored_at: list[float] = []
        """When the server stored each fact of the last list, in Unix seconds."""
        self.marked_at = 0.0
        """When the server stored the last marker, in Unix seconds."""
        self.unreadable = 0
        """Messages that break the contract and were left out, for metrics."""

    @property
    def delayed(self) -> int:
        """Return how many objects wait for a version that this process cannot read."""
        return len(self._delayed)

    def restart(self, reason: str) -> None:
        """Have STATE read from its beginning once more; a `Reset` says when."""
        self._restart = reason

    def compare(
        self,
        local: Callable[[], LocalUids],
        unpublished: Callable[[], Collection[tuple[str, str]]] = tuple,
    ) -> None:
        """Compare what a reader holds that folds at once; what differs has STATE read again.

        STATE may lag behind the reader's own writes: `unpublished` returns kind and key of these.
        """
        if self.audit is not None and self.audit.is_due():
            found = local()
            read = self.audit.read_so_far(found)
            reason = self.audit.compare(found, read, unfolded=unpublished())
            self._restart = reason or self._restart

    async def items(self) -> AsyncGenerator[StateItem, None]:
        """Yield forever, from the beginning. After `Reset` the reader forgets everything."""
        while True:
            self._fresh_at = self._clock.monotonic()
            self._forget()
            async with aclosing(self._follow()) as items:
                async for item in items:
                    yield item
            reason, self._restart = self._restart, ""
            yield Reset(reason)

    async def _follow(self) -> AsyncGenerator[StateItem, None]:
        """Yield until STATE is to be read from its beginning."""
        async with aclosing(self._bus.follow(self._stream, self._filter, pace=self._pace)) as items:
            async for item in items:
                for result in self._take(item):
                    yield result
                if self._fresh and (silent_s := self._clock.monotonic() - self._fresh_at) > STALE_S:
                    self._fresh = False
                    yield Stale(f"no marker of the cache for {silent_s:.0f} s")
                if self._restart:
                    return

    def _forget(self) -> None:
        self._latest, self._fresh = None, False
        self._delayed.clear()
        if self.audit is not None:
            self.audit.forget()

    def why_not_synced(self) -> str:
        """Return one line for readiness: what is waited for, or "" when synced."""
        if self._fresh:
            return ""
        if not self._caught_up:
            return "the state is being read"
        if self._delayed:
            subject, reason = next(iter(self._delayed.items()))
            return f"{len(self._delayed)} objects cannot be read, first {subject}: {reason}"
        if self._latest is None or self._latest[0] <= self._last_when_subscribed:
            return "no marker of the cache yet"
        if missing := self._missing(self._latest[1]):
            return f"the cache has not listed {', '.join(missing)}"
        return f"no marker of the cache for {self._clock.monotonic() - self._fresh_at:.0f} s"

    def _take(self, item: FollowItem) -> Iterator[StateItem]:
        match item:
            case Started(last_seq=last_seq):
                self._last_when_subscribed, self._caught_up = last_seq, False
            case list(messages):
                yield from self._read(messages)
            case CaughtUp():
                self._caught_up = True
                yield from self._check_synced()
            case Reset():
                self._forget()
                yield item
            case _:
                pass

    def _read(self, messages: list[Message]) -> Iterator[StateItem]:
        """Decode; a marker among the facts ends the list before it."""
        facts: list[Fact] = []
        self.stored_at = []
        for message in messages:
            if message.subject == self._marker:
                if facts:
                    yield facts
                    facts = []
                    self.stored_at = []
                yield from self._mark(message)
            elif (fact := self._fact(message)) is not None:
                facts.append(fact)
                self.stored_at.append(message.time)
                self.last_seq = message.sequence
        if facts:
            yield facts

    def _fact(self, message: Message) -> Fact | None:
        try:
            fact = codec.decode_fact(message.payload)
        except UnknownVersion as exc:
            self._delayed[message.subject] = str(exc)
            self._log.warning("fact_delayed", subject=message.subject, reason=str(exc))
            return None
        except ContractError as exc:
            self.unreadable += 1
            self._log.error("fact_unreadable", subject=message.subject, reason=str(exc))
            return None
        try:
            fact = self._seal.open(fact)
        except ContractError as exc:
            self._delayed[message.subject] = str(exc)
            self._log.warning("fact_sealed", subject=message.subject, reason=str(exc))
            return None
        if fact.kind not in self.kinds:
            self.unreadable += 1
            self._log.error(
                "fact_unreadable", subject=message.subject, reason=f"no such kind: {fact.kind!r}"
            )
            return None
        self._delayed.pop(message.subject, None)
        if self.audit is not None:
            self.audit.take(fact)
        return fact

    def _mark(self, message: Message) -> list[StateItem]:
        try:
            marker = codec.decode_marker(message.payload)
        except ContractError as exc:
            self.unreadable += 1
            self._log.error("marker_unreadable", reason=str(exc))
            return []
        self._latest = (message.sequence, marker)
        self.marked_at = message.time
        return self._check_synced()

    def _check_synced(self) -> list[StateItem]:
        """Return Synced if the latest marker proves it by now."""
        if not self._caught_up or self._delayed or self._latest is None:
            return []
        sequence, marker = self._latest
        is_new = sequence > self._last_when_subscribed
        if not (is_new or self._is_recent(marker)) or self._missing(marker):
            return []
        self._fresh, self._fresh_at = True, self._clock.monotonic()
        if self.audit is not None and not self.unreadable:
            self._restart = self.audit.observe(marker) or self._restart
        return [Synced(marker)]

    def _is_recent(self, marker: Marker) -> bool:
        """Tell whether a marker from before a reader resumed is good for its first query.

        Everything up to it was read; only the wall clocks say that the cache is still there.
        """
        resumes = self._pace is not None and self._pace.resumes
        return resumes and abs(self._clock.now() - marker.time) <= STALE_S

    def _missing(self, marker: Marker) -> list[str]:
        return sorted(self.kinds.difference(marker.complete))
