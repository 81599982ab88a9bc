"""An elector for partitions: each has one owner among the live members of a service.

Every partition is a lease. The live members, sorted, name the desired owner of each, round robin. A
member takes the free leases of the partitions that it should own. It gives back those that another
should own, after their body has ended. So members that join and leave rebalance by themselves. A
member whose lease ran out counts as dead from that moment, and the others take its partitions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from shared.bus.nats import NatsBus
from shared.election.lease import Lease, LeaseLost, find_free
from shared.election.members import Members
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable, leaves
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

Body = Callable[[int], Awaitable[None]]
"""Called with the number of a partition; runs until cancelled."""


def desired_owner(partition: int, members: Sequence[str]) -> str:
    """Return which of the sorted live members should own a partition ("" without members)."""
    return members[partition % len(members)] if members else ""


class PartitionElector:
    """Owns a fair share of the partitions; `run` is a part of the service."""

    def __init__(
        self,
        bus: NatsBus,
        leases: Sequence[Lease],
        *,
        members: Members,
        service: str,
        instance: str,
        clock: Clock,
        log: Logger,
        on_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`leases` are those of the partitions, by number.

        `on_lost` is called at once with a partition that was taken away, not given back.
        """
        self._bus = bus
        self._leases = tuple(leases)
        self._members = members
        self._service = service
        self._instance = instance
        self._clock = clock
        self._log = log
        self._on_lost = on_lost
        self._owned: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()

    async def run(self, body: Body) -> None:
        """Own partitions forever, running `body` for each."""
        await self._members.known()
        with self._bus.final_messages():
            try:
                async with TaskGroup() as tasks:
                    while True:
                        await self._rebalance(body, tasks)
                        await self._clock.sleep(self._leases[0].timing.poll_s)
            finally:
                async with TaskGroup() as group:  # what was taken, and has no body yet
                    for lease in self._leases:
                        group.create_task(lease.release(), name="release")

    async def _rebalance(self, body: Body, tasks: TaskGroup) -> None:
        """Leave the partitions that others should own, and take those that are free and ours."""
        free: list[Lease] = []
        try:
            free = await find_free(
                self._bus, [lease for p, lease in enumerate(self._leases) if p not in self._owned]
            )
        except* Retryable as delay:
            self._log.debug("partitions_delayed", reason=str(leaves(delay)[0]))
        for lease in free:
            self._members.note_death(*lease.dead_holder)
        desired = self._desired()
        for partition, task in self._owned.items():
            if partition not in desired and partition not in self._leaving:
                self._leaving.add(partition)
                task.cancel()  # once, so that its body can tidy up
        for partition in sorted(desired):
            if self._leases[partition] in free and await self._take(partition):
                self._owned[partition] = tasks.create_task(
                    self._own(partition, body), name=f"partition-{partition}"
                )

    def _desired(self) -> frozenset[int]:
        """Return the partitions that this member should own."""
        names = [member.instance for member in self._members.live(self._service)]
        if self._instance not in names:
            # Not announced, or cut off: keep what we have, the leases know better.
            return frozenset(self._owned)
        return frozenset(
            partition
            for partition in range(len(self._leases))
            if desired_owner(partition, names) == self._instance
        )

    async def _take(self, partition: int) -> bool:
        try:
            return await self._leases[partition].take()
        except Retryable as exc:
            self._log.debug("partitions_delayed", reason=str(exc))
            return False

    async def _own(self, partition: int, body: Body) -> None:
        """Run the body while the lease is held, then release the lease."""
        lease = self._leases[partition]
        self._log.info("partition_taken", partition=partition)
        try:
            await lease.hold(partial(body, partition), on_lost=partial(self._on_lost, partition))
        except* LeaseLost as lost:
            self._log.warning("partition_lost", partition=partition, reason=str(leaves(lost)[0]))
        finally:
            try:
                await lease.release()
            finally:
                del self._owned[partition]
                self._leaving.discard(partition)
                self._log.info("partition_left", partition=partition)
