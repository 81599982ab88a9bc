"""Messages on their way to one stream, and how its answers are read.

Many messages may be in flight (`Replies.room` bounds them by count and bytes over the whole
connection); each has its own future.
"""

from asyncio import Future
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from shared.bus.api import ATOMIC_DISABLED, ApiError, failure
from shared.bus.errors import NoReply, SequenceInFlight, StreamMissing
from shared.bus.replies import InFlightLimit, Outgoing, Replies, Reply
from shared.bus.values import Ack
from shared.runtime.errors import Retryable

ONCE_S: Final = 2.0
"""Time for the answer to a message that is sent once."""
REPEATED_S: Final = 10.0
"""Time for the answer to a message with an id, over all its repetitions."""

MSG_ID: Final = "Nats-Msg-Id"
LAST: Final = "Nats-Expected-Last-Subject-Sequence"
LAST_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
_BATCH: Final = "Nats-Batch-Id"
_PLACE: Final = "Nats-Batch-Sequence"
_COMMIT: Final = "Nats-Batch-Commit"


class _PubAck(msgspec.Struct, frozen=True, gc=False):
    seq: int = 0
    duplicate: bool = False
    count: int = 0
    """Messages of the batch."""
    error: ApiError | None = None


_puback: Final = msgspec.json.Decoder(_PubAck)


class StreamSender:
    """Sends messages to one stream."""

    def __init__(self, stream: str, replies: Replies, *, on_missing: Callable[[], None]) -> None:
        self.stream: Final = stream
        self._replies = replies
        self._on_missing = on_missing
        self.stale = False
        """Whether an answer showed that the stream is not what it was."""

    @property
    def room(self) -> InFlightLimit:
        """Return the room for messages in flight."""
        return self._replies.room

    def refuse_oversized(self, message: Outgoing) -> None:
        """Raise TooLarge for a message that the server would refuse by ending the connection."""
        self._replies.refuse_oversized(message)

    async def send_with_room(self, message: Outgoing) -> "PendingReply":
        """Send once there is room, and take it until the answer has come. Raises as `send`."""
        room = self.room
        await room.take(len(message.payload))
        try:
            pending = await self.send(message, timeout_s=timeout_of(message))
        except BaseException:
            room.give(len(message.payload))
            raise
        pending.received.add_done_callback(lambda _: room.give(len(message.payload)))
        return pending

    async def send(self, message: Outgoing, *, timeout_s: float) -> "PendingReply":
        """Send a message whose room was taken. Raises TooLarge and NoReply."""
        received = await self._replies.request(message, timeout_s=timeout_s)
        return PendingReply(self, message.subject, received)

    async def send_batch(self, name: str, messages: Sequence[Outgoing]) -> list[Ack]:
        """Publish all messages or none; return an acknowledgement for each.

        The server answers the last message for all. Raises what a publish raises.
        """
        *before, last = messages
        for place, message in enumerate(before, start=1):
            await self._replies.send(_in_batch(message, name, place))
        last = _in_batch(last, name, len(messages), {_COMMIT: "1"})
        received = await self._replies.request(last, timeout_s=ONCE_S)
        ack = await self._read(last.subject, received)
        if ack.count != len(messages):
            raise NoReply(f"{last.subject}: {ack.count} of {len(messages)} messages were stored")
        first = ack.seq - ack.count + 1
        return [Ack(sequence=first + place) for place in range(ack.count)]

    async def acknowledged(self, subject: str, received: "Future[Reply]") -> Ack:
        """Wait for the answer to one message, and read it."""
        ack = await self._read(subject, received)
        return Ack(sequence=ack.seq, duplicate=ack.duplicate)

    async def _read(self, subject: str, received: "Future[Reply]") -> _PubAck:
        try:
            reply = await received
        except StreamMissing:
            self.stale = True
            self._on_missing()
            raise
        try:
            ack = _puback.decode(reply.payload)
        except ValueError as exc:
            raise Retryable(f"{subject}: the answer to a publish cannot be read: {exc}") from exc
        if ack.error is not None:
            error = failure(ack.error, about=f"publish to {subject} on {self.stream}")
            of_configuration = ack.error.err_code == ATOMIC_DISABLED
            self.stale |= of_configuration or isinstance(error, SequenceInFlight)
            raise error
        return ack


class PendingReply:
    """An answer to come; may be left alone by a caller that is cancelled."""

    __slots__ = ("_sender", "_subject", "received")

    def __init__(self, sender: StreamSender, subject: str, received: "Future[Reply]") -> None:
        self._sender = sender
        self._subject = subject
        self.received = received

    def __await__(self) -> Generator[Any, None, Ack]:
        return self._sender.acknowledged(self._subject, self.received).__await__()


def timeout_of(message: Outgoing) -> float:
    """Return the seconds to wait for the acknowledgement of a message."""
    return REPEATED_S if message.repeatable else ONCE_S


def _in_batch(
    message: Outgoing, name: str, place: int, commit: Mapping[str, str] = MappingProxyType({})
) -> Outgoing:
    headers = {**(message.headers or {}), _BATCH: name, _PLACE: str(place), **commit}
    return Outgoing(message.subject, message.payload, headers)
