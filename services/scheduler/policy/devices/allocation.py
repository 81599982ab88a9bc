"""Allocates devices to claims on one node: the first solution in a fixed order, or the reason.

The order is Kubernetes' own: claims, requests and alternatives as they are listed, pools and slices
by name, devices as they are listed. Pure: taken devices are an argument, chosen ones the result. A
`SearchBudget` limits the search, because users write claims.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from services.scheduler.policy.devices.pools import DeviceId, Offered, OfferedPool, PoolKey
from services.scheduler.policy.devices.requests import (
    Alternative,
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
    SearchBudget,
)
from services.scheduler.policy.devices.results import DeviceChoice, attribute, result_of
from services.scheduler.policy.devices.selectors import SelectorFault
from services.scheduler.policy.devices.shares import (
    AllocatedDevices,
    Parts,
    added,
    has_room,
    part_of,
)
from shared.api.resource import (
    RESULTS_MAX,
    AllocationResult,
    DeviceAttribute,
    DeviceConstraint,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
)

WORK_MAX: Final = 20_000
"""Most checks of devices and constraints for the claims of a pod on one node."""
_DEPTH_MAX: Final = 500
"""Maximum recursion depth of a search; 64 requests of 4 devices each reach it."""
_CALLS_PER_REQUEST: Final = 4
_UNKNOWN: Final = "cannot allocate all claims: their CEL selectors are being evaluated"
_TOO_MUCH: Final = "cannot allocate all claims: too many combinations"


def allocate(
    asks: Sequence[ClaimRequest],
    pools: Sequence[OfferedPool],
    *,
    node: str,
    taken: AllocatedDevices,
    matcher: DeviceMatcher,
    budget: SearchBudget | None = None,
) -> tuple[AllocationResult, ...] | DeviceRefusal:
    """Return the devices of each claim on a node, or why not all of them can be had there."""
    search = _Search(asks, pools, taken, matcher, budget or SearchBudget(WORK_MAX))
    try:
        return search.result(node)
    except _ConditionFault as fault:
        return DeviceRefusal(str(fault), fault=True, claim=fault.claim)


class _ConditionFault(Exception):  # noqa: N818 - reads as the fact it states
    """A condition of a claim cannot be evaluated."""

    def __init__(self, text: str, claim: int) -> None:
        super().__init__(text)
        self.claim = claim


class _Search:
    """A search over the devices that one node reaches."""

    def __init__(
        self,
        asks: Sequence[ClaimRequest],
        pools: Sequence[OfferedPool],
        taken: AllocatedDevices,
        matcher: DeviceMatcher,
        budget: SearchBudget,
    ) -> None:
        self._asks = asks
        self._pools = pools
        self._taken = taken
        self._judge = matcher
        self._devices = [device for pool in pools if pool.usable for device in pool.devices]
        self._chosen: list[DeviceChoice] = []
        self._users: dict[DeviceId, list[int]] = {}
        """Device → claims that have chosen it."""
        self._sizes: Counter[int] = Counter()
        self._values: list[list[list[DeviceAttribute]]] = [
            [[] for _ in ask.claim.constraints] for ask in asks
        ]
        """Claim and constraint → the values of what is chosen."""
        self._free: dict[PoolKey, dict[tuple[str, str], int]] = {}
        self._budget = budget
        """The search ends when it is used up."""
        self._asked_of_all: dict[tuple[int, str], tuple[Offered, ...]] = {}

    def result(self, node: str) -> tuple[AllocationResult, ...] | DeviceRefusal:
        refusal = self._prepare()
        if refusal is not None:
            return refusal
        found = self._claim(0)
        if self._budget.unknown is not None:
            return DeviceRefusal(_UNKNOWN, unfinished=True)
        if found:
            return tuple(
                result_of(ask.claim, [c for c in self._chosen if c.claim == number], node)
                for number, ask in enumerate(self._asks)
            )
        if self._budget.left <= 0:
            return DeviceRefusal(_TOO_MUCH)
        return DeviceRefusal("cannot allocate all claims")

    def _prepare(self) -> DeviceRefusal | None:
        """Resolve requests for "all" devices; reject claims that no search can satisfy."""
        depth = 0
        for number, ask in enumerate(self._asks):
            least = 0
            for alternatives in ask.requests:
                for each in alternatives:
                    if each.wants_all and (refusal := self._find_all(number, each)) is not None:
                        return refusal
                counts = [self._count(number, each) for each in alternatives]
                least += min(counts)
                depth += _CALLS_PER_REQUEST + max(
                    0 if a.wants_all else n for a, n in zip(alternatives, counts, strict=True)
                )
            if least > RESULTS_MAX:
                text = f"{least} devices are more than the {RESULTS_MAX} that a claim may have"
                return DeviceRefusal(text, fault=True)
        return (
            DeviceRefusal("too many devices for one pod", fault=True)
            if depth > _DEPTH_MAX
            else None
        )

    def _find_all(self, number: int, alternative: Alternative) -> DeviceRefusal | None:
        for pool in self._pools:
            if not pool.usable:
                state = "invalid" if pool.problem else "being updated"
                text = f"asks for all devices, but resource pool {'/'.join(pool.key)} is {state}"
                return DeviceRefusal(f"request {alternative.name}: {text}", fault=True)
        self._budget.left -= len(self._devices)
        self._asked_of_all[number, alternative.name] = tuple(
            device
            for device in self._devices
            if part_of(device.device, alternative.asks.capacity.requests) is not None
            and self._admits(number, alternative, device)
        )
        if self._budget.unknown is not None:
            return DeviceRefusal(_UNKNOWN, unfinished=True)
        return DeviceRefusal(_TOO_MUCH) if self._budget.left <= 0 else None

    def _admits(self, number: int, alternative: Alternative, device: Offered) -> bool:
        try:
            return self._judge.admits(alternative, device, self._budget)
        except SelectorFault as error:
            raise _ConditionFault(f"request {alternative.name}: {error}", number) from error

    def _count(self, number: int, alternative: Alternative) -> int:
        if alternative.wants_all:
            return len(self._asked_of_all[number, alternative.name])
        return alternative.asks.count or 1

    # --- the search --------------------------------------------------------------------------

    def _claim(self, number: int) -> bool:
        return number == len(self._asks) or self._request(number, 0)

    def _request(self, number: int, at: int) -> bool:
        requests = self._asks[number].requests
        if at == len(requests):
            return self._claim(number + 1)
        return any(self._alternative(number, at, each) for each in requests[at])

    def _alternative(self, number: int, at: int, alternative: Alternative) -> bool:
        count = self._count(number, alternative)
        if self._sizes[number] + count > RESULTS_MAX or not count:
            return False
        if alternative.wants_all:
            offered = self._asked_of_all[number, alternative.name]
            return self._take_all(number, at, alternative, offered)
        return self._take(number, at, alternative, count, 0)

    def _take_all(
        self, number: int, at: int, alternative: Alternative, offered: Sequence[Offered]
    ) -> bool:
        before = len(self._chosen)
        for device in offered:
            if not self._choose(number, alternative, device):
                break
        else:
            if self._request(number, at + 1):
                return True
        while len(self._chosen) > before:
            self._give_back()
        return False

    def _take(self, number: int, at: int, alternative: Alternative, count: int, first: int) -> bool:
        """Choose `count` more devices from the `first` on, and go on with the next request."""
        if not count:
            return self._request(number, at + 1)
        looks = 1 + len(self._asks[number].claim.constraints)
        self._budget.left -= looks * (len(self._devices) - first)
        open_ones = [
            index
            for index in range(first, len(self._devices))
            if self._may_be_chosen(number, alternative, self._devices[index])
        ]
        for index in open_ones[: max(0, len(open_ones) - count + 1)]:
            device = self._devices[index]
            if self._budget.left <= 0:
                return False
            if not self._admits(number, alternative, device):
                continue
            if not self._choose(number, alternative, device):
                continue
            if self._take(number, at, alternative, count - 1, index + 1):
                return True
            self._give_back()
        return False

    def _may_be_chosen(self, number: int, alternative: Alternative, device: Offered) -> bool:
        """Tell whether a device is a candidate for a request.

        A condition that cannot be evaluated is a fault only if the search reaches that device.
        """
        return (
            self._is_open(number, alternative, device)
            and self._judge.answer(alternative, device, self._budget) is not False
            and self._meeting(number, alternative, device) is not None
        )

    def _is_open(self, number: int, alternative: Alternative, device: Offered) -> bool:
        """Tell whether no other use of a device prevents this one."""
        users = self._users.get(device.id, ())
        if device.is_shared:
            is_whole = not alternative.admin and self._taken.is_whole(device.id)
            return not (is_whole or self._has(number, alternative, device))
        if alternative.admin:
            return number not in users
        return not users and device.id not in self._taken.devices

    def _has(self, number: int, alternative: Alternative, device: Offered) -> bool:
        """Tell whether a request already has a share of a device; it gets one at most."""
        if not self._users.get(device.id):
            return False
        own = (number, alternative.request, device.id)
        return any((c.claim, c.alternative.request, c.offered.id) == own for c in self._chosen)

    def _part(self, alternative: Alternative, device: Offered) -> Parts | None:
        """Return the amounts that a request takes of a device, None if too little is left."""
        part = part_of(device.device, alternative.asks.capacity.requests)
        if part is None or not device.is_shared:
            return part
        chosen = [c.part for c in self._chosen if c.offered.id == device.id]
        used = added([self._taken.parts.get(device.id, {}), *chosen])
        return part if has_room(device.device, used, part) else None

    def _choose(self, number: int, alternative: Alternative, device: Offered) -> bool:
        """Choose a device if it is allowed; else change nothing."""
        if not self._is_open(number, alternative, device):
            return False
        if any(not _tolerated(taint, alternative.asks) for taint in device.taints):
            return False
        values, part = self._meeting(number, alternative, device), self._part(alternative, device)
        if values is None or part is None or not self._count_in(device, 1):
            return False
        for listed, value in values:
            listed.append(value)
        self._chosen.append(DeviceChoice(number, alternative, device, part))
        self._users.setdefault(device.id, []).append(number)
        self._sizes[number] += 1
        return True

    def _give_back(self) -> None:
        number, alternative, device, _ = self._chosen.pop()
        self._sizes[number] -= 1
        self._users[device.id].remove(number)
        self._count_in(device, -1)
        for listed, constraint in zip(
            self._values[number], self._asks[number].claim.constraints, strict=True
        ):
            if _concerns(constraint, alternative):
                listed.pop()

    def _meeting(
        self, number: int, alternative: Alternative, device: Offered
    ) -> list[tuple[list[DeviceAttribute], DeviceAttribute]] | None:
        """Return the values that a device adds to the constraints, None if it violates one."""
        found = []
        for listed, constraint in zip(
            self._values[number], self._asks[number].claim.constraints, strict=True
        ):
            if not _concerns(constraint, alternative):
                continue
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            value = attribute(device, name)
            if value is None:
                return None
            if constraint.match_attribute is None:
                if value in listed:
                    return None
            elif listed and listed[0] != value:
                return None
            found.append((listed, value))
        return found

    def _count_in(self, device: Offered, sign: int) -> bool:
        """Add a device to the counters of its pool (-1: remove it) unless a counter is used up.

        A shared device is counted once, independent of the number of its shares.
        """
        if not device.counters or (device.is_shared and self._is_shared_already(device)):
            return True
        free = self._free_counters(device)
        if sign > 0 and (
            any(free.get(key, 0) < amount for key, amount in device.counters.items())
            or any(left < 0 for left in free.values())
        ):
            return False
        for key, amount in device.counters.items():
            free[key] -= sign * amount
        return True

    def _is_shared_already(self, device: Offered) -> bool:
        return device.id in self._taken.parts or bool(self._users.get(device.id))

    def _free_counters(self, device: Offered) -> dict[tuple[str, str], int]:
        key = (device.id.driver, device.id.pool)
        free = self._free.get(key)
        if free is None:
            pool = next(pool for pool in self._pools if pool.key == key)
            free = self._free[key] = dict(pool.counters)
            for consumer in pool.consumers:
                if consumer.id in self._taken.devices:
                    for counter, amount in consumer.counters.items():
                        free[counter] -= amount
        return free


def _concerns(constraint: DeviceConstraint, alternative: Alternative) -> bool:
    named = constraint.requests
    return not named or alternative.request in named or alternative.name in named


def _tolerated(taint: DeviceTaint, asks: ExactDeviceRequest) -> bool:
    if taint.effect not in {"NoSchedule", "NoExecute"}:
        return True
    return any(_tolerates(toleration, taint) for toleration in asks.tolerations)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
