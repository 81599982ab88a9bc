"""Partitions spread over the live members of a service: one owner each at any moment.

Every partition is a lease. The live members, sorted, name the wanted owner of each (round robin);
a member takes what is wanted of it and free, and gives back, after its body has ended, what is
wanted of another. So joining and leaving rebalance by themselves, and a dead member's partitions
move once their leases run out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.bus.lease import Lease, LeaseBus, LeaseLost
from shared.bus.members import Members
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger

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
    ) -> None:
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
        with self._bus.last_words():
            await self._spread(body, poll_s=poll_s)

    async def _spread(self, body: Body, *, poll_s: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                wanted = self._wanted()
                self._leave(wanted)
                missing = [p for p in sorted(wanted) if p not in self._owned]
                for partition in await self._take(missing):
                    self._owned[partition] = tasks.create_task(
                        self._own(partition, body), name=f"partition-{partition}"
                    )
                await self._clock.sleep(poll_s)

    def _leave(self, wanted: frozenset[int]) -> None:
        """End the bodies of what is wanted of another: once, so that they can tidy up."""
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

    async def _take(self, missing: Sequence[int]) -> list[int]:
        """Take the leases that are free; return which."""
        if not missing:
            return []
        taken: list[int] = []
        try:
            subjects = [self._leases[partition].subject for partition in missing]
            found = await self._bus.snapshot(self._stream, subjects)
            by_subject = {message.subject: message for message in found}
            for partition in missing:
                lease = self._leases[partition]
                if await lease.consider(by_subject.get(lease.subject)):
                    taken.append(partition)
        except Retryable as exc:
            self._log.debug("partitions_delayed", reason=str(exc))
        return taken

    async def _own(self, partition: int, body: Body) -> None:
        """Run the body while the lease is held, then give the lease back."""
        lease = self._leases[partition]
        self._log.info("partition_taken", partition=partition)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(lease.keep(), name=f"partition-{partition}-keep")
                tasks.create_task(_endless(body, partition), name=f"partition-{partition}-body")
        except* LeaseLost as lost:
            self._log.warning("partition_lost", partition=partition, reason=str(lost.exceptions[0]))
        finally:
            await lease.release()
            del self._owned[partition]
            self._leaving.discard(partition)
            self._log.info("partition_left", partition=partition)


async def _endless(body: Body, partition: int) -> None:
    await body(partition)
    await asyncio.Event().wait()
