"""The claims of a cluster with the requests that they state, and those of pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pumice.plugins import BoolArray, CodeArray
from services.scheduler.policy.devices.extended import ContainerDevices
from services.scheduler.policy.devices.requests import (
    QUOTA,
    ClaimRequest,
    DeviceRefusal,
    demand_of,
    read,
)
from shared.api.resource import DeviceClass, ResourceClaim


class DeviceDemand(NamedTuple):
    """What a pod requests of devices."""

    claims: tuple[str, ...]
    extended: tuple[ContainerDevices, ...]


NO_DEMAND = DeviceDemand((), ())


Asks = list[ClaimRequest] | DeviceRefusal
"""The requests of claims, or the fault of one."""


class OpenClaims(NamedTuple):
    """Claims that a class of tasks has no devices for, on some nodes."""

    nodes: BoolArray | None
    """None: all."""
    asks: Asks
    shape: tuple[bytes, ...]
    """Equal for claims with equal requests."""
    owner: str
    """Namespace on whose behalf selectors are evaluated; "" for those of classes alone."""
    names: tuple[str, ...]
    """Keys of the claims, then the extended resources of one that is to be made."""

    def concerned(self, codes: CodeArray) -> CodeArray:
        """Return the codes of its nodes."""
        return codes if self.nodes is None else codes[self.nodes]


class ClaimRequests:
    """Claims by key, and what they ask for."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self._asks: dict[str, ClaimRequest | DeviceRefusal] = {}
        self._shapes: dict[str, bytes] = {}
        """Claim → its spec encoded: claims of equal shape ask for the same."""
        self._demands: dict[str, Mapping[str, int]] = {}
        """Claim → what it asks for by the names of quotas."""

    def put(self, key: str, claim: ResourceClaim) -> None:
        """Store a claim. Raises `BadQuantity`."""
        demand, before = demand_of(claim.spec.devices), self.claims.get(key)
        self.claims[key] = claim
        if before is None or before.spec != claim.spec:
            self._asks.pop(key, None)
            self._shapes[key] = msgspec.json.encode(claim.spec)
            self._demands[key] = demand

    def remove(self, key: str) -> None:
        """Forget a claim."""
        for mapping in (self.claims, self._asks, self._shapes, self._demands):
            mapping.pop(key, None)

    def classes_changed(self) -> None:
        """Read the claims again with the present classes."""
        self._asks.clear()

    def asks(self, keys: Iterable[str]) -> Asks:
        """Return the requests of claims, or the fault of one."""
        found = []
        for key in keys:
            claim = self.claims.get(key)
            if claim is None:
                return DeviceRefusal(f"resource claim {key} is not known", fault=True)
            ask = self._asks.get(key)
            if ask is None:
                ask = self._asks[key] = read(
                    claim.spec.devices, self.classes, claim.metadata.namespace
                )
            if isinstance(ask, DeviceRefusal):
                return ask._replace(text=f"resource claim {key}: {ask.text}")
            found.append(ask)
        return found

    def shape(self, keys: Iterable[str]) -> tuple[bytes, ...]:
        """Return the shape of claims: a key that is equal for equal requests."""
        return tuple(self._shapes[key] for key in keys)

    def requested(self, claims: tuple[str, ...], *, capacities: bool = False) -> Mapping[str, int]:
        """Return the requests of claims by names of quotas, in thousandths.

        An unknown claim requests nothing. With `capacities` requested capacities of devices are
        included.
        """
        counts: Counter[str] = Counter()
        for key in claims:
            for name, amount in self._demands.get(key, {}).items():
                if capacities or name.startswith(QUOTA):
                    counts[name] += amount
        return counts
