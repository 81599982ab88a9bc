"""Publishing with a known end for every message: acknowledged, refused, or unanswered.

Many messages may be in flight (`Replies.room` bounds them by count and bytes over the whole
connection); each has its own future. See `port.Publisher` for what is raised when.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from shared.bus.api import ApiError, failure
from shared.bus.errors import SequenceInFlight, StreamMissing, TooLarge
from shared.bus.port import Ack, Message, Token
from shared.bus.replies import Replies, Reply
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Retryable

RETRY_S: Final = 0.01
GIVE_UP_S: Final = 2.0

_T = TypeVar("_T")


class PublishOrder:
    """The order of this process's fenced publishes to one stream.

    A stream on one server compares each publish with what is stored. One that is copied to several
    servers refuses a publish as long as another on the same condition is on its way to the copies,
    and all publishes of a leader have the same condition. The first refusal of that kind ends the
    leader's term, as any refusal does, and shows this process that the stream is copied: from then
    on its publishes wait for each other. One that is still refused has met a publish of another
    process, and is sent again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.single = False
        """Whether they go one at a time."""

    async def in_order(self, publish: Callable[[], Awaitable[_T]]) -> _T:
        """Publish once those before have been answered. Raises what `publish` raises."""
        async with self._turn:
            give_up_at = self._clock.monotonic() + GIVE_UP_S
            while True:
                try:
                    return await publish()
                except SequenceInFlight:
                    if self._clock.monotonic() >= give_up_at:
                        raise
                await self._clock.sleep(RETRY_S)


ONCE_S: Final = 2.0
"""Time for the answer to a message that is sent once."""
REPEATED_S: Final = 10.0
"""Time for the answer to a message with an id, over all its repetitions."""

_MSG_ID: Final = "Nats-Msg-Id"
_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
_LAST_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
_TTL: Final = "Nats-TTL"
_ROLLUP: Final = "Nats-Rollup"


def is_fenced(message: Message, subjects: Collection[str]) -> bool:
    """Tell whether a message was published under a leader's right: with the token of a subject.

    The server has compared the token. Only a publish without one can have come from another.
    """
    headers = message.headers or {}
    return headers.get(_LAST_OF) in subjects and headers.get(_LAST, "0").strip("0") != ""


class _PubAck(msgspec.Struct, frozen=True, gc=False):
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_puback: Final = msgspec.json.Decoder(_PubAck)


class NatsPublisher:
    """Publishes to one stream."""

    def __init__(
        self,
        stream: str,
        replies: Replies,
        *,
        order: PublishOrder,
        on_missing: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._replies = replies
        self._order = order
        self._on_missing = on_missing

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: Token | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        marks: Mapping[str, str] | None = None,
    ) -> Ack:
        """See `port.Publisher.publish`."""
        pending = await self.submit(
            subject,
            payload,
            msg_id=msg_id,
            fence=fence,
            expect_last=expect_last,
            ttl_s=ttl_s,
            rollup=rollup,
            marks=marks,
        )
        return await pending

    async def submit(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: Token | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        marks: Mapping[str, str] | None = None,
    ) -> Awaitable[Ack]:
        """See `port.Publisher.submit`."""
        headers = _headers(msg_id=msg_id, fence=fence, expect_last=expect_last, ttl_s=ttl_s)
        headers.update(marks or {})
        if rollup:
            headers[_ROLLUP] = "sub"
        repeatable = msg_id is not None and expect_last is None
        send = partial(self._send, subject, payload, headers, repeatable=repeatable)
        if fence is None or not self._order.single:
            return await send()
        return await self._in_order(send)

    async def _in_order(self, send: Callable[[], Awaitable["_Pending"]]) -> Awaitable[Ack]:
        """Send in the order of submission; what became of it is told when it is awaited."""
        settled: Future[Ack] = asyncio.get_running_loop().create_future()

        async def answered() -> Ack:
            return await (await send())

        try:
            settled.set_result(await self._order.in_order(answered))
        except TooLarge:
            raise
        except PumiceError as error:
            settled.set_exception(error)
            settled.exception()  # a caller may leave it alone
        return settled

    async def _send(
        self, subject: str, payload: bytes, headers: dict[str, str], *, repeatable: bool
    ) -> "_Pending":
        room = self._replies.room
        await room.take(len(payload))
        try:
            answer = await self._replies.ask(
                subject,
                payload,
                headers=headers or None,
                timeout_s=REPEATED_S if repeatable else ONCE_S,
                repeatable=repeatable,
            )
        except BaseException:
            room.give(len(payload))
            raise
        answer.add_done_callback(lambda _: room.give(len(payload)))
        return _Pending(self, subject, answer)

    async def acknowledged(self, subject: str, answer: "Future[Reply]") -> Ack:
        """Wait for an answer and read it."""
        try:
            reply = await answer
        except StreamMissing:
            self._on_missing()
            raise
        try:
            ack = _puback.decode(reply.payload)
        except ValueError as exc:
            raise Retryable(f"{subject}: the answer to a publish cannot be read: {exc}") from exc
        if ack.error is not None:
            error = failure(ack.error, about=f"publish to {subject} on {self._stream}")
            self._order.single |= isinstance(error, SequenceInFlight)
            raise error
        return Ack(sequence=ack.seq, duplicate=ack.duplicate)


class _Pending:
    """An answer to come; may be left alone by a caller that is cancelled."""

    __slots__ = ("_answer", "_publisher", "_subject")

    def __init__(self, publisher: NatsPublisher, subject: str, answer: "Future[Reply]") -> None:
        self._publisher = publisher
        self._subject = subject
        self._answer = answer

    def __await__(self) -> Generator[Any, None, Ack]:
        return self._publisher.acknowledged(self._subject, self._answer).__await__()


def _headers(
    *, msg_id: str | None, fence: Token | None, expect_last: int | None, ttl_s: int | None
) -> dict[str, str]:
    assert fence is None or expect_last is None, "a publish is fenced or compared, not both"
    headers: dict[str, str] = {}
    if msg_id is not None:
        headers[_MSG_ID] = msg_id
    if fence is not None:
        headers[_LAST] = str(fence.sequence)
        headers[_LAST_OF] = fence.subject
    if expect_last is not None:
        headers[_LAST] = str(expect_last)
    if ttl_s is not None:
        headers[_TTL] = str(ttl_s)
    return headers
