"""Views of claims for devices, classes of devices and what drivers offer (resource.k8s.io/v1).

The scheduler reads what a claim asks for, what nodes offer, and which devices are allocated. What
it passes on unread (parameters of drivers) stays as it was received.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from shared.api.base import Quantity, View
from shared.api.meta import ObjectMeta
from shared.api.selectors import NodeSelector

RESERVED_MAX: Final = 256
"""Pods that may use a claim at the same time."""
RESULTS_MAX: Final = 32
"""Devices that a claim may get."""
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"


class CELDeviceSelector(View, frozen=True, kw_only=True):
    """An expression over `device` that is true or false."""

    expression: str = ""


class DeviceSelector(View, frozen=True, kw_only=True):
    """A condition that a device must meet."""

    cel: CELDeviceSelector | None = None
    """Absent: a condition of a kind that is not known here, which no device meets."""


class DeviceToleration(View, frozen=True, kw_only=True):
    """A taint of devices that a request puts up with; an absent effect stands for all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(View, frozen=True, kw_only=True):
    """Amounts of capacities that a request asks for."""

    requests: Mapping[str, Quantity] = field(default_factory=dict)


class ExactDeviceRequest(View, frozen=True, kw_only=True):
    """A number of devices of a class."""

    name: str = ""
    """Of an alternative; a request that stands alone has its name outside."""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    """`ExactCount` (also when absent) or `All`."""
    count: int = 0
    """0 when absent, which means 1."""
    admin_access: bool | None = None
    """Whether devices that others use are given, too."""
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()
    """Amounts of capacities that a device must have; so much is taken of one that is shared."""


class DeviceRequest(View, frozen=True, kw_only=True):
    """One request of a claim: exactly one thing, or the first of several that can be had."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] = ()

    @property
    def alternatives(self) -> tuple[ExactDeviceRequest, ...]:
        """All that meets it, the best first; none for a kind of request that is not known here."""
        return (self.exactly,) if self.exactly else self.first_available


class DeviceConstraint(View, frozen=True, kw_only=True):
    """An attribute that the devices of some requests (none named: of all) share, or differ in."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceConfiguration(View, frozen=True, kw_only=True):
    """Parameters for drivers, undecoded."""

    source: str = ""
    """`FromClass` or `FromClaim`; in an allocation only."""
    requests: tuple[str, ...] = ()
    opaque: Any = None


class DeviceClaim(View, frozen=True, kw_only=True):
    """All requests of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(View, frozen=True, kw_only=True):
    """Spec of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceResult(View, frozen=True, kw_only=True):
    """One device that a claim has got."""

    request: str = ""
    """The request, or `request/alternative`."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    """Of a device that several claims have a part of."""
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    binding_conditions: tuple[str, ...] = ()
    """As the device had them when it was given."""
    binding_failure_conditions: tuple[str, ...] = ()


class DeviceAllocation(View, frozen=True, kw_only=True):
    """The devices of a claim."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class AllocationResult(View, frozen=True, kw_only=True):
    """The devices of a claim and where they are."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    """Nodes that reach them; absent: every node."""
    allocation_timestamp: str | None = None
    """When the status was written; the time to prepare devices counts from here."""


class ConsumerReference(View, frozen=True, kw_only=True):
    """An object that may use a claim: a pod, or a native PodGroup for all of its pods."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_group(self) -> bool:
        """Whether it is a PodGroup."""
        return self.resource == "podgroups"


class DeviceCondition(View, frozen=True, kw_only=True):
    """A condition of a device that a claim has."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(View, frozen=True, kw_only=True):
    """The status of an allocated device, as its driver reports it."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(View, frozen=True, kw_only=True):
    """Status of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()

    @property
    def users(self) -> set[str]:
        """Return the uids of those that may use the claim."""
        return {one.uid for one in self.reserved_for}

    @property
    def groups(self) -> set[str]:
        """Return the names of the PodGroups whose pods may use the claim."""
        return {one.name for one in self.reserved_for if one.is_group}

    def admits(self, pod_uid: str, podgroup: str) -> bool:
        """Tell whether a pod may use the claim, by itself or with its PodGroup of a key."""
        return pod_uid in self.users or podgroup.rpartition("/")[2] in self.groups

    def unmet(self, allocation: AllocationResult) -> tuple[str, ...]:
        """Return which binding conditions of its devices are not true, as `device: condition`."""
        return tuple(
            f"{result.device}: {name}"
            for result in allocation.devices.results
            for name in result.binding_conditions
            if not self._is_true(result, name)
        )

    def failure(self, allocation: AllocationResult) -> str:
        """Return which device cannot be prepared, as its driver puts it; empty: none."""
        for result in allocation.devices.results:
            for name in result.binding_failure_conditions:
                if self._is_true(result, name):
                    reported = self.of_device(result)[name]
                    message = ": ".join(
                        each for each in (name, reported.reason, reported.message) if each
                    )
                    return f"{result.device}: {message}"
        return ""

    def _is_true(self, result: DeviceResult, name: str) -> bool:
        condition = self.of_device(result).get(name)
        return condition is not None and condition.status == "True"

    def of_device(self, result: DeviceResult) -> Mapping[str, DeviceCondition]:
        """Return the conditions of a device by type; none if its driver has reported nothing."""
        device_id = (result.driver, result.pool, result.device, result.share_id)
        for each in self.devices:
            if (each.driver, each.pool, each.device, each.share_id) == device_id:
                return {condition.type: condition for condition in each.conditions}
        return {}


class ResourceClaim(View, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def is_of_group(self) -> bool:
        """Whether all pods of a PodGroup of Kubernetes count as one user."""
        owner = self.metadata.controller
        made_for_group = owner is not None and owner.kind == "PodGroup"
        return made_for_group or bool(self.status.groups)


class DeviceClassSpec(View, frozen=True, kw_only=True):
    """Spec of a class of devices."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None
    """Extended resource by which pods may ask for one of its devices without a claim."""


class DeviceClass(View, frozen=True, kw_only=True):
    """A class of devices: conditions and parameters by name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(View, frozen=True, kw_only=True):
    """A fact about a device; one of the fields is set."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")


class CapacityRange(View, frozen=True, kw_only=True):
    """Amounts from a least one on, by steps if there is a step."""

    min: Quantity = 0
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(View, frozen=True, kw_only=True):
    """Which amounts of a shared capacity may be had: some values, or a range."""

    default: Quantity | None = None
    """The amount for a request that asks for none of it; absent: all of it."""
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(View, frozen=True, kw_only=True):
    """An amount that a device has."""

    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class DeviceTaint(View, frozen=True, kw_only=True):
    """A mark that keeps requests off a device unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Counter(View, frozen=True, kw_only=True):
    """An amount that the devices of a pool share."""

    value: Quantity = 0


class CounterSet(View, frozen=True, kw_only=True):
    """Amounts that devices of a pool share."""

    name: str = ""
    counters: Mapping[str, Counter] = field(default_factory=dict)


class CounterConsumption(View, frozen=True, kw_only=True):
    """The amounts that a device takes of a set of counters."""

    counter_set: str = ""
    counters: Mapping[str, Counter] = field(default_factory=dict)


class Device(View, frozen=True, kw_only=True):
    """A device that a driver offers."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    """Conditions that its driver makes true before a pod that has got it is bound."""
    binding_failure_conditions: tuple[str, ...] = ()
    """Conditions of which one that is true says that it cannot be prepared."""
    allow_multiple_allocations: bool = False


class ResourcePool(View, frozen=True, kw_only=True):
    """The pool that a slice is part of."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(View, frozen=True, kw_only=True):
    """Devices of a pool, and which nodes reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(View, frozen=True, kw_only=True):
    """A part of what a driver offers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(View, frozen=True, kw_only=True):
    """The devices that a rule taints; an absent name selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Tell whether it selects a device."""
        return (
            self.driver in {None, driver}
            and self.pool in {None, pool}
            and self.device in {None, device}
        )


class DeviceTaintRuleSpec(View, frozen=True, kw_only=True):
    """Spec of a rule."""

    device_selector: DeviceTaintSelector | None = None
    """Absent: it taints no device."""
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(View, frozen=True, kw_only=True):
    """A taint for all devices that a selector selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
