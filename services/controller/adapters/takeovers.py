"""Takes the nodes of schedulers that have died: their Leases are no longer renewed (CA12).

A NodeShard bears the name of the Lease under which its scheduler claims nodes. When that Lease was
not renewed for its whole duration, the claims are taken back. The Lease is held meanwhile, so that
no other process holds it. A scheduler that comes back finds another tenure, and ignores its former
claims. A NodeShard without such a name is left alone, as its scheduler may act without a Lease.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from services.controller.adapters.reconciler import Manager
from shared.api import keys, kinds
from shared.api.scheduling import NodeShard
from shared.api.time import format_micro, format_seconds
from shared.election.cluster_lease import Election, LeaseTimes, Record, release
from shared.kube import leases
from shared.kube.leases import Lease
from shared.runtime.errors import Conflict, Gone

TIMES: Final = LeaseTimes()


class LeaseRef(msgspec.Struct, frozen=True):
    """Namespace and name of a Lease."""

    namespace: str
    name: str


def lease_ref_of(shard: NodeShard) -> LeaseRef | None:
    """Return the Lease under which the scheduler of a NodeShard acts, as far as it says so."""
    namespace, _, rest = shard.metadata.annotations.get(keys.TENURE, "").partition("/")
    name, _, tenure = rest.partition("/")
    return LeaseRef(namespace, name) if tenure else None


class ObservedLease:
    """One Lease as it was observed.

    Like the candidates of a leader election, it measures by its own clock since when the record is
    unchanged.
    """

    def __init__(self) -> None:
        self._seen: Record | None = None
        self._since: float | None = None
        self.was_renewed = False
        """Whether it has changed since it was observed first."""

    def observe(self, record: Record, *, now: float) -> None:
        """Take note of a record; `now` is seconds of a clock that never goes back."""
        if self._since is None or record != self._seen:
            self.was_renewed = self._since is not None
            self._seen, self._since = record, now

    def write(self, record: Record) -> None:
        """Note a record that this process wrote: the former one has run out already."""
        self._seen, self._since, self.was_renewed = record, float("-inf"), False

    def is_expired(self, *, now: float) -> bool:
        """Return whether it was not renewed for so long that its holder no longer acts."""
        if self._seen is None or self._since is None:
            return False
        lasts_s = max(TIMES.duration_s, self._seen.lease_duration_seconds or 0)
        return now >= self._since + lasts_s


class Takeovers:
    """Looks at the Leases of schedulers, and takes back what those that died have claimed."""

    def __init__(self, manager: Manager) -> None:
        self._kube = manager.kube
        self._writer = manager.writer
        self._clock = manager.clock
        self._log = manager.log
        self._observed: dict[LeaseRef, ObservedLease] = {}

    async def absent(self, shards: Mapping[str, NodeShard]) -> frozenset[str]:
        """Return the NodeShards that get no nodes, as their schedulers have died.

        Before a Lease was looked at for long enough, a scheduler without nodes stays without.
        """
        found = set()
        for name, shard in sorted(shards.items()):
            ref = lease_ref_of(shard)
            if ref is not None and await self._is_absent(ref, shard):
                found.add(name)
        return frozenset(found)

    async def _is_absent(self, ref: LeaseRef, shard: NodeShard) -> bool:
        lease = await leases.find(self._kube, ref.namespace, ref.name)
        if lease is None:
            return False  # nothing to hold while claims are taken back
        observed = self._observed.setdefault(ref, ObservedLease())
        observed.observe(lease.spec, now=self._clock.monotonic())
        if not observed.is_expired(now=self._clock.monotonic()):
            return not observed.was_renewed and not shard.spec.nodes_desired
        if shard.status.nodes_in_use:
            await self._take_back(ref, lease, shard)
        return True

    async def _take_back(self, ref: LeaseRef, lease: Lease, shard: NodeShard) -> None:
        """Hold the Lease while the claims of its former holder are removed. Raises Conflict."""
        name = shard.metadata.name
        me = Election(f"pumice-shard-{name}", TIMES)
        claim = me.claim(lease.spec, time=self._now())
        async with asyncio.timeout(TIMES.deadline_s):
            held = await self._write(ref, lease, claim)
            status = {
                "nodesInUse": [],
                "nodesToAdd": [],
                "nodesToRemove": [],
                "lastUpdateTime": format_seconds(self._clock.now()),
            }
            await self._writer.patch(
                kinds.NODESHARD,
                shard.metadata,
                {"status": status},
                version=shard.metadata.resource_version,
                subresource="status",
            )
        await self._write(ref, held, release(held.spec, time=self._now()))
        nodes = len(shard.status.nodes_in_use)
        self._log.warning(
            "node_shard_taken_over", shard=name, lease=ref.name, nodes=nodes,
            reason="the Lease of its scheduler has run out",
        )  # fmt: skip

    async def _write(self, ref: LeaseRef, found: Lease, record: Record) -> Lease:
        """Write a record upon the version that was found. Raises Conflict when it has changed."""
        try:
            written = await leases.write(self._kube, ref.namespace, ref.name, record, upon=found)
        except Gone as error:
            raise Conflict(f"Lease {ref.name} is gone") from error
        self._observed[ref].write(written.spec)
        return written

    def _now(self) -> str:
        return format_micro(self._clock.now())
