"""Which claims have which devices, and what they have of shared ones."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from services.scheduler.policy.devices.pools import DeviceId, Inventory
from services.scheduler.policy.devices.results import shared_parts
from services.scheduler.policy.devices.shares import AllocatedDevices, Parts, added, has_room
from shared.api.resource import AllocationResult


class DeviceHolders:
    """The claims that have each device."""

    def __init__(self, inventory: Inventory, note: Callable[[DeviceId], None]) -> None:
        """Call `note` for each device that gets or loses a claim."""
        self._inventory = inventory
        self._note = note
        self.claims: dict[DeviceId, set[str]] = {}
        """Device → claims that have it."""
        self._shares: dict[DeviceId, dict[str, Parts]] = {}
        """Device that is shared → claim → what it has of it."""
        self._sums: dict[DeviceId, Parts] = {}
        """Device that is shared → what all claims have of it together."""
        self.taken = AllocatedDevices(self.claims, self._sums)

    def count(self, key: str, allocation: AllocationResult | None, *, counts: bool) -> None:
        """Add or remove a claim as a holder of its devices."""
        self._count_shares(key, allocation, counts=counts)
        for device in ids_of(allocation):
            claims = self.claims.setdefault(device, set())
            if counts:
                claims.add(key)
            else:
                claims.discard(key)
            if not claims:
                del self.claims[device]
            self._note(device)

    def _count_shares(self, key: str, allocation: AllocationResult | None, *, counts: bool) -> None:
        """Add or remove a claim's shares of shared devices."""
        for device, part in shared_parts(allocation).items():
            shares = self._shares.setdefault(device, {})
            if counts:
                shares[key] = part
            else:
                shares.pop(key, None)
            if shares:
                self._sums[device] = added(list(shares.values()))
            else:
                del self._shares[device]
                self._sums.pop(device, None)

    def without(self, released: AbstractSet[str]) -> AllocatedDevices:
        """Return the devices and shares that remain when some claims have lost theirs."""
        return AllocatedDevices(
            frozenset(device for device, claims in self.claims.items() if claims - released),
            {
                device: added([part for key, part in shares.items() if key in staying])
                for device, shares in self._shares.items()
                if (staying := shares.keys() - released)
            },
        )

    def is_overdrawn(self, device: DeviceId, key: str) -> bool:
        """Tell whether a claim's share exceeds what other claims leave of a device."""
        if not self.claims.get(device, set()) - {key}:
            return False
        offered = self._inventory.device(device)
        shares = self._shares.get(device, {})
        if offered is None or shares.keys() != self.claims[device]:
            return True
        return not has_room(offered.device, {}, self._sums[device])


def ids_of(allocation: AllocationResult | None) -> Iterable[DeviceId]:
    """Return the devices of an allocation, without those of admin access."""
    return [
        DeviceId(result.driver, result.pool, result.device)
        for result in (allocation.devices.results if allocation is not None else ())
        if not result.admin_access
    ]
