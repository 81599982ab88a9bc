"""An elector for a role: one replica leads, and it alone may publish to fenced streams.

A leader writes one message on `<stream>.leader` of each fenced stream. The sequence of that message
is the fencing token that every publish of the term carries, and the server refuses a publish with
an older one. So a leader that was suspended and wakes up changes nothing.

That message is written by compare-and-set too, on what was read while the lease was valid: a
process that was suspended between taking the lease and writing it cannot fence out its successor.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.values import FencingToken, Message
from shared.contracts import codec
from shared.contracts.messages import LeaderRecord
from shared.contracts.versions import ContractError
from shared.election.lease import Lease, LeaseLost
from shared.runtime.clock import Clock
from shared.runtime.errors import Broken, Retryable, leaves
from shared.runtime.logs import Logger
from shared.runtime.tasks import in_own_task

RETRY_S: Final = 0.1


class FencedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that only the leader may publish to, and the subject of its fencing tokens."""

    stream: str
    subject: str
    rollup: bool = False
    """Whether a new leader's message replaces those before it, in a stream that keeps all."""


class LeadershipTerm(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which one process leads; a process that leads again has a new term."""

    number: int
    """Grows from term to term over all processes: the lease's sequence at the beginning."""
    tokens: Mapping[str, FencingToken]
    """Per stream."""
    time: float = 0.0
    """When it began, as its messages on the fenced streams say, Unix seconds."""
    previous: str = ""
    """Instance that led before, as far as the streams still say; "" when they do not."""

    def token(self, stream: str) -> FencingToken:
        """Return the token for publishes to `stream`. Raises Broken."""
        token = self.tokens.get(stream)
        if token is None:
            raise Broken(f"this leader does not fence stream {stream}")
        return token


Body = Callable[[LeadershipTerm], Awaitable[None]]


class LeaderElector:
    """Runs a body while this process leads, and stands by while another does."""

    def __init__(
        self,
        bus: NatsBus,
        lease: Lease,
        *,
        fenced: Sequence[FencedStream],
        service: str,
        instance: str,
        clock: Clock,
        log: Logger,
        on_change: Callable[[LeadershipTerm | None], None] = lambda _: None,
    ) -> None:
        """`on_change` is called with each term of this process, and with None at its end."""
        self._bus = bus
        self._lease = lease
        self._fenced = tuple(fenced)
        self._service = service
        self._instance = instance
        self._clock = clock
        self._log = log.bind(lease=lease.subject)
        self._on_change = on_change
        self._previous = ""

    async def run(self, body: Body) -> None:
        """Lead whenever possible until cancelled; returns when `body` does.

        `body` is cancelled when the lease is lost. A WrongSequence (its publish was refused) or
        Retryable (the bus is unavailable) that it raises ends the term, not the service: the next
        term begins from the start. Any other exception is raised.
        """
        with self._bus.final_messages():
            while not await self._lead_once(body):
                await self._clock.sleep(RETRY_S)

    async def _lead_once(self, body: Body) -> bool:
        """Wait for the lease and lead one term; return whether `body` ended by itself."""
        try:
            await self._lease.acquire()
            await in_own_task(
                partial(self._lease.hold, partial(self._lead_term, body)), name="leader"
            )
        except* LeaseLost as lost:
            self._log.warning("leadership_lost", reason=str(leaves(lost)[0]))
        except* WrongSequence as refused:
            self._log.warning("leader_refused", reason=str(leaves(refused)[0]))
        except* Retryable as errors:
            self._log.warning("leadership_interrupted", reason=str(leaves(errors)[0]))
        else:
            return True
        finally:
            await self._lease.release()  # does nothing when it is lost
        return False

    async def _lead_term(self, body: Body) -> None:
        """Lead until `body` ends or the lease is lost."""
        begun = self._clock.now()
        try:
            tokens = {each.stream: await self._fence(each, begun) for each in self._fenced}
            term = LeadershipTerm(
                number=self._lease.sequence, tokens=tokens, time=begun, previous=self._previous
            )
            self._log.info("leadership_begun", term=term.number, instance=self._instance)
            self._on_change(term)
            await body(term)
        finally:
            self._on_change(None)

    async def _fence(self, fenced: FencedStream, begun: float) -> FencingToken:
        """Write this leader's message on a fenced stream; return its token. Raises LeaseLost."""
        publisher = self._bus.publisher(fenced.stream)
        record = LeaderRecord(service=self._service, instance=self._instance, time=begun)
        while True:
            try:
                last = await self._bus.last(fenced.stream, fenced.subject)
                self._previous = _instance(last)
                if not self._lease.valid:
                    raise LeaseLost(f"lease {self._lease.subject}: ended before the first message")
                ack = await publisher.publish(
                    fenced.subject,
                    codec.encode(record),
                    expect_last=last.sequence if last else 0,
                    rollup=fenced.rollup,
                )
            except (WrongSequence, Retryable) as exc:
                self._log.info("leader_record_delayed", stream=fenced.stream, reason=str(exc))
                await self._clock.sleep(RETRY_S)
            else:
                return FencingToken(
                    stream=fenced.stream, subject=fenced.subject, sequence=ack.sequence
                )


def _instance(record: Message | None) -> str:
    """Return the writer of a leader's message, "" when that cannot be read."""
    try:
        return codec.decode_leader(record.payload).instance if record else ""
    except ContractError:
        return ""
