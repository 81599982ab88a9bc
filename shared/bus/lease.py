"""A lease: at most one holder, kept by compare-and-set on one subject.

The holder renews every 0.4 s and counts itself out 1.0 s after the *sending* of its last
successful renewal; a candidate takes over when its own monotonic clock saw no change for 1.5 s.
Clocks of different machines are never compared. What a holder does in the moment between losing
the lease and noticing it is refused by the fence (`leader`), not by the lease.
"""

import asyncio
from typing import Final, Never, Protocol

import msgspec

from shared.bus.errors import WrongSequence
from shared.bus.port import Lasting, Message, Publishing, Reading
from shared.contracts import codec
from shared.contracts.messages import LeaseRecord
from shared.contracts.versions import ContractError
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable

RETRY_S: Final = 0.05


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a lease; tests may not need to change them, the order must stay."""

    renew_s: float = 0.4
    stop_s: float = 1.0
    takeover_s: float = 1.5
    poll_s: float = 0.2
    answer_s: float = 0.5


class LeaseBus(Publishing, Reading, Lasting, Protocol):
    """What a lease needs of the bus."""


class LeaseLost(Exception):  # noqa: N818 - the fact
    """This process no longer holds the lease; the text says how it knows."""


class Lease:
    """One lease as one process sees it: candidate or holder.

    `holder` must be unique per process *life*: a restarted process is somebody else.
    """

    def __init__(
        self,
        bus: LeaseBus,
        *,
        stream: str,
        subject: str,
        holder: str,
        clock: Clock,
        timing: Timing | None = None,
    ) -> None:
        self._bus = bus
        self._publisher = bus.publisher(stream)
        self._stream = stream
        self._clock = clock
        self.subject: Final = subject
        self.holder: Final = holder
        self.timing: Final = timing or Timing()
        self._seen_sequence = -1
        self._seen_at = 0.0
        self._sequence = 0
        self._renewed_at = 0.0
        self._renewals = 0

    @property
    def sequence(self) -> int:
        """Return the sequence of the last successful write: grows from holder to holder."""
        return self._sequence

    @property
    def valid(self) -> bool:
        """Return whether this process may count itself as the holder at this moment."""
        return self._sequence > 0 and self._left_s() > 0

    async def acquire(self) -> None:
        """Return once this process holds the lease; waits for ever, over all interruptions."""
        while True:
            try:
                if await self.consider(await self._bus.last(self._stream, self.subject)):
                    return
            except Retryable:
                pass  # the bus says so in its own readiness; a candidate has nothing to add
            await self._clock.sleep(self.timing.poll_s)

    async def consider(self, message: Message | None) -> bool:
        """Look at the lease's last message and take the lease if it is free; return success."""
        now = self._clock.monotonic()
        if message is None:
            return await self._take(0)
        holder = _holder(message)
        if message.sequence != self._seen_sequence:
            self._seen_sequence, self._seen_at = message.sequence, now
        ours_or_free = holder in ("", self.holder)
        if ours_or_free or now - self._seen_at >= self.timing.takeover_s:
            return await self._take(message.sequence)
        return False

    async def keep(self) -> Never:
        """Renew until the lease is lost. Raises LeaseLost, at the latest at the holder's limit."""
        while True:
            wait_s = self._renewed_at + self.timing.renew_s - self._clock.monotonic()
            await self._clock.sleep(max(0.0, wait_s))
            if not self.valid:
                raise self._lost("no renewal in time")
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._renew()
            except TimeoutError as exc:
                raise self._lost("no answer to a renewal in time") from exc

    async def release(self) -> None:
        """Give the lease back, so that another takes it at once; best effort."""
        sequence, self._sequence = self._sequence, 0
        if sequence == 0:
            return
        try:
            async with asyncio.timeout(self.timing.answer_s):
                await self._write(sequence, holder="")
        except (WrongSequence, Retryable, TimeoutError):
            return  # somebody else has it, or will see that it is not renewed

    def _left_s(self) -> float:
        return self._renewed_at + self.timing.stop_s - self._clock.monotonic()

    def _lost(self, how: str) -> LeaseLost:
        self._sequence = 0
        return LeaseLost(f"lease {self.subject}: {how}")

    async def _take(self, expected: int) -> bool:
        sent_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self.timing.answer_s):
                self._sequence = await self._write(expected, holder=self.holder)
        except (WrongSequence, TimeoutError):
            return False  # another was faster; or ours is found by the next look
        self._renewed_at = sent_at
        return True

    async def _renew(self) -> None:
        """Renew once, however often it takes."""
        while True:
            sent_at = self._clock.monotonic()
            try:
                self._sequence = await self._write(self._sequence, holder=self.holder)
            except WrongSequence:
                await self._adopt()
            except Retryable:
                await self._clock.sleep(RETRY_S)
            else:
                self._renewed_at = sent_at
                return

    async def _adopt(self) -> None:
        """Go on behind an own write whose answer was lost. Raises LeaseLost if it is not ours."""
        try:
            message = await self._bus.last(self._stream, self.subject)
        except Retryable:
            return
        holder = _holder(message) if message else ""
        if message is None or holder != self.holder:
            raise self._lost(f"held by {holder or 'nobody'}")
        self._sequence = message.sequence

    async def _write(self, expected: int, *, holder: str) -> int:
        self._renewals += 1
        record = LeaseRecord(holder=holder, renewals=self._renewals, time=self._clock.now())
        ack = await self._publisher.publish(
            self.subject, codec.encode(record), expect_last=expected
        )
        return ack.sequence


def _holder(message: Message) -> str:
    """Return who holds the lease; a record that cannot be read is held by a stranger."""
    try:
        return codec.decode_lease(message.payload).holder
    except ContractError:
        return "a stranger"
