"""One consumer on one connection: asks for batches and hands them on, or says that it is lost.

Follower and puller are built on it. Messages are pulled, never pushed: what is on its way
to this process is bounded by one batch, so a slow reader is held back by itself and nothing
overflows. While a request is open the server sends a heartbeat each second; silence, a broken
connection or a vanished consumer end the feed with `FeedLost`, and the owner opens a new one.
This replaces nats-py's ordered consumer, which stays blind for 10 to 20 s after a server restart
and loses messages on local overflow [M].
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from shared.bus.api import Api
from shared.bus.client import Subscription
from shared.bus.connection import BusConnection, BusSession
from shared.bus.errors import NoReply

HEARTBEAT_S: Final = 1.0
SILENCE_S: Final = 2.5
"""Without a message or heartbeat for this long the consumer is taken for lost."""
EXPIRES_S: Final = 30.0
"""How long one request stays open at the server."""
NANO: Final = 1_000_000_000
SHORT_REPLY: Final = 9
"""Tokens of a reply subject `$JS.ACK.…` without domain and account."""


class FeedLost(Exception):  # noqa: N818 - the fact, not a failure of ours
    """The consumer or the connection is gone; the text says which."""


class DeliveryPosition(msgspec.Struct, frozen=True, gc=False):
    """Facts about a delivered message, read from its reply subject."""

    stream_seq: int
    consumer_seq: int
    attempt: int
    time: float


class Chunk(msgspec.Struct, frozen=True):
    """Messages that arrived together; `ended`: the request is used up, `empty`: none was left."""

    messages: list[Msg]
    ended: bool
    empty: bool


class Feed:
    """Reads one consumer over one session. Close it when done."""

    def __init__(self, session: BusSession, *, stream: str, consumer: str, inbox: str) -> None:
        self.session: Final = session
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = inbox
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._unwatch = session.watch(self._wake.set)
        self._open = 0
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Subscribe to the inbox that the messages come to. Raises FeedLost."""
        try:
            client = self.session.client
            self._subscription = await client.subscribe(self._inbox, cb=self._on_message)
        except (nats.errors.Error, OSError) as exc:
            raise FeedLost(f"cannot subscribe: {exc}") from exc

    async def close(self) -> None:
        """Stop listening; the server drops what is left of the open request."""
        self._unwatch()
        if self._subscription is not None and self.session.alive:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()

    async def request(self, batch: int, *, wait: bool) -> None:
        """Ask for up to `batch` messages; without `wait`, only for what is there already.

        Raises FeedLost.
        """
        body: dict[str, int | bool] = {"batch": batch}
        if wait:
            body["expires"] = int(EXPIRES_S * NANO)
            body["idle_heartbeat"] = int(HEARTBEAT_S * NANO)
        else:
            body["no_wait"] = True
        try:
            await self.session.send(
                self._next, msgspec.json.encode(body), reply=self._inbox, headers=None
            )
        except NoReply as exc:
            raise FeedLost(str(exc)) from exc
        self._open = batch

    async def take(self) -> Chunk:
        """Wait for something to come and return it. Raises FeedLost."""
        while True:
            if self._arrived:
                return self._chunk()
            if not self.session.alive:
                raise FeedLost("connection lost")
            self._wake.clear()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._wake.wait()
            except TimeoutError as exc:
                raise FeedLost(f"the consumer sent nothing for {SILENCE_S:g} s") from exc

    def leftover(self) -> list[Msg]:
        """Return, and forget, the messages that arrived and were not taken."""
        messages = [msg for msg in self._arrived if msg.subject != self._inbox]
        self._arrived.clear()
        return messages

    def _chunk(self) -> Chunk:
        messages: list[Msg] = []
        ended = empty = False
        while self._arrived and not ended:
            msg = self._arrived.popleft()
            status = (msg.headers or {}).get("Status")
            if msg.subject != self._inbox or status is None:
                messages.append(msg)
                self._open -= 1
                ended = self._open == 0
            elif status != "100":
                ended = True
                empty = status == "404"
                self._check(status, msg)
        return Chunk(messages, ended, empty)

    def _check(self, status: str, msg: Msg) -> None:
        """Tell an ended request (404 nothing there, 408 expired) from a lost consumer."""
        description = (msg.headers or {}).get("Description", "").strip()
        still_there = status in ("404", "408") or description.startswith(
            ("Batch Completed", "Message Size", "Exceeded")
        )
        if not still_there:
            raise FeedLost(f"consumer lost: {status} {description}".strip())

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.append(msg)
        self._wake.set()


class Feeds:
    """Opens feeds of consumers on the current connection."""

    def __init__(
        self,
        connection: BusConnection,
        api: Api,
        *,
        names: Callable[[str], str],
        inboxes: Callable[[], str],
    ) -> None:
        """`names` and `inboxes` return names of consumers and inboxes that no other process has."""
        self.api: Final = api
        self.name: Final = names
        self._connection = connection
        self._inboxes = inboxes

    async def open(self, stream: str, consumer: str, *, wait_s: float | None = None) -> Feed:
        """Return a feed that listens; waits `wait_s` for a connection. Raises NoReply, FeedLost."""
        session = await self._connection.session(wait_s)
        feed = Feed(session, stream=stream, consumer=consumer, inbox=self._inboxes())
        await feed.open()
        return feed


def position(msg: Msg) -> DeliveryPosition:
    """Return a delivered message's place; read from its reply subject."""
    tokens = msg.reply.split(".")
    at = 0 if len(tokens) == SHORT_REPLY else 2
    return DeliveryPosition(
        stream_seq=int(tokens[5 + at]),
        consumer_seq=int(tokens[6 + at]),
        attempt=int(tokens[4 + at]),
        time=int(tokens[7 + at]) / NANO,
    )
