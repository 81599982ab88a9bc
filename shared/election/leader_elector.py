"""Leadership: a lease, and with it the right to publish to fenced streams.

A leader writes one message on `<stream>.leader` of each fenced stream; its sequence is the token
that every publish of the term carries, and the server refuses a publish with an older one. So a
leader that was frozen and wakes up can do no harm, whatever it believes.

The mark itself is written by compare-and-set, on what was read while the lease was valid: a
process that was frozen between taking the lease and writing its mark cannot fence out its
successor.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from shared.bus.errors import WrongSequence
from shared.bus.port import Message, Token
from shared.contracts import codec
from shared.contracts.messages import Leader
from shared.contracts.versions import ContractError
from shared.election.lease import Lease, LeaseBus, LeaseLost
from shared.runtime.clock import Clock
from shared.runtime.errors import Broken, Retryable, leaves
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup, in_own_task

RETRY_S: Final = 0.1


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that only the leader may publish to, and the subject that guards it."""

    stream: str
    subject: str
    rollup: bool = False
    """Whether a mark takes the place of those before it, in a stream that keeps all messages."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which one process leads; a process that leads again has a new term."""

    number: int
    """Grows from term to term over all processes: the lease's sequence at the beginning."""
    tokens: Mapping[str, Token]
    """Per stream."""
    time: float = 0.0
    """The time in its marks."""
    previous: str = ""
    """Instance that led before, as far as the streams still say; "" when they do not."""

    def token(self, stream: str) -> Token:
        """Return the fence for publishes to `stream`."""
        token = self.tokens.get(stream)
        if token is None:
            raise Broken(f"this leader does not fence stream {stream}")
        return token


Body = Callable[[Term], Awaitable[None]]


class Leadership:
    """Runs a body while this process leads, and stands by while another does."""

    def __init__(
        self,
        bus: LeaseBus,
        lease: Lease,
        *,
        fences: Sequence[Fence],
        service: str,
        instance: str,
        clock: Clock,
        log: Logger,
        on_change: Callable[[Term | None], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._lease = lease
        self._fences = tuple(fences)
        self._service = service
        self._instance = instance
        self._clock = clock
        self._log = log.bind(lease=lease.subject)
        self._on_change = on_change
        self._previous = ""

    async def run(self, body: Body) -> None:
        """Lead whenever possible, for ever; returns when `body` does.

        `body` is cancelled when the lease is lost. A WrongSequence (its publish was refused) or
        Retryable (the bus is away) that it raises ends the term, not the service: the next term
        begins from the start. Any other exception is raised.
        """
        with self._bus.final_messages():
            while not await self._lead_once(body):
                await self._clock.sleep(RETRY_S)

    async def _lead_once(self, body: Body) -> bool:
        """Wait for the lease and lead one term; return whether `body` ended by itself."""
        ended = False
        try:
            await self._lease.acquire()
            ended = await in_own_task(partial(self._lead_term, body), name="term")
        except* LeaseLost as lost:
            self._log.warning("leadership_lost", reason=str(leaves(lost)[0]))
        except* WrongSequence as refused:
            self._log.warning("leader_refused", reason=str(leaves(refused)[0]))
        except* Retryable as trouble:
            self._log.warning("leadership_interrupted", reason=str(leaves(trouble)[0]))
        finally:
            await self._lease.release()  # does nothing when it is lost
        return ended

    async def _lead_term(self, body: Body) -> bool:
        """Lead until the end of the term; return whether `body` ended by itself."""
        ended = False

        async def govern() -> None:
            nonlocal ended
            begun = self._clock.now()
            tokens = {fence.stream: await self._mark(fence, begun) for fence in self._fences}
            term = Term(
                number=self._lease.sequence, tokens=tokens, time=begun, previous=self._previous
            )
            self._log.info("leadership_begun", term=term.number, instance=self._instance)
            self._on_change(term)
            await body(term)
            ended = True
            keeping.cancel()

        try:
            async with TaskGroup() as tasks:
                keeping = tasks.create_task(self._lease.keep(), name="lease-keep")
                tasks.create_task(govern(), name="leader")
        finally:
            self._on_change(None)
        return ended

    async def _mark(self, fence: Fence, begun: float) -> Token:
        """Write this leader's message on a fenced stream. Raises LeaseLost."""
        publisher = self._bus.publisher(fence.stream)
        while True:
            try:
                last = await self._bus.last(fence.stream, fence.subject)
                self._previous = _instance(last)
                if not self._lease.valid:
                    raise LeaseLost(f"lease {self._lease.subject}: ended before the mark")
                mark = Leader(service=self._service, instance=self._instance, time=begun)
                ack = await publisher.publish(
                    fence.subject,
                    codec.encode(mark),
                    expect_last=last.sequence if last else 0,
                    rollup=fence.rollup,
                )
            except (WrongSequence, Retryable) as exc:
                self._log.info("leader_mark_delayed", stream=fence.stream, reason=str(exc))
                await self._clock.sleep(RETRY_S)
            else:
                return Token(stream=fence.stream, subject=fence.subject, sequence=ack.sequence)


def _instance(mark: Message | None) -> str:
    """Return the writer of a leader's mark, "" when that cannot be read."""
    try:
        return codec.decode_leader(mark.payload).instance if mark else ""
    except ContractError:
        return ""
