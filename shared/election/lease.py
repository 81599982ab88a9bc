"""A lease on the bus: at most one holder, written by compare-and-set on one subject.

The holder renews it every `renew_s`. It counts itself out `stop_s` after it has *sent* its last
successful renewal. A candidate takes the lease over when its own monotonic clock has seen no change
for `takeover_s`. Clocks of different machines are never compared. These times are long, so that a
busy machine does not lose a lease; they end a holder that is suspended or cut off from its server.

A dead holder is noticed sooner by its presence subject, on which it listens on the connection of
its renewals. The kernel closes the connection of a killed process, and from then on the server
answers a request to that subject with "no responders". A candidate asks ten times a second. It
takes the lease after `gone_s` of such answers without a renewal.

A holder that lives and has lost that connection releases the lease after `quiet_s`, which is less.
There are two cases in which it may not know in time: its process is suspended in that very moment,
or the server that it is connected to has lost the other servers. Then its fencing token is refused
(`leader_elector`), and its writes to the API server carry the uids and names that they were decided
on, so that what two owners do alike is done once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Never

import msgspec

from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.values import Message
from shared.contracts import codec
from shared.contracts.leases import LeaseRecord
from shared.contracts.versions import ContractError
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable, leaves
from shared.runtime.tasks import TaskGroup

RETRY_S: Final = 0.05


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a lease, in seconds: `renew_s` < `stop_s` < `takeover_s`, `quiet_s` < `gone_s`."""

    renew_s: float = 0.4
    """How often the holder renews."""
    stop_s: float = 2.0
    """How long the holder relies on its last renewal."""
    takeover_s: float = 3.0
    """How long a candidate waits for a change of the record."""
    poll_s: float = 0.1
    """How often a candidate reads the record."""
    answer_s: float = 0.5
    """How long the answer to a write is waited for."""
    quiet_s: float = 0.15
    """How long the holder's connection may be away."""
    gone_s: float = 0.3
    """How long the holder's presence subject must have had no listener."""


class LeaseLost(Exception):  # noqa: N818 - the fact
    """This process no longer holds the lease; the text says how it knows."""


class Lease:
    """One lease as one process sees it: candidate or holder."""

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subject: str,
        holder: str,
        clock: Clock,
        timing: LeaseTiming | None = None,
        presence: Callable[[str], str] | None = None,
    ) -> None:
        """Make it for `holder`, which names one *life* of a process: `<instance>.<life>`.

        `presence` gives the presence subject of a holder. The bus must listen on our own. Without
        it only their renewals show that holders are alive.
        """
        self._bus = bus
        self._publisher = bus.publisher(stream)
        self.stream: Final = stream
        self._clock = clock
        self.subject: Final = subject
        self.holder: Final = holder
        self.timing: Final = timing or LeaseTiming()
        self._presence = presence
        self._found_sequence = 0
        self._found_holder = ""
        self._seen_sequence = -1
        self._seen_time = 0.0
        self._seen_at = 0.0
        self._no_listener_since: float | None = None
        self._sequence = 0
        self._taking: int | None = None
        """Sequence that our write to take the lease expected, until its answer is known."""
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

    @property
    def dead_holder(self) -> tuple[str, int]:
        """Return another holder that has not released the lease that `observe` found free.

        With it comes the sequence of its last write. Without such a holder it is ("", 0).
        """
        other = self._found_holder not in ("", self.holder)
        return (self._found_holder, self._found_sequence) if other else ("", 0)

    async def acquire(self) -> None:
        """Return once this process holds the lease; waits forever, over all interruptions."""
        while True:
            read_at = self._clock.monotonic()
            try:
                if await find_free(self._bus, [self]) and await self.take():
                    return
            except* Retryable:
                pass  # the bus says so in its own readiness; a candidate has nothing to add
            left_s = read_at + self.timing.poll_s - self._clock.monotonic()
            await self._clock.sleep(max(RETRY_S, left_s))

    def presence_subject(self, message: Message | None) -> str:
        """Return the presence subject of the other holder in a record, "" if it has none."""
        if message is None or self._presence is None:
            return ""
        record = _record(message)
        if not record.present or record.holder in ("", self.holder):
            return ""
        return self._presence(record.holder)

    def observe(self, message: Message | None, *, no_listener: bool = False) -> bool:
        """Record the lease's last message; return whether the lease is free.

        `no_listener` says that the holder's presence subject has no listener.
        """
        now = self._clock.monotonic()
        self._found_sequence = message.sequence if message else 0
        self._found_holder = _record(message).holder if message else ""
        if message is None:
            return True
        # A copy of the stream that is behind returns an older record: that is no renewal.
        if message.sequence > self._seen_sequence or message.time > self._seen_time:
            self._seen_sequence, self._seen_time = message.sequence, message.time
            self._seen_at = now
            self._no_listener_since = None
        if not no_listener:
            self._no_listener_since = None
        elif self._no_listener_since is None:
            self._no_listener_since = now
        return self._found_holder in ("", self.holder) or self._is_dead(now)

    def _is_dead(self, now: float) -> bool:
        """Return whether the last holder seen counts as dead: no renewals, or no listener."""
        if now - self._seen_at >= self.timing.takeover_s:
            return True
        return (
            self._no_listener_since is not None
            and now - self._no_listener_since >= self.timing.gone_s
        )

    async def take(self) -> bool:
        """Take the lease that `observe` found free; return whether no other was faster."""
        sent_at = self._clock.monotonic()
        self._taking = expected = self._found_sequence
        try:
            async with asyncio.timeout(self.timing.answer_s):
                self._sequence = await self._write(expected, holder=self.holder)
        except TimeoutError:
            return False  # if it was stored nevertheless, the next `observe` finds it
        except WrongSequence:
            self._taking = None
            return False
        self._taking = None
        self._renewed_at = sent_at
        return True

    async def hold(
        self, body: Callable[[], Awaitable[None]], *, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        """Run `body` and renew the lease until `body` has ended, also after its cancellation.

        When the lease is lost, `on_lost` is called at once, `body` is cancelled, and LeaseLost is
        raised. What is raised comes in an exception group.
        """

        async def keep() -> None:
            try:
                await self.keep()
            except LeaseLost:
                on_lost()
                raise

        async with TaskGroup() as tasks:
            keeping = tasks.create_task(keep(), name="lease-keep")
            try:
                await body()
            finally:
                keeping.cancel()

    async def keep(self) -> Never:
        """Renew until the lease is lost. Raises LeaseLost, at the latest at the holder's limit."""
        first: BaseException = AssertionError("a lease is renewed for ever")
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._watch_connection(), name="lease-connection")
                tasks.create_task(self._renew_in_time(), name="lease-renewals")
        except* LeaseLost as lost:
            first = leaves(lost)[0]
        # Not inside of `except*`: before Python 3.11.4 that raises a group around it.
        raise first from None

    async def _watch_connection(self) -> Never:
        await self._bus.away(self.timing.quiet_s)
        raise self._lost(f"the connection to NATS was away for {self.timing.quiet_s:g} s")

    async def _renew_in_time(self) -> Never:
        while True:
            due = self._renewed_at + renewal_in_s(self._renewed_at, self.timing.renew_s)
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
            if not self.valid:
                raise self._lost("no renewal in time")
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._renew()
            except TimeoutError as exc:
                raise self._lost("no answer to a renewal in time") from exc

    async def release(self) -> None:
        """Give the lease back, so that another takes it at once; best effort.

        A cancellation may have cut short a renewal, or the write that takes the lease: the server
        stores such a write nevertheless, so this releases what it finds of this holder.
        """
        expected = self._sequence or self._taking
        self._sequence, self._taking = 0, None
        if expected is None:
            return
        try:
            async with asyncio.timeout(self.timing.answer_s):
                await self._give_back(expected)
        except (Retryable, TimeoutError):
            return  # another replica will see that it is not renewed

    async def _give_back(self, expected: int) -> None:
        """Write that the lease has no holder, unless it has another one than us."""
        while True:
            try:
                await self._write(expected, holder="")
            except WrongSequence:
                found = await self._bus.last(self.stream, self.subject)
            else:
                return
            if found is None or found.sequence <= expected:  # a copy that is behind
                await self._clock.sleep(RETRY_S)
            elif _record(found).holder == self.holder:
                expected = found.sequence
            else:
                return

    def _left_s(self) -> float:
        return self._renewed_at + self.timing.stop_s - self._clock.monotonic()

    def _lost(self, how: str) -> LeaseLost:
        self._sequence = 0
        return LeaseLost(f"lease {self.subject}: {how}")

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
            message = await self._bus.last(self.stream, self.subject)
        except Retryable:
            return
        holder = _record(message).holder if message else ""
        if message is None or holder != self.holder:
            raise self._lost(f"held by {holder or 'no process'}")
        self._sequence = message.sequence

    async def _write(self, expected: int, *, holder: str) -> int:
        self._renewals += 1
        record = LeaseRecord(
            holder=holder,
            renewals=self._renewals,
            time=self._clock.now(),
            present=self._presence is not None,
        )
        ack = await self._publisher.publish(
            self.subject, codec.encode(record), expect_last=expected
        )
        return ack.sequence


def renewal_in_s(renewed_at: float, renew_s: float) -> float:
    """Return after how many seconds to renew: at a multiple of `renew_s`, and never later than it.

    So all leases of a process are renewed in the same moments. A controller may hold sixteen: its
    process, and the server's, wake once for all of them.
    """
    wait_s = renew_s - renewed_at % renew_s
    return wait_s if wait_s >= renew_s / 10 else renew_s


async def find_free(bus: NatsBus, leases: Sequence[Lease]) -> list[Lease]:
    """Read leases of one stream at one moment and return those that are free.

    Raises the errors of the bus, alone or in an exception group.
    """
    if not leases:
        return []
    messages = await bus.snapshot(leases[0].stream, [lease.subject for lease in leases])
    found = {message.subject: message for message in messages}
    subjects = {lease: lease.presence_subject(found.get(lease.subject)) for lease in leases}
    async with TaskGroup() as group:
        listening = {
            subject: group.create_task(bus.listens(subject), name="presence")
            for subject in sorted(set(subjects.values()) - {""})
        }
    gone = {subject for subject, task in listening.items() if not task.result()}
    return [
        lease
        for lease in leases
        if lease.observe(found.get(lease.subject), no_listener=subjects[lease] in gone)
    ]


def instance_of(holder: str) -> str:
    """Return the instance whose life `holder` names: `<instance>.<life>`."""
    return holder.rpartition(".")[0] or holder


def _record(message: Message) -> LeaseRecord:
    """Return what a lease says; one that cannot be read belongs to an unknown holder."""
    try:
        return codec.decode_lease(message.payload)
    except ContractError:
        return LeaseRecord(holder="a stranger", renewals=0, time=0.0)
