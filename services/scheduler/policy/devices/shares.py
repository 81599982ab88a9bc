"""Shares of devices: the amounts of each capacity that a request takes, and those already taken.

A device that allows multiple allocations is shared by requests while its capacities last. Each
takes the amount that it requests, rounded by the driver's policy for the capacity. All other
devices are allocated as a whole; there a requested capacity is only a condition.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from services.scheduler.policy.devices.pools import DeviceId
from shared.api.base import Quantity
from shared.api.resource import CapacityRange, CapacityRequestPolicy, Device, DeviceCapacity
from shared.model.quantity import milli

Parts = Mapping[str, int]
"""Capacity → amount in thousandths."""


class AllocatedDevices(NamedTuple):
    """The devices and shares of devices that claims have."""

    devices: Collection[DeviceId]
    parts: Mapping[DeviceId, Parts]
    """Shared device → sum of the amounts of its claims."""

    def is_whole(self, device: DeviceId) -> bool:
        """Tell whether a device is allocated as a whole."""
        return device in self.devices and device not in self.parts


NOTHING: Final = AllocatedDevices(frozenset(), {})


def part_of(device: Device, requested: Mapping[str, Quantity]) -> Parts | None:
    """Return the amount of each capacity that a request takes, None if too little is left."""
    if requested.keys() - device.capacity.keys():
        return None
    found = {}
    for name, capacity in device.capacity.items():
        amount = _amount(capacity, requested.get(name))
        if _violates(amount, capacity.request_policy) or amount > milli(capacity.value):
            return None
        found[name] = amount
    return found


def has_room(device: Device, used: Parts, part: Parts) -> bool:
    """Tell whether a shared device has room for another share."""
    return all(
        name in device.capacity and used.get(name, 0) + amount <= milli(device.capacity[name].value)
        for name, amount in part.items()
    )


def added(parts: Sequence[Parts]) -> dict[str, int]:
    """Return the sum of two shares."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _amount(capacity: DeviceCapacity, requested: Quantity | None) -> int:
    """Return the consumed amount of one capacity: the request, rounded up by its policy."""
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy else None
        return milli(capacity.value if default is None else default)
    if policy is not None and policy.valid_range is not None:
        return _in_range(requested, policy.valid_range)
    desired = milli(requested)
    valid = policy.valid_values if policy is not None else ()
    return next((one for one in sorted(milli(v) for v in valid) if one >= desired), desired)


def _in_range(requested: Quantity, allowed: CapacityRange) -> int:
    desired, least = milli(requested), milli(allowed.min)
    if desired < least:
        return least
    step = 0 if allowed.step is None else milli(allowed.step)
    return least + -(-(desired - least) // step) * step if step > 0 else desired


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    """Tell whether a policy does not allow an amount; its default is always allowed."""
    if policy is None or (policy.default is not None and amount == milli(policy.default)):
        return False
    if policy.valid_range is not None:
        most = policy.valid_range.max
        return most is not None and amount > milli(most)
    return bool(policy.valid_values) and amount not in {milli(v) for v in policy.valid_values}
