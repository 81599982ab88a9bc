"""Values that the bus takes and returns, without any of NATS.

They are frozen and hold plain bytes: `shared.contracts` decodes payloads.
"""

from typing import Final

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored message."""

    subject: str
    sequence: int
    """Sequence in its stream."""
    payload: bytes
    time: float
    """When the server stored it, Unix seconds of its clock."""
    headers: dict[str, str] | None = None


class BusRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of another user, which waits for a reply."""

    payload: bytes
    reply: str
    """Subject of the reply."""


class Ack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The server's answer to a publish."""

    sequence: int
    duplicate: bool = False
    """True when the message id was seen before: nothing was stored again."""


class FencingToken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A leader's right to publish to `stream`: the sequence of its message on `subject`."""

    stream: str
    subject: str
    sequence: int


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """State of a stream; `created` (RFC 3339) is its epoch: another one is another stream."""

    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int


class LastPerSubject(msgspec.Struct, frozen=True):
    """Start with the last message of each subject, in order, then follow new ones."""


LAST_PER_SUBJECT: Final = LastPerSubject()


class FromSequence(msgspec.Struct, frozen=True):
    """Start with the first message at or after `sequence`."""

    sequence: int


class FromTime(msgspec.Struct, frozen=True):
    """Start with the first message stored at or after `unix_s`."""

    unix_s: float


class OnlyNew(msgspec.Struct, frozen=True):
    """Start behind the last message that there is."""


Start = LastPerSubject | FromSequence | FromTime | OnlyNew


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Reading has begun, or continues after an interruption (`resumed`) without a loss.

    `last_seq` is the stream's last sequence noted when the reader had subscribed.
    """

    last_seq: int
    first_seq: int
    created: str
    resumed: bool


class CaughtUp(msgspec.Struct, frozen=True):
    """At one moment since `Started` the server had nothing more to send: the replay is whole."""


class Idle(msgspec.Struct, frozen=True):
    """No message for about a second, or no connection: time to check deadlines."""


class Reset(msgspec.Struct, frozen=True):
    """Continuity may be lost: forget what was read; `Started` and a full replay follow."""

    reason: str


FollowItem = Started | list[Message] | CaughtUp | Idle | Reset
"""What a follower yields. Messages are in the order of the stream; a list is never empty."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that wait for a durable consumer."""

    waiting: int
    """Messages that have not been delivered yet."""
    in_progress: int
    """Messages delivered and not acknowledged."""
    redelivered: int
