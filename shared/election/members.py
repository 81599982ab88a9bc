"""Live processes: each announces itself every second with the versions that it reads.

An announcement has a time to live, so that a dead process disappears by itself. A process that ends
in order announces its end. The live members share out the partitions and are listed by `pumice
status`. A process is not ready while one of them does not accept the version that it writes.
"""

import asyncio
from typing import Final

import msgspec

from shared.bus.errors import NoReply, NotPermitted
from shared.bus.nats import NatsBus
from shared.bus.storage_gate import StorageGate
from shared.bus.values import Message
from shared.contracts import codec
from shared.contracts.leases import ServiceReplica
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ACCEPTED, CURRENT, ContractError
from shared.election.lease import instance_of
from shared.runtime.errors import Retryable
from shared.runtime.service import Context

EVERY_S: Final = 1.0
TTL_S: Final = 4
SILENT_S: Final = 3.0
"""A member whose announcement did not change for this long is not counted as alive."""


class _Seen(msgspec.Struct, frozen=True):
    """The last announcement of a member."""

    sequence: int
    stored_at: float
    """By the server's clock."""
    at: float
    """When it was read first, monotonic."""
    member: ServiceReplica

    def is_older(self, message: Message) -> bool:
        """Tell whether a message is newer: a copy of the stream that is behind returns old ones."""
        return message.sequence > self.sequence or message.time > self.stored_at


class Members:
    """Announces this process and knows the others; `run` is a part of the service."""

    name: Final = "members"

    def __init__(
        self,
        bus: NatsBus,
        context: Context,
        *,
        subjects: Subjects,
        accepts: frozenset[int] = ACCEPTED,
        storage: StorageGate | None = None,
    ) -> None:
        """Make it for the process of `context`; `storage` learns whether announcements are stored.

        The gate `versions` is shut while a live member does not accept the version that this
        process writes.
        """
        self._bus = bus
        self._stream = streams(subjects.cluster).lease.name
        self._publisher = bus.publisher(self._stream)
        self._all = subjects.members
        self._service = context.service
        self._instance = context.instance
        self._subject = subjects.member(self._service, self._instance)
        self._accepts = tuple(sorted(accepts))
        self._clock = context.clock
        self._log = context.log
        self.gate: Final = context.readiness.gate("versions")
        self._storage = storage
        self._seen: dict[str, _Seen] = {}
        self._dead: dict[str, int | None] = {}
        """Per dead instance, its last announcement; None until the members are read once more.

        It may have announced itself after they were read last, and before it died.
        """
        self._lost: dict[str, int] = {}
        """Per instance, the last sequence among the leases over which it was found dead."""
        self._known = asyncio.Event()

    async def run(self) -> None:
        """Announce and read the announcements every second until cancelled; withdraw at the end.

        The first round is as early as the connection, and so is the first after an interruption.
        """
        with self._bus.final_messages():
            try:
                while True:
                    await self._bus.connected()
                    await self._round()
                    await self._clock.sleep(EVERY_S)
            finally:
                await self._withdraw()

    async def known(self) -> None:
        """Return once the members have been read for the first time."""
        await self._known.wait()

    def live(self, service: str | None = None) -> list[ServiceReplica]:
        """Return the live members, of one service or all, sorted by service and instance."""
        oldest = self._clock.monotonic() - SILENT_S
        members = [
            seen.member
            for seen in self._seen.values()
            if seen.at >= oldest
            and self._dead.get(seen.member.instance, 0) not in (None, seen.sequence)
        ]
        chosen = [member for member in members if service in (None, member.service)]
        return sorted(chosen, key=lambda member: (member.service, member.instance))

    def note_death(self, holder: str, sequence: int) -> None:
        """Count the member whose lease ran out as dead until it announces itself again.

        `sequence` is that of the lease's last message. A lease that has run out is seen as such
        until it is taken, which is no second death. This process is not dead.
        """
        name = instance_of(holder)
        if name == self._instance or sequence <= self._lost.get(name, 0):
            return
        self._lost[name] = sequence
        self._dead[name] = None
        if any(seen.member.instance == name for seen in self._seen.values()):
            self._log.info("member_dead", member=name, reason="its lease ran out")

    async def _round(self) -> None:
        try:
            is_stored = await self._is_announced()
            dead = [name for name, sequence in self._dead.items() if sequence is None]
            found = await self._bus.snapshot(self._stream, [self._all])
        except NotPermitted:
            raise
        except Retryable as exc:
            self._log.debug("members_delayed", reason=str(exc))
            return
        if self._storage is not None and not is_stored:
            self._storage.note_unanswered()
        self._take(found, dead)
        self._check_versions()
        self._known.set()

    def _check_versions(self) -> None:
        """Shut the gate while a live member cannot read what this process writes."""
        unable = [each.instance for each in self.live() if CURRENT not in each.accepts]
        names = ", ".join(unable)
        reason = f"messages of version {CURRENT} are not read by: {names}" if unable else ""
        if (self.gate.ok, self.gate.reason) == (not unable, reason):
            return
        if unable:
            self._log.warning("members_too_old", members=names, version=CURRENT)
        self.gate.set(not unable, reason)

    async def _is_announced(self) -> bool:
        """Announce this process; return False when that was not answered."""
        try:
            await self._announce(TTL_S, self._accepts)
        except NoReply as exc:
            self._log.debug("members_delayed", reason=str(exc))
            return False
        if self._storage is not None:
            self._storage.note_stored()
        return True

    async def _announce(self, ttl_s: int, accepts: tuple[int, ...]) -> None:
        member = ServiceReplica(
            service=self._service,
            instance=self._instance,
            accepts=accepts,
            time=self._clock.now(),
        )
        await self._publisher.publish(self._subject, codec.encode(member), ttl_s=ttl_s)

    def _take(self, found: list[Message], dead: list[str]) -> None:
        """Store the announcements found; those of `dead` are from before their death."""
        now = self._clock.monotonic()
        seen: dict[str, _Seen] = {}
        for message in found:
            before = self._seen.get(message.subject)
            if before is not None and not before.is_older(message):
                seen[message.subject] = before
                continue
            try:
                member = codec.decode_member(message.payload)
            except ContractError as exc:
                self._log.warning("member_unreadable", subject=message.subject, reason=str(exc))
                continue
            if member.accepts:
                seen[message.subject] = _Seen(message.sequence, message.time, now, member)
        self._seen = seen
        last = {one.member.instance: one.sequence for one in seen.values()}
        self._dead |= {name: last.get(name, 0) for name in dead}
        self._dead = {
            name: sequence
            for name, sequence in self._dead.items()
            if sequence is None or sequence == last.get(name)
        }

    async def _withdraw(self) -> None:
        """Announce the end of this process: a member that accepts no version is gone."""
        try:
            async with asyncio.timeout(0.5):
                await self._announce(1, ())
        except (Retryable, TimeoutError):
            return  # the time to live says it for us
