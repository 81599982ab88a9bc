"""The owned inbox: matches each reply of the server with its request, or times it out.

One wildcard subscription per connection takes publish acknowledgements and replies of the JetStream
API; futures are keyed by the last token of the reply subject. This replaces nats-py's
`publish_async`, whose futures never resolve when the server refuses or dies [M]. Requests with a
message id are sent again under the same id, after a time-out and after a reconnect.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec
from nats.aio.msg import Msg

from shared.bus.connection import BusSession
from shared.bus.errors import NoReply, NotPermitted, StreamMissing, TooLarge
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError

ATTEMPT_S: Final = 2.0
"""Seconds without a reply after which a repeatable request is sent again."""
SWEEP_S: Final = 0.05
IN_FLIGHT: Final = 4096
"""Unanswered publishes of one connection."""
IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
HEADER_ROOM: Final = 512
"""Headers count towards max_payload; nearly all of ours stay below this."""
SUBJECT_BYTES: Final = 2048
"""Longest subject: with the reply subject it has to fit into a control line of 4 KiB, and a server
ends the connection of a client that sends a longer one."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One answer."""

    payload: bytes
    headers: dict[str, str] | None
    parts: "tuple[Reply, ...]" = ()
    """Earlier messages of the reply to a `many` request."""


class Outgoing(msgspec.Struct, eq=False):
    """A message to send, with the state of its reply while one is open."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None = None
    repeatable: bool = False
    """Whether it may be sent again when no reply comes."""
    reply: "asyncio.Future[Reply] | None" = None
    deadline: float = 0.0
    """When to give up, monotonic."""
    retry_at: float = 0.0
    """When to send it again; not before `deadline` if it may be sent once only."""
    parts: list[Reply] | None = None
    """Collects the parts of a reply that has several."""

    def end(self, result: "Reply | PumiceError") -> None:
        """Set the reply or the error of the future, unless it is done."""
        if self.reply is None or self.reply.done():
            return
        if isinstance(result, Reply):
            self.reply.set_result(result)
            return
        self.reply.set_exception(result)
        self.reply.exception()  # marked as retrieved: the task that waits may have ended


class InFlightLimit:
    """Bounds the messages in flight by count and bytes; waiters are served in order."""

    def __init__(self, *, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait until there is room for a message of `size` bytes, and take it."""
        if not self._waiting and self._fits(size):
            self._occupy(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give room back."""
        self._messages += 1
        self._bytes += size
        while self._waiting:
            needed, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(needed):
                    return
                self._occupy(needed)
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int) -> bool:
        return self._messages > 0 and self._bytes >= min(size, IN_FLIGHT_BYTES)

    def _occupy(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size


class Replies:
    """Sends requests and matches their replies."""

    def __init__(self, *, inbox: str, clock: Clock) -> None:
        self._prefix = f"{inbox}."
        self._clock = clock
        self._session: BusSession | None = None
        self._requests: dict[str, Outgoing] = {}
        self._added = asyncio.Event()
        self._next = 0
        self.room: Final = InFlightLimit(messages=IN_FLIGHT, size=IN_FLIGHT_BYTES)

    @property
    def unanswered(self) -> int:
        """Return how many requests are open."""
        return len(self._requests)

    async def attach(self, session: BusSession) -> None:
        """Listen on a new session, and send the open requests again there."""
        await session.client.subscribe(f"{self._prefix}*", cb=self._on_message)
        self._session = session
        session.watch(self._on_down)
        for token, request in list(self._requests.items()):
            await self._send(token, request)

    async def request(
        self, message: Outgoing, *, timeout_s: float, many: bool = False
    ) -> "asyncio.Future[Reply]":
        """Send a message and return the future of its reply; with `many` it has several parts.

        Raises TooLarge, and NoReply at once when there is no connection and it may not be sent
        again. The future ends with a Reply, NoReply, StreamMissing or NotPermitted.
        """
        session = self._session
        usable = session is not None and session.alive
        if not usable and not message.repeatable:
            raise NoReply(f"no connection to NATS for {message.subject}")
        self.refuse_oversized(message)
        now = self._clock.monotonic()
        self._next += 1
        token = f"{self._next:x}"
        reply = message.reply = asyncio.get_running_loop().create_future()
        message.deadline = now + timeout_s
        message.retry_at = now + (min(ATTEMPT_S, timeout_s) if message.repeatable else timeout_s)
        message.parts = [] if many else None
        self._requests[token] = message
        self._added.set()
        await self._send(token, message)
        return reply

    async def send(self, message: Outgoing) -> None:
        """Send a message that has no reply of its own. Raises TooLarge and NoReply."""
        if self._session is None:
            raise NoReply(f"no connection to NATS for {message.subject}")
        self.refuse_oversized(message)
        await self._session.send(message.subject, message.payload, headers=message.headers)

    def refuse_oversized(self, message: Outgoing) -> None:
        """Raise TooLarge for a message that the server would refuse by ending the connection."""
        subject, size, headers = message.subject, len(message.payload), message.headers or {}
        if len(subject) > SUBJECT_BYTES:
            raise TooLarge(f"subject {subject[:60]}... has {len(subject)} bytes of {SUBJECT_BYTES}")
        if self._session is None:
            return
        room = max(HEADER_ROOM, sum(len(k) + len(v) + 4 for k, v in headers.items()) + 64)
        if size + room > (most := self._session.client.max_payload):
            raise TooLarge(
                f"message for {subject} has {size} bytes; the server takes {most - room}"
            )

    async def run(self) -> None:
        """Watch over time-outs until cancelled; sleeps while no request is open."""
        while True:
            if not self._requests:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(SWEEP_S)
            now = self._clock.monotonic()
            due = [(t, r) for t, r in self._requests.items() if r.retry_at <= now]
            for token, request in due:
                if request.deadline <= now:
                    self._end(token, NoReply(_unanswered(request.subject)))
                else:
                    request.retry_at = min(now + ATTEMPT_S, request.deadline)
                    await self._retry(token, request)

    def refused(self, error: str) -> None:
        """Fail the requests that a permissions error of the server (in lower case) is about."""
        if "permissions violation for publish to" not in error:
            return
        subject = error.partition('"')[2].partition('"')[0]
        for token, request in list(self._requests.items()):
            if request.subject.lower() == subject:
                self._end(token, NotPermitted(f"this user may not publish to {request.subject}"))

    async def _retry(self, token: str, request: Outgoing) -> None:
        session = self._session
        if session is not None and session.client.pending_data_size > IN_FLIGHT_BYTES:
            return  # the server takes nothing: more of the same would only pile up here
        await self._send(token, request)

    async def _send(self, token: str, request: Outgoing) -> None:
        session = self._session
        if request.reply is None or request.reply.done():
            self._requests.pop(token, None)  # its task was cancelled
            return
        if session is None or not session.alive:
            return
        if request.parts is not None:
            request.parts.clear()
        try:
            await session.send(
                request.subject,
                request.payload,
                reply=self._prefix + token,
                headers=request.headers,
            )
        except NoReply as exc:
            if not request.repeatable:
                self._end(token, exc)

    async def _on_message(self, msg: Msg) -> None:
        token = msg.subject[len(self._prefix) :]
        request = self._requests.get(token)
        if request is None:
            return
        headers = msg.headers
        status = headers.get("Status") if headers else None
        if status == "503":
            self._end(token, StreamMissing(f"no stream takes {request.subject}"))
            return
        if request.parts is not None and status is None:
            request.parts.append(Reply(msg.data, headers))
            return
        del self._requests[token]
        request.end(Reply(msg.data, headers, tuple(request.parts or ())))

    def _on_down(self) -> None:
        self._session = None
        for token, request in list(self._requests.items()):
            if not request.repeatable:
                self._end(token, NoReply(f"connection lost while waiting for {request.subject}"))

    def _end(self, token: str, error: PumiceError) -> None:
        if (request := self._requests.pop(token, None)) is not None:
            request.end(error)


def _unanswered(subject: str) -> str:
    """Return what silence about a subject means.

    A server that cannot write a stream to its disk does not refuse messages for it, it is silent.
    """
    text = f"no answer from NATS for {subject}"
    if subject.startswith("$JS."):
        return text
    return f"{text}; if this goes on, its disk may be full: its log and /healthz name the stream"
