"""The bus as the rest of Pumice sees it: values and protocols, without any of NATS.

Services depend on these names only; `shared.bus.nats` is the adapter. The values are frozen and
hold plain bytes: the meaning of a payload is the business of `shared.contracts`.
"""

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from shared.bus.pace import Pace
from shared.contracts.streams import ConsumerSpec, StreamSpec


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored message."""

    subject: str
    sequence: int
    """Sequence in its stream."""
    payload: bytes
    time: float
    """When the server stored it, Unix seconds of its clock."""
    headers: dict[str, str] | None = None


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
    """Start with the last message of each subject, in order, then go on live."""


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
    """Reading has begun, or goes on after an interruption (`resumed`) without a loss.

    `last_seq` is the stream's last sequence noted when the reader had subscribed.
    """

    last_seq: int
    first_seq: int
    created: str
    resumed: bool


class Batch(msgspec.Struct, frozen=True):
    """Messages in the order of the stream; never empty."""

    messages: list[Message]


class CaughtUp(msgspec.Struct, frozen=True):
    """At one moment since `Started` the server had nothing more to send: the replay is whole."""


class Idle(msgspec.Struct, frozen=True):
    """Nothing came for about a second, or there is no connection: time to check deadlines."""


class Reset(msgspec.Struct, frozen=True):
    """Continuity may be lost: forget what was read; `Started` and a full replay follow."""

    reason: str


FollowItem = Started | Batch | CaughtUp | Idle | Reset


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that wait for a durable consumer."""

    waiting: int
    """Messages that have not been delivered yet."""
    in_progress: int
    """Messages delivered and not acknowledged."""
    redelivered: int


class Publisher(Protocol):
    """Publishes to one stream and knows the fate of each message."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: FencingToken | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Ack:
        """Publish and wait for the server's answer.

        With `msg_id` the message is sent again under the same id until it is answered (the server
        drops duplicates); without one it is sent once. `fence` and `expect_last` (the last
        sequence of this very subject; 0: there is none) exclude each other; a publish with
        `expect_last` is sent once, because the server checks it before the id. With `rollup` the
        message takes the place of all earlier ones of its subject, where its stream lets it.
        Readers find `headers` with the message. Raises
        WrongSequence, StreamFull, StreamMissing, NoAnswer, TooLarge, NotPermitted or Rejected.
        """
        ...

    async def submit(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: FencingToken | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[Ack]:
        """Send once there is room among the messages in flight; the answer is awaited later.

        The same as `publish` otherwise, which is how many messages are published at once.
        """
        ...


class Delivery(Protocol):
    """A message of a work queue in the hands of this process, until it says what became of it."""

    @property
    def message(self) -> Message:
        """Return the message."""
        ...

    @property
    def attempt(self) -> int:
        """Return how often it was delivered, from 1."""
        ...

    @property
    def exhausted(self) -> bool:
        """Return whether it was delivered more often than declared: set it aside, do not try."""
        ...

    async def ack(self) -> None:
        """Done: the message leaves the queue. Raises NoAnswer when it cannot be sent."""
        ...

    async def nak(self, delay_s: float = 0.0) -> None:
        """Not done: deliver it again, after `delay_s`."""
        ...

    async def in_progress(self) -> None:
        """Still at it: start the acknowledgement time anew."""
        ...

    async def term(self, reason: str) -> None:
        """Never deliver it again; `reason` goes into the server's advisory."""
        ...


PullItem = Started | Delivery | Reset


class Puller(Protocol):
    """Reads a durable consumer that several processes share."""

    def deliveries(self) -> AsyncGenerator[PullItem, None]:
        """Yield deliveries for ever; `Started` after each (re)connect, `Reset` on a new epoch."""
        ...

    async def backlog(self) -> Backlog:
        """Return what waits, for metrics."""
        ...


class Declaring(Protocol):
    """Makes streams and durable consumers as declared: the right of the declarer alone."""

    async def ensure_streams(self, specs: Sequence[StreamSpec]) -> None:
        """Create or update streams, now and after each reconnect; never deletes one.

        Raises Rejected when a stream exists with a setting that cannot be changed.
        """
        ...

    async def ensure_consumers(self, specs: Sequence[ConsumerSpec]) -> None:
        """Create or update durable consumers, now and after each reconnect."""
        ...

    async def info(self, stream: str) -> StreamInfo:
        """Return a stream's state. Raises StreamMissing."""
        ...

    async def purge(self, stream: str, subject: str, *, before_seq: int = 0) -> int:
        """Remove the messages of a subject (wildcards allowed); return how many.

        With `before_seq` only those with a lower sequence, so that one which comes in the very
        moment stays.
        """
        ...


class Checking(Protocol):
    """Checks whether streams are as declared."""

    async def unfit(self, spec: StreamSpec) -> str:
        """Return why a stream cannot serve as declared (missing, different), or "".

        Raises Retryable when the server does not say.
        """
        ...


class Publishing(Protocol):
    """Gives publishers."""

    def publisher(self, stream: str) -> Publisher:
        """Return a publisher to `stream`; the ones of a connection share its bound in flight."""
        ...


class Stored(Protocol):
    """Reads what a stream holds, look by look."""

    def new(self) -> AsyncGenerator[Batch | Reset, None]:
        """Yield what the stream holds by now and was not given yet, in order; then end.

        `Reset`: the stream was made anew, and what it holds comes from the start. Waits for a
        server that cannot be reached. Leave it early under `contextlib.aclosing`: the next call
        goes on behind the last batch.
        """
        ...


class StoredReading(Protocol):
    """Reads streams without a consumer."""

    def stored(
        self, stream: str, subjects: Sequence[str], *, start: FromSequence | FromTime
    ) -> Stored:
        """Return a reader of what a stream holds, which takes none of its consumers."""
        ...


class Listening(Protocol):
    """Hears messages as they are published."""

    def listen(self, subject: str) -> AsyncGenerator[bytes, None]:
        """Yield the payloads of messages as they come, for ever.

        Those that come while there is no connection are missed. Leave it early under
        `contextlib.aclosing`.
        """
        ...


class Reading(Protocol):
    """Reads streams without consuming them."""

    def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        start: Start = LAST_PER_SUBJECT,
        pace: Pace | None = None,
    ) -> AsyncGenerator[FollowItem, None]:
        """Yield what is stored and then what comes, in order, for ever.

        What comes is yielded at once, or as `pace` says.

        Survives reconnects, restarts of the server and re-creation of the stream; see `Reset`.
        Leave it early under `contextlib.aclosing`.
        """
        ...

    async def last(self, stream: str, subject: str) -> Message | None:
        """Return the last message of a subject, or None. Raises StreamMissing, NoAnswer."""
        ...

    async def snapshot(self, stream: str, subjects: Sequence[str]) -> list[Message]:
        """Return the last message of each subject that matches, at one moment (at most 1024)."""
        ...

    async def get(self, stream: str, sequence: int) -> Message | None:
        """Return the message with that sequence, or None when it is gone."""
        ...

    def scan(
        self, stream: str, subject: str, *, from_seq: int = 1
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of a subject from `from_seq` up to the last that there is now.

        Works on work queues too, where a second consumer is not allowed.
        """
        ...


class Pulling(Protocol):
    """Reads work queues."""

    def pull(self, consumer: ConsumerSpec, *, batch: int = 16) -> Puller:
        """Return a puller; at most `batch` messages are in this process's hands unasked."""
        ...


class Connecting(Protocol):
    """Tells when the server can be reached."""

    async def connected(self) -> None:
        """Return once there is a connection to the server."""
        ...


class FinalMessages(Protocol):
    """Stays connected until the parts that end with a message have sent it."""

    def final_messages(self) -> AbstractContextManager[None]:
        """Keep the connection open while in the block, also when the process is ending.

        All parts of a service are cancelled at once; a lease that is given back, or a member's last
        announcement, still needs the bus then. It waits for them, but not for ever.
        """
        ...


class Presence(Protocol):
    """Tells whether others are connected, and whether this process is."""

    async def listens(self, subject: str) -> bool:
        """Return False when the server knows no listener on `subject`, else True.

        Raises NoAnswer when it cannot be asked.
        """
        ...

    async def away(self, for_s: float) -> None:
        """Return when there has been no connection for `for_s`."""
        ...


class Bus(
    Declaring,
    Checking,
    Publishing,
    Reading,
    StoredReading,
    Listening,
    Pulling,
    Connecting,
    FinalMessages,
    Protocol,
):
    """Everything at once; functions should ask for the smaller protocol that they need."""
