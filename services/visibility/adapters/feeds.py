"""Events and explanations of waits, as the service reads them from the bus."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from heapq import merge
from operator import itemgetter
from typing import Final

from pumice.events import CloudEvent, PodBound, PodEvicted
from pumice.events.envelope import decode_any
from services.visibility.adapters.live import Live
from services.visibility.queries.pending import Decisions
from services.visibility.usage_history import HOURS, GangRuns
from shared.bus.nats import NatsBus
from shared.bus.pace import Pace
from shared.bus.values import FromSequence, FromTime, Message, Reset
from shared.contracts import codec
from shared.contracts.streams import StreamSpec
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger

_PAST_S: Final = 900.0
"""A page that is opened shows the events of this time."""
READ_S: Final = 10.0
"""A namespace whose events take longer is not read."""
EVENTS_MAX: Final = 10_000
"""Events that one query keeps, of pods and of others each."""
_FIRST: Final = FromSequence(1)


class EventFeed:
    """Hands events to the live page, which reads them when it has readers."""

    name: Final = "event-feed"

    def __init__(
        self, bus: NatsBus, stream: StreamSpec, live: Live, *, pace: Pace, clock: Clock
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._live = live
        self._pace = pace
        self._clock = clock

    async def run(self) -> None:
        """Read until cancelled."""
        start = FromTime(self._clock.now() - _PAST_S)
        stored = self._bus.stored(self._stream.name, self._stream.subjects, start=start)
        while True:
            async with aclosing(stored.new()) as items:
                async for item in items:
                    if isinstance(item, list):
                        self._live.add_events([message.payload for message in item])
            await self._pace.next_look()


class DecisionFeed:
    """Reads why gangs wait, as the leading scheduler publishes it: the last explanation of each."""

    name: Final = "decision-feed"

    def __init__(
        self, bus: NatsBus, decisions: Decisions, *, stream: StreamSpec, pace: Pace, log: Logger
    ) -> None:
        self._bus = bus
        self._pace = pace
        self._decisions = decisions
        self._stream = stream
        self._log = log

    async def run(self) -> None:
        """Follow until cancelled."""
        follow = self._bus.follow(
            self._stream.name, list(self._stream.subjects), start=_FIRST, pace=self._pace
        )
        async with aclosing(follow) as items:
            async for item in items:
                match item:
                    case list(messages):
                        for message in messages:
                            self._update(message)
                    case Reset():
                        self._decisions.forget()
                    case _:
                        pass

    def _update(self, message: Message) -> None:
        try:
            self._decisions.update(codec.decode_waiting(message.payload))
        except ContractError as error:
            self._log.warning("wait_unreadable", sequence=message.sequence, reason=str(error))


class EventHistory:
    """Reads the events of a namespace again for each query: they are many, and rarely needed.

    A batch is filtered and dropped before the next one is read. One query reads at a time, and
    keeps the latest matching events; events of pods have a limit of their own.
    """

    def __init__(self, bus: NatsBus, *, stream: str, subjects: Subjects) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._one = asyncio.Lock()

    async def of(
        self, namespace: str, name: str, matches: Callable[[CloudEvent], bool]
    ) -> list[CloudEvent]:
        """Return the events of a namespace that contain a name and pass the filter, in order.

        Of each of both, events of pods and others, the latest `EVENTS_MAX`. Raises Retryable.
        """
        async with self._one:
            try:
                async with asyncio.timeout(READ_S):
                    return await self._read(namespace, name.encode(), matches)
            except TimeoutError as error:
                raise Retryable(
                    f"the events of namespace {namespace} could not be read in {READ_S:.0f} s"
                ) from error

    async def _read(
        self, namespace: str, name: bytes, is_wanted: Callable[[CloudEvent], bool]
    ) -> list[CloudEvent]:
        of_pods: deque[tuple[int, CloudEvent]] = deque(maxlen=EVENTS_MAX)
        others: deque[tuple[int, CloudEvent]] = deque(maxlen=EVENTS_MAX)
        subject = self._subjects.events_of(namespace)
        stored = self._bus.stored(self._stream, [subject], start=_FIRST)
        async with aclosing(stored.new()) as items:
            async for item in items:
                match item:
                    case list(messages):
                        for message in messages:
                            if name not in message.payload:
                                continue
                            event = decode_any(message.payload)
                            if is_wanted(event):
                                is_of_pod = isinstance(event.data, PodBound | PodEvicted)
                                events = of_pods if is_of_pod else others
                                events.append((message.sequence, event))
                    case Reset():
                        of_pods.clear()
                        others.clear()
        return [event for _, event in merge(of_pods, others, key=itemgetter(0))]


class UsageFeed:
    """Reads the events of the last hours when they are requested, each event once."""

    def __init__(self, bus: NatsBus, *, stream: StreamSpec, clock: Clock) -> None:
        self._clock = clock
        self._runs = GangRuns()
        start = FromTime(clock.now() - HOURS * 3600)
        self._stored = bus.stored(stream.name, stream.subjects, start=start)
        self._one = asyncio.Lock()

    async def read(self) -> GangRuns:
        """Return the gangs of the last hours. Raises Retryable if reading takes too long."""
        async with self._one:
            try:
                async with asyncio.timeout(READ_S):
                    await self._read()
            except TimeoutError as error:
                # What was read is kept: the next query continues behind it.
                raise Retryable(
                    f"the events of the last {HOURS} hours could not be read in {READ_S:.0f} s"
                ) from error
            self._runs.forget_before(self._clock.now() - HOURS * 3600)
            return self._runs

    async def _read(self) -> None:
        async with aclosing(self._stored.new()) as items:
            async for item in items:
                match item:
                    case list(messages):
                        for message in messages:
                            self._runs.fold(decode_any(message.payload))
                    case Reset():
                        self._runs = GangRuns()
