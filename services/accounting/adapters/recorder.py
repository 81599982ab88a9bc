"""Reads EVENTS and STATE and writes what they say into the database; a part.

The position on EVENTS is written in the transaction of the rows, so a process that is killed goes
on behind the last message that its rows contain. STATE is read from its beginning at each start:
it says which allocations still exist.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from pumice.events.envelope import decode_any
from services.accounting.adapters.store import AccountingDatabase, Gap, StreamPosition
from services.accounting.books.ledger import RowChanges, UsageLedger
from services.accounting.books.rows import GROUPS
from shared.api.kinds import POD
from shared.bus.nats import NatsBus
from shared.bus.state import StateFollower, Synced
from shared.bus.stored import StoredMessages
from shared.bus.values import FromSequence, Message, Reset, StreamInfo
from shared.contracts.messages import Fact
from shared.contracts.streams import Streams
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.health import ReadinessGate

KINDS: Final = (POD.token, *GROUPS)
_RETRY_S: Final = 1.0
_STAGE: Final = "record"
_POSITION_EVERY_S: Final = 30.0
"""How often the time of the last observation is written while nothing changes."""


class Recorder:
    """The one writer of the database."""

    name: Final = "recorder"

    def __init__(
        self,
        bus: NatsBus,
        store: AccountingDatabase,
        follower: Callable[[], StateFollower],
        *,
        streams: Streams,
        scheduler_names: Sequence[str],
        gate: ReadinessGate,
        env: Env,
    ) -> None:
        """`follower` returns a new follower of the facts of `KINDS`."""
        self._bus = bus
        self._store = store
        self._follower = follower
        self._events = streams.events
        self._state = streams.state.name
        self._scheduler_names = tuple(scheduler_names)
        self._gate = gate
        self._clock = env.clock
        self._log = env.log
        self._faults = env.faults
        self._quarantine = env.quarantine
        self.complete = asyncio.Event()
        """Set once the rows contain what happened before the start."""
        self._rows = env.metrics.counter(
            "pumice_accounting_rows", "Rows written into the database", ["table"]
        )
        self._behind = env.metrics.gauge(
            "pumice_accounting_behind_seconds", "Age of the last state that the rows contain"
        )

    async def run(self) -> None:
        """Record until cancelled; begin anew from the database after an error of it."""
        while True:
            try:
                await self._record()
            except (SQLAlchemyError, OSError) as error:
                reason = str(error).partition("\n")[0]
                self._gate.set(ok=False, reason=f"the database cannot be used: {reason}")
                self._log.warning("database_failed", reason=reason)
                await self._clock.sleep(_RETRY_S)

    async def _record(self) -> None:
        """Load what is open, read the events so far, then follow the facts."""
        await self._store.migrate()
        observed = await self._store.position(self._state)
        ledger = UsageLedger(self._scheduler_names, observed_s=observed.time)
        ledger.load(*await self._store.open_rows())
        events = await self._open_events()
        await self._read(events, ledger)
        follower = self._follower()
        written_s = 0.0
        async with aclosing(follower.items()) as items:
            async for item in items:
                match item:
                    case list(facts):
                        await self._observe(ledger, facts, follower.stored_at)
                    case Synced():
                        await self._read(events, ledger)
                        ledger.complete(follower.marked_at)
                        changes = ledger.take_changes()
                        if changes or ledger.observed_s >= written_s + _POSITION_EVERY_S:
                            await self._write(changes, self._observed(ledger))
                            written_s = ledger.observed_s
                        self._behind.set(self._clock.now() - ledger.observed_s)
                        self._gate.set(ok=True)
                        self.complete.set()
                    case Reset():
                        ledger.forget_facts()
                    case _:
                        pass

    async def _open_events(self) -> "_Events":
        """Return a reader behind the last event that the rows contain."""
        position = await self._store.position(self._events.name)
        info = await self._info()
        gap_since_s = 0.0
        if not position.created:  # what was discarded before the first start is no gap
            position = replace(
                position,
                created=info.created,
                sequence=max(info.first_seq - 1, 0),
                time=self._clock.now(),
            )
            await self._write(RowChanges(allocations=[], jobs=[], usage={}), position)
        elif position.created != info.created:
            gap_since_s = position.time
            position = StreamPosition(stream=self._events.name, created=info.created)
        start = FromSequence(position.sequence + 1)
        stored = self._bus.stored(self._events.name, self._events.subjects, start=start)
        return _Events(stored=stored, position=position, gap_since_s=gap_since_s)

    async def _info(self) -> StreamInfo:
        while True:
            try:
                return await self._bus.info(self._events.name)
            except Retryable as error:
                self._gate.set(ok=False, reason=str(error))
                await self._clock.sleep(_RETRY_S)

    async def _read(self, events: "_Events", ledger: UsageLedger) -> None:
        """Record the events that were stored since the last call."""
        async with aclosing(events.stored.new()) as items:
            async for item in items:
                match item:
                    case list(messages):
                        await self._record_events(events, ledger, messages)
                    case Reset():
                        events.gap_since_s = events.position.time
                        created = (await self._info()).created
                        events.position = StreamPosition(stream=self._events.name, created=created)

    async def _record_events(
        self, events: "_Events", ledger: UsageLedger, messages: Sequence[Message]
    ) -> None:
        gaps = events.gaps(messages[0])
        decoded = [decode_any(message.payload) for message in messages]
        ledger.load(*await self._store.rows(*ledger.unknown(decoded)))
        for event, message in zip(decoded, messages, strict=True):
            with self._quarantine.isolate("events", event.id, stage=_STAGE):
                ledger.apply(event, message.time)
        last = messages[-1]
        events.position = replace(events.position, sequence=last.sequence, time=last.time)
        await self._write(ledger.take_changes(), events.position, gaps)

    async def _observe(
        self, ledger: UsageLedger, facts: Sequence[Fact], stored_at: Sequence[float]
    ) -> None:
        ledger.load(*await self._store.rows(*ledger.unknown(facts=facts)))
        for fact, at_s in zip(facts, stored_at, strict=True):
            with self._quarantine.isolate(fact.kind, fact.key, stage=_STAGE):
                ledger.observe(fact, at_s)
        if changes := ledger.take_changes():
            await self._write(changes, self._observed(ledger))

    def _observed(self, ledger: UsageLedger) -> StreamPosition:
        return StreamPosition(stream=self._state, time=ledger.observed_s)

    async def _write(
        self, changes: RowChanges, position: StreamPosition, gaps: Sequence[Gap] = ()
    ) -> None:
        self._faults.point("accounting.before-write")
        await self._store.write(changes, position, gaps)
        self._faults.point("accounting.after-write")
        self._rows.labels("allocations").inc(len(changes.allocations))
        self._rows.labels("jobs").inc(len(changes.jobs))
        for gap in gaps:
            self._log.warning("events_missing", since=gap.begin, until=gap.end, reason=gap.reason)


class _Events(msgspec.Struct):
    """A reader of EVENTS, and how far the rows contain what it read."""

    stored: StoredMessages
    position: StreamPosition
    gap_since_s: float = 0.0
    """Since when events are missing until the next one, in Unix seconds; 0: none."""

    def gaps(self, first: Message) -> list[Gap]:
        """Return the gap between the last message that was read and the next one, if any."""
        begin_s, reason = self.gap_since_s, "the stream was made anew"
        expected = self.position.sequence + 1
        if not begin_s and first.sequence > expected:
            begin_s = self.position.time
            reason = f"events {expected} to {first.sequence - 1} were no longer kept"
        self.gap_since_s = 0.0
        if not begin_s:
            return []
        return [Gap(stream=self.position.stream, begin=begin_s, end=first.time, reason=reason)]
