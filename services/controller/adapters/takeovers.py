"""Releases the nodes of dead schedulers, whose Leases are no longer renewed (CA12).

A NodeShard names the Lease under which its scheduler claims nodes. When that Lease was
not renewed for its whole duration, the claims are taken back. The Lease is held meanwhile, so that
no other process holds it. A scheduler that comes back finds another leadership term, and ignores
its former claims. A NodeShard without such a name is skipped, because its scheduler may act without
a Lease.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from services.controller.adapters.reconciler import ControllerContext
from shared.api import keys, kinds
from shared.api.scheduling import NodeShard
from shared.api.time import format_micro, format_seconds
from shared.election.cluster_lease import (
    LeaseCandidate,
    LeaseSpec,
    LeaseTimes,
    ObservedLease,
    released,
)
from shared.kube import leases
from shared.kube.leases import ClusterLease
from shared.runtime.errors import Conflict, Gone

TIMES: Final = LeaseTimes()


class LeaseRef(msgspec.Struct, frozen=True):
    """Namespace and name of a Lease."""

    namespace: str
    name: str


def lease_ref_of(shard: NodeShard) -> LeaseRef | None:
    """Return the Lease under which the scheduler of a NodeShard acts, None if it names none."""
    namespace, _, rest = shard.metadata.annotations.get(keys.LEADERSHIP_TERM, "").partition("/")
    name, _, term = rest.partition("/")
    return LeaseRef(namespace, name) if term else None


class ShardTakeovers:
    """Checks the Leases of schedulers, and removes the claims of dead ones."""

    def __init__(self, manager: ControllerContext) -> None:
        self._kube = manager.kube
        self._writer = manager.writer
        self._clock = manager.env.clock
        self._log = manager.env.log
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
            return False  # nothing to hold while claims are removed
        observed = self._observed.setdefault(ref, ObservedLease())
        now = self._clock.monotonic()
        observed.observe(lease.spec, now=now)
        lasts_s = max(TIMES.duration_s, lease.spec.lease_duration_seconds or 0)
        if observed.age_s(now=now) < lasts_s:
            return not observed.was_renewed and not shard.spec.nodes_desired
        if shard.status.nodes_in_use:
            await self._take_back(ref, lease, shard)
        return True

    async def _take_back(self, ref: LeaseRef, lease: ClusterLease, shard: NodeShard) -> None:
        """Hold the Lease while the claims of its former holder are removed. Raises Conflict."""
        name = shard.metadata.name
        me = LeaseCandidate(f"pumice-shard-{name}", TIMES)
        claim = me.acquired(lease.spec, time=self._now())
        async with asyncio.timeout(TIMES.deadline_s):
            acquired = await self._write(ref, lease, claim)
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
        await self._write(ref, acquired, released(acquired.spec, time=self._now()))
        nodes = len(shard.status.nodes_in_use)
        self._log.warning(
            "node_shard_taken_over", shard=name, lease=ref.name, nodes=nodes,
            reason="the Lease of its scheduler has run out",
        )  # fmt: skip

    async def _write(self, ref: LeaseRef, found: ClusterLease, spec: LeaseSpec) -> ClusterLease:
        """Write a Lease upon the version that was found. Raises Conflict when it has changed."""
        try:
            written = await leases.write(self._kube, ref.namespace, ref.name, spec, upon=found)
        except Gone as error:
            raise Conflict(f"Lease {ref.name} is gone") from error
        self._observed[ref].note_own_write(written.spec)
        return written

    def _now(self) -> str:
        return format_micro(self._clock.now())
