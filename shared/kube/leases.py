"""Leases as the API server has them: read, and written upon the version that was read."""

from collections.abc import Mapping
from typing import Final

import msgspec

from shared.api.kinds import LEASE
from shared.api.meta import ObjectMeta
from shared.election.cluster_lease import LeaseSpec
from shared.kube.client import Kube
from shared.runtime.errors import Gone


class ClusterLease(msgspec.Struct, frozen=True):
    """One Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


_lease: Final = msgspec.json.Decoder(ClusterLease)


def read(raw: bytes) -> ClusterLease:
    """Read an answer of the API server.

    Raises msgspec.DecodeError, also for a Lease without the uid and the version that each write
    names: a write without them would be to any Lease of the name. Raises `msgspec.ValidationError`.
    """
    found = _lease.decode(raw)
    if not (found.metadata.uid and found.metadata.resource_version):
        raise msgspec.ValidationError("a Lease without uid or resourceVersion")
    return found


async def find(kube: Kube, namespace: str, name: str) -> ClusterLease | None:
    """Return a Lease, None when there is none. Raises the errors of `Kube`."""
    try:
        return read(await kube.get(LEASE, namespace, name))
    except Gone:
        return None


async def write(
    kube: Kube,
    namespace: str,
    name: str,
    spec: LeaseSpec,
    *,
    upon: ClusterLease,
    annotations: Mapping[str, str | None] | None = None,
) -> ClusterLease:
    """Write a Lease upon the version that was found; None takes an annotation away.

    Raises Conflict when the Lease has changed since, Gone, and the errors of `Kube`.
    """
    body: dict[str, object] = {"spec": spec}
    if annotations is not None:
        body["metadata"] = {"annotations": annotations}
    found = upon.metadata
    patched = await kube.patch(
        LEASE, namespace, name, body, uid=found.uid, resource_version=found.resource_version
    )
    return read(patched)
