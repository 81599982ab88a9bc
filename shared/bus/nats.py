"""The adapter: one `NatsBus` per process puts connection, inbox, streams and readers together.

A service builds it without any I/O, gives it to its parts and lists it among them: `run` connects
and keeps connected. Tests and the command line use `running(bus)` instead.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import msgspec
from nats.aio.msg import Msg

from pumice.events.tls import TlsClient, trusting
from shared.bus.api import Api
from shared.bus.client import Dial
from shared.bus.connection import BusConnection, BusCredentials, BusOptions, BusSession, StatusHook
from shared.bus.errors import NoReply, StreamMissing
from shared.bus.feed import Feeds
from shared.bus.fenced import FencedPublishes, FencedStreams
from shared.bus.follower import Follower
from shared.bus.listener import Listener
from shared.bus.pace import Pace
from shared.bus.publisher import Publisher
from shared.bus.puller import Puller
from shared.bus.quorum import QuorumCheck
from shared.bus.replies import Outgoing, Replies
from shared.bus.sender import StreamSender
from shared.bus.stored import StoredMessages
from shared.bus.streams import DeclaredStreams, unfit
from shared.bus.values import (
    LAST_PER_SUBJECT,
    BusRequest,
    FollowItem,
    FromSequence,
    FromTime,
    Message,
    Start,
    StreamInfo,
)
from shared.contracts.permissions import inbox_prefix
from shared.contracts.streams import ConsumerSpec, StreamSpec, streams
from shared.runtime.clock import Clock
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

FINAL_MESSAGES_S: Final = 2.0
"""How long an ending process keeps its connection for parts that have a last message to send."""

NO_RESPONDERS_S: Final = 0.1
"""How long the server has to answer "no responders"; a listener itself never answers."""


def client_tls(*, ca: str, cert: str = "", key: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts `ca` and, if given, shows our own certificate.

    Raises Rejected.
    """
    try:
        context = trusting(ca)
        if cert:
            context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as exc:
        files = ", ".join(file for file in (ca, cert, key) if file)
        raise Rejected(f"cannot use {files} for TLS to NATS: {exc}", field="nats_ca") from exc
    return context


def from_settings(
    settings: CommonSettings,
    *,
    service: str,
    instance: str,
    clock: Clock,
    log: Logger,
    on_status: StatusHook,
    on_request: Callable[[str], None] = lambda _: None,
    on_refused: Callable[[str, str], None] = lambda _stream, _reason: None,
    dial: Dial = TlsClient,
) -> "NatsBus":
    """Return the bus of a service as its settings say; nothing is connected yet.

    `on_status` is usually a readiness gate's `set`; `on_request` is called for each request to the
    JetStream API, and `on_refused` of streams that have no room for a reader; `dial` makes the
    connections' clients.
    """
    credentials = BusCredentials(
        user=lambda: settings.nats_user, password=settings.nats_password.reveal
    )
    tls = None
    if settings.nats_ca:
        tls = partial(
            client_tls, ca=settings.nats_ca, cert=settings.nats_cert, key=settings.nats_key
        )
        tls()  # what is wrong from the start ends it at once
    options = BusOptions(
        url=settings.nats,
        name=instance,
        inbox=inbox_prefix(settings.nats_user or service),
        credentials=credentials if settings.nats_user else None,
        tls=tls,
        on_request=on_request,
        on_refused=on_refused,
        copied=streams(settings.cluster).lease.name,
    )
    return NatsBus(options, clock=clock, log=log, on_status=on_status, dial=dial)


class NatsBus:
    """The bus on NATS JetStream: publishes, follows streams, pulls work queues, shows presence."""

    def __init__(
        self,
        options: BusOptions,
        *,
        clock: Clock,
        log: Logger,
        on_status: StatusHook,
        rng: random.Random | None = None,
        dial: Dial = TlsClient,
        name: str = "bus",
        presence: str = "",
    ) -> None:
        """`rng` spreads reconnects and names inboxes; `dial` makes the connections' clients.

        On the subject `presence` it listens whenever it is connected, for `listens` of others.
        """
        rng = rng or random.SystemRandom()
        self.name: Final = name
        self._options = options
        self._rng = rng
        self._dial = dial
        self._presence = presence
        self._clock = clock
        self._bare_log = log
        self._log = log.bind(part=name)
        self._final_senders = 0
        self._no_final_senders = asyncio.Event()
        self._no_final_senders.set()
        self._id = f"{rng.randrange(16**12):012x}"
        self._count = 0
        self._inbox = f"{options.inbox}.{self._id}"
        self._fenced = FencedStreams(self._fenced_publishes)
        self._replies = Replies(inbox=self._inbox, clock=clock)
        self._api = Api(self._replies)
        self._declared = DeclaredStreams(self._api, clock=clock, log=self._log)
        self._connection = BusConnection(
            options,
            log=self._log,
            on_status=on_status,
            on_error=self._on_error,
            prepare=self._prepare,
            rng=rng,
            dial=dial,
        )
        self._feeds = Feeds(self._connection, self._api, names=self._name, inboxes=self._feed_inbox)
        self._quorum = (
            QuorumCheck(self._connection, self._api, stream=options.copied, clock=clock)
            if options.copied
            else None
        )

    def second_connection(self, name: str, *, presence: str, on_status: StatusHook) -> "NatsBus":
        """Return a bus of its own connection to the same servers as the same user."""
        return NatsBus(
            msgspec.structs.replace(self._options, name=f"{self._options.name}/{name}"),
            clock=self._clock,
            log=self._bare_log,
            on_status=on_status,
            rng=self._rng,
            dial=self._dial,
            name=name,
            presence=presence,
        )

    async def run(self) -> None:
        """Keep the connection, the time-outs and the streams, forever (a part of the service)."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._replies.run(), name="bus-replies")
            tasks.create_task(self._declared.run(), name="bus-streams")
            tasks.create_task(self._connection.run(), name="bus-connection")
            tasks.create_task(self._fenced.run(), name="bus-fenced")
            if self._quorum is not None:
                tasks.create_task(self._quorum.run(), name="bus-quorum")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await self._await_final_messages()
                raise

    @contextmanager
    def final_messages(self) -> Iterator[None]:
        """Keep the connection open while in the block, also when the process is ending.

        All parts of a service are cancelled at once; a lease that is given back, or a member's last
        announcement, still needs the bus then. It waits for them, but not forever.
        """
        self._final_senders += 1
        self._no_final_senders.clear()
        try:
            yield
        finally:
            self._final_senders -= 1
            if self._final_senders == 0:
                self._no_final_senders.set()

    async def _await_final_messages(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINAL_MESSAGES_S):
                await self._no_final_senders.wait()

    async def connected(self) -> None:
        """Return once there is a connection to the server."""
        await self._connection.session()

    @property
    def unanswered(self) -> int:
        """Return how many requests to the server are open, for metrics."""
        return self._replies.unanswered

    async def ensure_streams(self, specs: Sequence[StreamSpec]) -> None:
        """Create or update streams, now and after each reconnect; never deletes one.

        Raises Rejected when a stream exists with a setting that cannot be changed.
        """
        await self._connection.session()
        await self._declared.declare(tuple(specs))

    async def ensure_consumers(self, specs: Sequence[ConsumerSpec]) -> None:
        """Create or update durable consumers, now and after each reconnect."""
        await self._connection.session()
        await self._declared.declare_consumers(tuple(specs))

    async def unfit(self, spec: StreamSpec) -> str:
        """Return why a stream cannot serve as declared (missing, different), or "".

        Raises Retryable when the server does not say.
        """
        return await unfit(self._api, spec)

    async def info(self, stream: str) -> StreamInfo:
        """Return a stream's state. Raises StreamMissing."""
        return (await self._api.stream(stream)).info

    async def purge(self, stream: str, subject: str, *, before_seq: int = 0) -> int:
        """Remove the messages of a subject (wildcards allowed); return how many.

        With `before_seq` only those with a lower sequence, so that one which comes in the very
        moment stays.
        """
        return await self._api.purge(stream, subject, before_seq=before_seq)

    def publisher(self, stream: str) -> Publisher:
        """Return a publisher to `stream`; the ones of a connection share its bound in flight."""
        return Publisher(self._sender(stream), fenced=self._fenced)

    def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        start: Start = LAST_PER_SUBJECT,
        pace: Pace | None = None,
    ) -> AsyncGenerator[FollowItem, None]:
        """Yield what is stored and then what comes, in order until cancelled.

        What comes is yielded at once, or as `pace` says.

        Survives reconnects, restarts of the server and re-creation of the stream; see `Reset`.
        Leave it early under `contextlib.aclosing`.
        """
        follower = Follower(
            stream,
            subjects,
            start=start,
            pace=pace,
            feeds=self._feeds,
            on_refused=self._options.on_refused,
            clock=self._clock,
            log=self._log,
        )
        return follower.items()

    def stored(
        self, stream: str, subjects: Sequence[str], *, start: FromSequence | FromTime
    ) -> StoredMessages:
        """Return a reader of what a stream holds, which takes none of its consumers."""
        return StoredMessages(
            stream, subjects, start=start, api=self._api, clock=self._clock, log=self._log
        )

    def listen(self, subject: str) -> AsyncGenerator[bytes, None]:
        """Yield the payloads of messages as they come until cancelled.

        Those that come while there is no connection are missed. Leave it early under
        `contextlib.aclosing`.
        """
        return self._listener(subject).payloads()

    def requests(self, subject: str) -> AsyncGenerator[BusRequest, None]:
        """Yield the requests of other users as they come until cancelled, as `listen` does."""
        return self._listener(subject).requests()

    async def reply(self, request: BusRequest, payload: bytes) -> None:
        """Reply to a request. Raises TooLarge and NoReply."""
        await self._replies.send(Outgoing(request.reply, payload))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Return the reply of the user that takes the requests on a subject.

        Raises StreamMissing when there is none, NoReply when it does not reply in time, TooLarge.
        """
        message = Outgoing(subject, payload)
        return (await (await self._replies.request(message, timeout_s=timeout_s))).payload

    async def last(self, stream: str, subject: str) -> Message | None:
        """Return the last message of a subject, or None. Raises StreamMissing, NoReply."""
        return await self._api.message(stream, last_by_subj=subject)

    async def snapshot(self, stream: str, subjects: Sequence[str]) -> list[Message]:
        """Return the last message of each subject that matches, at one moment (at most 1024)."""
        return await self._api.last_messages(stream, list(subjects))

    async def get(self, stream: str, sequence: int) -> Message | None:
        """Return the message with that sequence, or None when it is gone."""
        return await self._api.message(stream, seq=sequence)

    async def scan(
        self, stream: str, subject: str, *, from_seq: int = 1
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of a subject from `from_seq` up to the last that there is now.

        Works on work queues too, where a second consumer is not allowed.
        """
        last = (await self.info(stream)).last_seq
        sequence = from_seq
        while sequence <= last:
            message = await self._api.message(stream, seq=sequence, next_by_subj=subject)
            if message is None or message.sequence > last:
                return
            yield message
            sequence = message.sequence + 1

    def pull(self, consumer: ConsumerSpec, *, batch: int = 16) -> Puller:
        """Return a puller; at most `batch` messages are in this process's hands unasked."""
        return Puller(
            consumer,
            batch=batch,
            feeds=self._feeds,
            final_messages=self.final_messages,
            clock=self._clock,
            log=self._log,
        )

    async def listens(self, subject: str) -> bool:
        """Return False when the server knows no listener on `subject`, else True.

        Raises NoReply when it cannot be asked.
        """
        try:
            await (await self._replies.request(Outgoing(subject, b""), timeout_s=NO_RESPONDERS_S))
        except StreamMissing:
            return False
        except NoReply:
            if self._connection.current is None:
                raise
        return True

    async def away(self, for_s: float) -> None:
        """Return when there has been no connection for `for_s`."""
        await self._connection.away(for_s)

    def _listener(self, subject: str) -> Listener:
        return Listener(subject, connection=self._connection, clock=self._clock, log=self._log)

    def _sender(self, stream: str) -> StreamSender:
        return StreamSender(stream, self._replies, on_missing=self._declared.check_soon)

    def _fenced_publishes(self, stream: str) -> FencedPublishes:
        return FencedPublishes(
            self._sender(stream), self._api, clock=self._clock, unique_name=self._name
        )

    async def _prepare(self, session: BusSession) -> None:
        """Make a new session usable before it is handed out."""
        if self._presence:
            await session.client.subscribe(self._presence, cb=_no_reply)
        await self._replies.attach(session)
        try:
            await self._api.jetstream()
        except StreamMissing as exc:
            raise NoReply("JetStream is off or not up yet (nats-server -js)") from exc
        if self._quorum is not None:
            await self._quorum.check()
        self._declared.check_soon()

    def _on_error(self, error: str) -> None:
        if (
            self._connection.current is not None
        ):  # a failed attempt is logged once, by the connection
            self._log.warning("nats_error", error=error)
        self._replies.refused(error)

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._id}-{self._count}"

    def _feed_inbox(self) -> str:
        self._count += 1
        return f"{self._inbox}f.{self._count}"


async def _no_reply(_: Msg) -> None:
    """Send no reply: the request only checks whether there is a listener."""


@asynccontextmanager
async def running(bus: NatsBus) -> AsyncGenerator[NatsBus, None]:
    """Run `bus` for the length of a block, connected at its start (tests, command line)."""
    try:
        async with TaskGroup() as tasks:
            task = tasks.create_task(bus.run(), name="bus")
            await bus.connected()
            yield bus
            task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
