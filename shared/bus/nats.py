"""The adapter: one `NatsBus` per process puts connection, inbox, streams and readers together.

A service builds it without any I/O, gives it to its parts and lists it among them: `run` connects
and keeps connected. Tests and the command line use `running(bus)` instead.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from nats.aio.client import Client

from shared.bus.api import Api
from shared.bus.client import Dial
from shared.bus.connection import Connection, Credentials, Options, Session, StatusHook
from shared.bus.errors import NoAnswer, StreamMissing
from shared.bus.follower import Follower
from shared.bus.port import (
    LAST_PER_SUBJECT,
    FollowItem,
    Message,
    Start,
    StreamInfo,
)
from shared.bus.publisher import NatsPublisher
from shared.bus.puller import NatsPuller
from shared.bus.replies import Replies
from shared.bus.streams import Keeper
from shared.contracts.permissions import inbox_prefix
from shared.contracts.streams import ConsumerSpec, StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger

LAST_WORDS_S: Final = 2.0
"""How long an ending process keeps its connection for those with something left to say."""


def client_tls(*, ca: str, cert: str = "", key: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts `ca` and, if given, shows our own certificate.

    Python 3.13's strict X.509 checks are off, as towards the API server: a NATS server's authority
    need not have the extensions that it asks for.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as exc:
        files = ", ".join(file for file in (ca, cert, key) if file)
        raise Rejected(f"cannot use {files} for TLS to NATS: {exc}", field="nats_ca") from exc
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def from_settings(
    settings: CommonSettings,
    *,
    service: str,
    instance: str,
    clock: Clock,
    log: Logger,
    on_status: StatusHook,
) -> "NatsBus":
    """Return the bus of a service as its settings say; nothing is connected yet.

    `on_status` is usually a readiness gate's `set`.
    """
    credentials = Credentials(
        user=lambda: settings.nats_user, password=settings.nats_password.reveal
    )
    tls = None
    if settings.nats_ca:
        tls = client_tls(ca=settings.nats_ca, cert=settings.nats_cert, key=settings.nats_key)
    options = Options(
        url=settings.nats,
        name=instance,
        inbox=inbox_prefix(settings.nats_user or service),
        credentials=credentials if settings.nats_user else None,
        tls=tls,
    )
    return NatsBus(options, clock=clock, log=log, on_status=on_status)


class NatsBus:
    """The bus on NATS JetStream; satisfies `port.Bus`."""

    name: Final = "bus"

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock,
        log: Logger,
        on_status: StatusHook,
        rng: random.Random | None = None,
        dial: Dial = Client,
    ) -> None:
        """`rng` spreads reconnects and names inboxes; `dial` makes the connections' clients."""
        rng = rng or random.SystemRandom()
        self._clock = clock
        self._log = log.bind(part="bus")
        self._speakers = 0
        self._silent = asyncio.Event()
        self._silent.set()
        self._id = f"{rng.randrange(16**12):012x}"
        self._count = 0
        self._inbox = f"{options.inbox}.{self._id}"
        self._replies = Replies(inbox=self._inbox, clock=clock)
        self._api = Api(self._replies)
        self._keeper = Keeper(self._api, clock=clock, log=self._log)
        self._connection = Connection(
            options,
            log=self._log,
            on_status=on_status,
            on_error=self._on_error,
            prepare=self._prepare,
            rng=rng,
            dial=dial,
        )

    async def run(self) -> None:
        """Keep the connection, the time-outs and the streams, for ever (a part of the service)."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._replies.run(), name="bus-replies")
            tasks.create_task(self._keeper.run(), name="bus-streams")
            tasks.create_task(self._connection.run(), name="bus-connection")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await self._hear_out()
                raise

    @contextmanager
    def last_words(self) -> Iterator[None]:
        """See `port.Lasting`."""
        self._speakers += 1
        self._silent.clear()
        try:
            yield
        finally:
            self._speakers -= 1
            if self._speakers == 0:
                self._silent.set()

    async def _hear_out(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._silent.wait()

    async def connected(self) -> None:
        """See `port.Bus`."""
        await self._connection.session()

    @property
    def unanswered(self) -> int:
        """Return how many questions to the server are open, for metrics."""
        return self._replies.unanswered

    async def ensure_streams(self, specs: Sequence[StreamSpec]) -> None:
        """See `port.Declaring`."""
        await self._connection.session()
        await self._keeper.declare(tuple(specs))

    async def info(self, stream: str) -> StreamInfo:
        """See `port.Declaring`."""
        return (await self._api.stream(stream)).info

    async def purge(self, stream: str, subject: str, *, before_seq: int = 0) -> int:
        """See `port.Declaring`."""
        return await self._api.purge(stream, subject, before_seq=before_seq)

    def publisher(self, stream: str) -> NatsPublisher:
        """See `port.Publishing`."""
        return NatsPublisher(stream, self._replies, on_missing=self._keeper.poke)

    def follow(
        self, stream: str, subjects: Sequence[str], *, start: Start = LAST_PER_SUBJECT
    ) -> AsyncGenerator[FollowItem, None]:
        """See `port.Reading`."""
        follower = Follower(
            stream,
            subjects,
            start=start,
            connection=self._connection,
            api=self._api,
            names=self._name,
            inboxes=self._feed_inbox,
            clock=self._clock,
            log=self._log,
        )
        return follower.items()

    async def last(self, stream: str, subject: str) -> Message | None:
        """See `port.Reading`."""
        return await self._api.message(stream, last_by_subj=subject)

    async def snapshot(self, stream: str, subjects: Sequence[str]) -> list[Message]:
        """See `port.Reading`."""
        return await self._api.last_messages(stream, list(subjects))

    async def get(self, stream: str, sequence: int) -> Message | None:
        """See `port.Reading`."""
        return await self._api.message(stream, seq=sequence)

    async def scan(
        self, stream: str, subject: str, *, from_seq: int = 1
    ) -> AsyncGenerator[Message, None]:
        """See `port.Reading`."""
        last = (await self.info(stream)).last_seq
        sequence = from_seq
        while sequence <= last:
            message = await self._api.message(stream, seq=sequence, next_by_subj=subject)
            if message is None or message.sequence > last:
                return
            yield message
            sequence = message.sequence + 1

    def pull(self, consumer: ConsumerSpec, *, batch: int = 16) -> NatsPuller:
        """See `port.Pulling`."""
        return NatsPuller(
            consumer,
            batch=batch,
            connection=self._connection,
            api=self._api,
            inboxes=self._feed_inbox,
            last_words=self.last_words,
            clock=self._clock,
            log=self._log,
        )

    async def _prepare(self, session: Session) -> None:
        """Make a new session usable before anybody sees it."""
        await self._replies.attach(session)
        try:
            await self._api.jetstream()
        except StreamMissing as exc:
            raise NoAnswer("JetStream is off or not up yet (nats-server -js)") from exc
        self._keeper.poke()

    def _on_error(self, error: str) -> None:
        if self._connection.current is not None:  # a failed attempt is told once, by the connection
            self._log.warning("nats_error", error=error)
        self._replies.refused(error)

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._id}-{self._count}"

    def _feed_inbox(self) -> str:
        self._count += 1
        return f"{self._inbox}f.{self._count}"


@asynccontextmanager
async def running(bus: NatsBus) -> AsyncGenerator[NatsBus, None]:
    """Run `bus` for the length of a block, connected at its start (tests, command line)."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(bus.run(), name="bus")
            await bus.connected()
            yield bus
            task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
