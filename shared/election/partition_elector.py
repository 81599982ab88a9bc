"""Partitions spread over the live members of a service: one owner each at any moment.

Every partition is a lease. The live members, sorted, name the wanted owner of each (round robin);
a member takes what is wanted of it and free, and gives back, after its body has ended, what is
wanted of another. So joining and leaving rebalance by themselves. A member whose lease ran out
counts as dead from that moment, and its partitions are wanted of the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from shared.bus.port import Message
from shared.election.lease import Lease, LeaseBus, LeaseLost
from shared.election.members import Members
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

Body = Callable[[int], Awaitable[None]]
"""Called with the number of a partition; runs until cancelled."""


def wanted_owner(partition: int, members: Sequence[str]) -> str:
    """Return which of the sorted live members should own a partition ("" without members)."""
    return members[partition % len(members)] if members else ""


class Partitions:
    """Owns a fair share of the partitions; `run` is a part of the service."""

    def __init__(
        self,
        bus: LeaseBus,
        leases: Sequence[Lease],
        *,
        stream: str,
        members: Members,
        service: str,
        instance: str,
        clock: Clock,
        log: Logger,
        on_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_lost` is told at once of a partition that was taken away, not given back."""
        self._on_lost = on_lost
        self._bus = bus
        self._leases = tuple(leases)
        self._stream = stream
        self._members = members
        self._service = service
        self._instance = instance
        self._clock = clock
        self._log = log
        self._owned: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()

    @property
    def owned(self) -> frozenset[int]:
        """Return the partitions whose body runs here."""
        return frozenset(self._owned)

    async def run(self, body: Body) -> None:
        """Own partitions for ever, running `body` for each."""
        await self._members.known()
        poll_s: Final = self._leases[0].timing.poll_s
        with self._bus.final_messages():
            try:
                await self._rebalance(body, poll_s=poll_s)
            finally:
                await self._release_all()

    async def _release_all(self) -> None:
        """Give back what the end of this process has found taken and not owned yet."""
        async with TaskGroup() as group:
            for lease in self._leases:
                group.create_task(lease.release(), name="release")

    async def _rebalance(self, body: Body, *, poll_s: float) -> None:
        async with TaskGroup() as tasks:
            while True:
                found = await self._read_leases()
                wanted = self._wanted()
                self._give_up(wanted)
                for partition in await self._take(found, wanted):
                    self._owned[partition] = tasks.create_task(
                        self._own(partition, body), name=f"partition-{partition}"
                    )
                await self._clock.sleep(poll_s)

    async def _read_leases(self) -> dict[int, Message | None]:
        """Read the leases that others hold; return those that are free. Notes holders that died."""
        others = [p for p in range(len(self._leases)) if p not in self._owned]
        if not others:
            return {}
        free: dict[int, Message | None] = {}
        try:
            subjects = [self._leases[partition].subject for partition in others]
            found = await self._bus.snapshot(self._stream, subjects)
            last = {message.subject: message for message in found}
            held = {p: last.get(self._leases[p].subject) for p in others}
            without_listener = await self._without_listener(
                {self._leases[p].presence_to_check(m) for p, m in held.items()}
            )
            free = self._free(held, without_listener)
        except* Retryable as trouble:
            self._log.debug("partitions_delayed", reason=str(trouble.exceptions[0]))
        return free

    def _free(
        self, held: Mapping[int, Message | None], without_listener: set[str]
    ) -> dict[int, Message | None]:
        """Return what is free of the leases of others, and count holders that lost one as dead."""
        free: dict[int, Message | None] = {}
        for partition, message in held.items():
            lease = self._leases[partition]
            if lease.observe(
                message, no_listener=lease.presence_to_check(message) in without_listener
            ):
                free[partition] = message
                if message is not None and (dead := lease.dead_holder(message)):
                    self._members.note_death(dead, message.sequence)
        return free

    async def _without_listener(self, subjects: set[str]) -> set[str]:
        """Return the presence subjects without a listener."""
        without_listener: set[str] = set()

        async def ask(subject: str) -> None:
            if not await self._bus.listens(subject):
                without_listener.add(subject)

        async with TaskGroup() as group:
            for subject in sorted(subjects - {""}):
                group.create_task(ask(subject), name="presence")
        return without_listener

    def _give_up(self, wanted: frozenset[int]) -> None:
        """End the bodies of partitions that others should own; once, so that they can tidy up."""
        for partition, task in self._owned.items():
            if partition not in wanted and partition not in self._leaving:
                self._leaving.add(partition)
                task.cancel()

    def _wanted(self) -> frozenset[int]:
        names = [member.instance for member in self._members.live(self._service)]
        if self._instance not in names:
            # Not announced, or cut off: keep what we have, the leases know better.
            return self.owned
        return frozenset(
            partition
            for partition in range(len(self._leases))
            if wanted_owner(partition, names) == self._instance
        )

    async def _take(self, free: Mapping[int, Message | None], wanted: frozenset[int]) -> list[int]:
        """Take the free leases that are wanted of this member; return which."""
        taken: list[int] = []
        for partition in sorted(wanted & free.keys()):
            try:
                if await self._leases[partition].take(free[partition]):
                    taken.append(partition)
            except Retryable as exc:
                self._log.debug("partitions_delayed", reason=str(exc))
                break
        return taken

    async def _own(self, partition: int, body: Body) -> None:
        """Run the body while the lease is held, then give the lease back."""
        lease = self._leases[partition]
        self._log.info("partition_taken", partition=partition)
        try:
            await self._hold(partition, body)
        except* LeaseLost as lost:
            self._log.warning("partition_lost", partition=partition, reason=str(lost.exceptions[0]))
        finally:
            try:
                await lease.release()
            finally:
                del self._owned[partition]
                self._leaving.discard(partition)
                self._log.info("partition_left", partition=partition)

    async def _hold(self, partition: int, body: Body) -> None:
        """Run the body, and renew the lease until it has ended: it may have to tidy up."""

        async def keep() -> None:
            try:
                await self._leases[partition].keep()
            except LeaseLost:
                self._on_lost(partition)
                raise

        async with TaskGroup() as tasks:
            keeping = tasks.create_task(keep(), name=f"partition-{partition}-keep")
            try:
                await _endless(body, partition)
            finally:
                keeping.cancel()


async def _endless(body: Body, partition: int) -> None:
    await body(partition)
    await asyncio.Event().wait()
