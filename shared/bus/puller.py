"""Reading a work queue through a durable consumer that several processes share.

The declared `max_deliver` is counted by the reader (`Delivery.exhausted`) and is unlimited at the
server: beyond the server's own limit a message would stay in the queue undelivered, and only
an advisory, which may go unheard, would tell of it.
"""

import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from typing import Final

import msgspec
from nats.aio.msg import Msg

from shared.bus.connection import BusSession
from shared.bus.errors import NoReply
from shared.bus.feed import NANO, Feed, FeedLost, Feeds, position
from shared.bus.values import Backlog, Message, Reset, Started
from shared.contracts.streams import ConsumerSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger

RETRY_S: Final = 0.2
LEAVE_S: Final = 0.05
"""A reader that ends gives back what it has not looked at after this time: by then the server knows
that its inbox is closed, and does not send the same messages to it again."""


class Delivery:
    """A message of a work queue that this process handles until it acknowledges or returns it."""

    def __init__(self, msg: Msg, session: BusSession, *, max_deliver: int) -> None:
        at = position(msg)
        self._reply = msg.reply
        self._session = session
        self.message: Final = Message(
            subject=msg.subject,
            sequence=at.stream_seq,
            payload=msg.data,
            time=at.time,
            headers=msg.headers,
        )
        self.attempt: Final = at.attempt
        """How often it was delivered, from 1."""
        self.exhausted: Final = 0 < max_deliver < at.attempt
        """Whether it was delivered more often than declared: do not try it again."""

    async def ack(self) -> None:
        """Acknowledge: remove the message from the queue. Raises NoReply when it cannot be sent."""
        await self._answer(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """Return the message for redelivery after `delay_s` seconds."""
        await self._answer(_nak(delay_s))

    async def in_progress(self) -> None:
        """Extend the acknowledgement time."""
        await self._answer(b"+WPI")

    async def term(self, reason: str) -> None:
        """Never deliver it again; `reason` goes into the server's advisory."""
        await self._answer(b"+TERM " + reason.encode())

    async def _answer(self, word: bytes) -> None:
        await self._session.send(self._reply, word, headers=None)


PullItem = Started | Delivery | Reset


class Puller:
    """Pulls one durable consumer; one that is not declared yet, or any more, is waited for."""

    def __init__(
        self,
        spec: ConsumerSpec,
        *,
        batch: int,
        feeds: Feeds,
        final_messages: Callable[[], AbstractContextManager[None]],
        clock: Clock,
        log: Logger,
    ) -> None:
        self._final_messages = final_messages
        self._spec = spec
        self._batch = batch
        self._feeds = feeds
        self._api = feeds.api
        self._clock = clock
        self._log = log
        self._created = ""

    async def backlog(self) -> Backlog:
        """Return the number of waiting messages, for metrics."""
        state = await self._api.consumer(self._spec.stream, self._spec.durable)
        return Backlog(
            waiting=state.num_pending,
            in_progress=state.num_ack_pending,
            redelivered=state.num_redelivered,
        )

    async def deliveries(self) -> AsyncGenerator[PullItem, None]:
        """Yield deliveries; `Started` after each (re)connect, `Reset` on a new epoch."""
        with self._final_messages():
            async with aclosing(self._endless()) as items:
                async for item in items:
                    yield item

    async def _endless(self) -> AsyncGenerator[PullItem, None]:
        while True:
            try:
                feed = await self._feeds.open(self._spec.stream, self._spec.durable)
                try:
                    for item in await self._begin():
                        yield item
                    async with aclosing(self._read(feed)) as deliveries:
                        async for delivery in deliveries:
                            yield delivery
                finally:
                    await feed.close()
            except FeedLost as lost:
                self._log.info("puller_interrupted", consumer=self._spec.durable, reason=str(lost))
            except Retryable as exc:
                self._log.debug("puller_delayed", consumer=self._spec.durable, reason=str(exc))
                await self._clock.sleep(RETRY_S)

    async def _begin(self) -> list[PullItem]:
        spec = self._spec
        await self._api.consumer(spec.stream, spec.durable)
        info = (await self._api.stream(spec.stream)).info
        before, self._created = self._created, info.created
        items: list[PullItem] = []
        if before and before != info.created:
            reason = f"stream was made anew (created {info.created}, before {before})"
            self._log.warning("puller_reset", consumer=spec.durable, reason=reason)
            items.append(Reset(reason))
        started = Started(
            last_seq=info.last_seq,
            first_seq=info.first_seq,
            created=info.created,
            resumed=before == info.created,
        )
        return [*items, started]

    async def _read(self, feed: Feed) -> AsyncGenerator[Delivery, None]:
        """Yield deliveries; what is left at the end goes back to the queue at once."""
        unread: deque[Msg] = deque()
        try:
            await feed.request(self._batch, wait=True)
            while True:
                chunk = await feed.take()
                unread.extend(chunk.messages)
                while unread:
                    yield Delivery(
                        unread.popleft(), feed.session, max_deliver=self._spec.max_deliver
                    )
                if chunk.ended:
                    await feed.request(self._batch, wait=True)
        finally:
            later = _nak(LEAVE_S)
            for msg in (*unread, *feed.leftover()):
                with contextlib.suppress(NoReply):
                    await feed.session.send(msg.reply, later, headers=None)


def _nak(delay_s: float) -> bytes:
    if delay_s <= 0:
        return b"-NAK"
    return b"-NAK " + msgspec.json.encode({"delay": int(delay_s * NANO)})
