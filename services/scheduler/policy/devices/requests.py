"""The requests of claims, read with the classes that they name, and which devices meet them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from services.scheduler.policy.devices.pools import Offered
from services.scheduler.policy.devices.selectors import SelectorFault, Selectors, variables_of
from shared.api.resource import (
    ALL,
    EXACT_COUNT,
    DeviceClaim,
    DeviceClass,
    ExactDeviceRequest,
)
from shared.model.quantity import milli

QUOTA: Final = "deviceclass/"
"""Begins the name of a class in the capability of a queue; `<capacity>.` may stand before it."""
_JUDGED_MAX: Final = 200_000
_THOUSANDTHS: Final = 1000


class Refusal(NamedTuple):
    """Why claims get no devices."""

    text: str
    fault: bool = False
    """Whether something is wrong with the claims or with what they ask for: no node helps then."""
    unfinished: bool = False
    """Whether there was no time to find out, and the next time will come further."""


class Alternative(NamedTuple):
    """One way to meet a request."""

    name: str
    """As results name it: `request`, or `request/alternative`."""
    request: str
    asks: ExactDeviceRequest
    device_class: DeviceClass
    conditions: tuple[str, ...]
    """The expressions of class and request: equal ones have equal answers."""

    @property
    def admin(self) -> bool:
        """Tell whether devices that are in use are given, too."""
        return bool(self.asks.admin_access)

    @property
    def wants_all(self) -> bool:
        """Tell whether it wants all devices."""
        return self.asks.allocation_mode == ALL


Requests = tuple[tuple[Alternative, ...], ...]
"""The requests of a claim, each with its alternatives."""


class Budget:
    """How much work is left: looks at devices, and steps of expressions about them."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.learning = False
        """Whether there were devices of which nothing was known yet: with that, less is left."""


class Ask(NamedTuple):
    """A claim that is to be allocated."""

    claim: DeviceClaim
    requests: Requests


def demand_of(claim: DeviceClaim) -> Mapping[str, int]:
    """Return what a claim asks for by the names of quotas, in thousandths. Raises `BadQuantity`.

    Of alternatives the best one counts, and "all" devices count as one: how many they are shows
    when they are allocated. What is asked of a capacity is asked of each device.
    """
    found: Counter[str] = Counter()
    for request in claim.requests:
        best = next(iter(request.alternatives), ExactDeviceRequest())
        name, count = f"{QUOTA}{best.device_class_name}", best.count or 1
        found[name] += count * _THOUSANDTHS
        for capacity, amount in best.capacity.requests.items():
            found[f"{capacity}.{name}"] += count * max(0, milli(amount))
    return found


def read(claim: DeviceClaim, classes: Mapping[str, DeviceClass]) -> Ask | Refusal:
    """Return a claim with its classes, or why nothing can be allocated for it."""
    requests = []
    for request in claim.requests:
        found = []
        for asks in request.alternatives:
            name = request.name if request.exactly else f"{request.name}/{asks.name}"
            device_class = classes.get(asks.device_class_name)
            if device_class is None:
                missing = f"device class {asks.device_class_name} does not exist"
                return Refusal(f"request {name}: {missing}", fault=True)
            if asks.allocation_mode not in {"", EXACT_COUNT, ALL}:
                mode = f"allocationMode {asks.allocation_mode} is not known here"
                return Refusal(f"request {name}: {mode}", fault=True)
            selectors = (*device_class.spec.selectors, *asks.selectors)
            conditions = tuple(each.cel.expression if each.cel else "" for each in selectors)
            found.append(Alternative(name, request.name, asks, device_class, conditions))
        if not found:
            return Refusal(f"request {request.name}: unknown request type", fault=True)
        requests.append(tuple(found))
    if any(
        (c.match_attribute is None) == (c.distinct_attribute is None) for c in claim.constraints
    ):
        return Refusal("a constraint of a kind that is not known here", fault=True)
    return Ask(claim, tuple(requests))


class Judge:
    """Which devices meet the conditions of requests, each asked once per version of a device."""

    def __init__(self) -> None:
        self._selectors = Selectors()
        self._variables: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._judged: dict[tuple[str, ...], dict[tuple[int, int], bool | SelectorFault]] = {}
        self._size = 0

    def _forget(self) -> None:
        """Forget all answers: many are about versions of devices that have gone."""
        self._variables, self._judged, self._size = {}, {}, 0

    def admits(self, alternative: Alternative, offered: Offered, budget: Budget) -> bool:
        """Tell whether a device meets all conditions. Raises `SelectorFault`."""
        answer = self.answer(alternative, offered, budget)
        if isinstance(answer, SelectorFault):
            raise answer
        return answer

    def answer(
        self, alternative: Alternative, offered: Offered, budget: Budget
    ) -> bool | SelectorFault:
        """Return whether a device meets all conditions, or why that cannot be said.

        Without budget no device does, for now.
        """
        if self._size > _JUDGED_MAX:
            self._forget()
        answers = self._judged.setdefault(alternative.conditions, {})
        version = (offered.serial, offered.place)
        answer = answers.get(version)
        if answer is None:
            budget.learning = True
            if budget.left <= 0:
                return False
            before = self._selectors.steps
            answer = answers[version] = self._ask(alternative, offered)
            budget.left -= self._selectors.steps - before
            self._size += 1
        return answer

    def _ask(self, alternative: Alternative, offered: Offered) -> bool | SelectorFault:
        selectors = (*alternative.device_class.spec.selectors, *alternative.asks.selectors)
        try:
            return self._selectors.admit(selectors, self._seen(offered)) if selectors else True
        except SelectorFault as error:
            return error

    def _seen(self, offered: Offered) -> Mapping[str, Any]:
        """Return what conditions see of a device. Raises `SelectorFault`."""
        version = (offered.serial, offered.place)
        found = self._variables.get(version)
        if found is None:
            found = self._variables[version] = variables_of(offered.id.driver, offered.device)
        return found
