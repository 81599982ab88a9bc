"""Views of claims for devices (dynamic resource allocation).

The scheduler reads what a claim asks for, for quotas, and whether and where it is allocated.
"""

from shared.api.base import View
from shared.api.meta import ObjectMeta
from shared.api.selectors import NodeSelector


class ExactDeviceRequest(View, frozen=True, kw_only=True):
    """A number of devices of a class."""

    device_class_name: str = ""
    allocation_mode: str = ""
    """`ExactCount` (also when absent) or `All`."""
    count: int = 0
    """0 when absent, which means 1."""


class DeviceRequest(View, frozen=True, kw_only=True):
    """One request of a claim: exactly one thing, or the first of several that can be had."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] = ()


class DeviceClaim(View, frozen=True, kw_only=True):
    """All requests of a claim."""

    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(View, frozen=True, kw_only=True):
    """Spec of a claim."""

    devices: DeviceClaim = DeviceClaim()


class AllocationResult(View, frozen=True, kw_only=True):
    """Where the devices of a claim are."""

    node_selector: NodeSelector | None = None
    """Nodes that reach them; absent: every node."""


class ResourceClaimStatus(View, frozen=True, kw_only=True):
    """Status of a claim."""

    allocation: AllocationResult | None = None


class ResourceClaim(View, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
