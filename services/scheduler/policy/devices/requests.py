"""Requests of claims, resolved with their device classes, and the devices that match them."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from services.scheduler.policy.devices.pools import Offered
from services.scheduler.policy.devices.selectors import (
    LETTERS,
    DeviceContent,
    Evaluator,
    SelectorFault,
    Verdict,
    content_of,
    shown,
    unreadable,
)
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
"""Most cached results, counted with the letters of their expressions (`LETTERS`)."""
_THOUSANDTHS: Final = 1000


class DeviceRefusal(NamedTuple):
    """Why claims are not allocated."""

    text: str
    fault: bool = False
    """Whether the claims or their classes are invalid, so that no node can satisfy them."""
    claim: int = 0
    """Index of the claim."""
    unfinished: bool = False
    """Whether the work limit was reached; the next session continues."""


class Alternative(NamedTuple):
    """One alternative of a request."""

    name: str
    """As results name it: `request`, or `request/alternative`."""
    request: str
    asks: ExactDeviceRequest
    device_class: DeviceClass
    conditions: tuple[str, ...]
    """The expressions of class and request; equal ones have equal results. "" is a selector without
    CEL.
    """
    owner: str
    """The namespace of the claim."""

    @property
    def admin(self) -> bool:
        """Tell whether devices in use may be allocated (admin access)."""
        return bool(self.asks.admin_access)

    @property
    def wants_all(self) -> bool:
        """Tell whether it requests all devices."""
        return self.asks.allocation_mode == ALL


Requests = tuple[tuple[Alternative, ...], ...]
"""The requests of a claim, each with its alternatives."""


class ResultUnknown(NamedTuple):
    """An expression whose result for a device is not known yet."""

    owner: str
    expression: str
    device: DeviceContent


class SearchBudget:
    """Remaining work in device checks, and the expression result that was missing."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.unknown: ResultUnknown | None = None
        """The first verdict that was not known: what is found without it does not count."""
        self.unknowns = 0
        """How many were not known."""


class ClaimRequest(NamedTuple):
    """A claim to allocate."""

    claim: DeviceClaim
    requests: Requests


def demand_of(claim: DeviceClaim) -> Mapping[str, int]:
    """Return the requests of a claim by names of quotas, in thousandths. Raises `BadQuantity`.

    Of alternatives the first one counts. A request for "all" devices counts as one, because their
    number is known only at allocation. A requested capacity is multiplied by the number of devices.
    """
    found: Counter[str] = Counter()
    for request in claim.requests:
        best = next(iter(request.alternatives), ExactDeviceRequest())
        name, count = f"{QUOTA}{best.device_class_name}", best.count or 1
        found[name] += count * _THOUSANDTHS
        for capacity, amount in best.capacity.requests.items():
            found[f"{capacity}.{name}"] += count * max(0, milli(amount))
    return found


def read(
    claim: DeviceClaim, classes: Mapping[str, DeviceClass], owner: str = ""
) -> ClaimRequest | DeviceRefusal:
    """Return a claim of a namespace with its classes, or why it cannot be allocated."""
    requests = []
    for request in claim.requests:
        found = []
        for asks in request.alternatives:
            name = request.name if request.exactly else f"{request.name}/{asks.name}"
            device_class = classes.get(asks.device_class_name)
            if device_class is None:
                missing = f"device class {asks.device_class_name} does not exist"
                return DeviceRefusal(f"request {name}: {missing}", fault=True)
            if asks.allocation_mode not in {"", EXACT_COUNT, ALL}:
                mode = f"allocationMode {asks.allocation_mode} is not known here"
                return DeviceRefusal(f"request {name}: {mode}", fault=True)
            selectors = (*device_class.spec.selectors, *asks.selectors)
            conditions = tuple(each.cel.expression if each.cel else "" for each in selectors)
            found.append(Alternative(name, request.name, asks, device_class, conditions, owner))
        if not found:
            return DeviceRefusal(f"request {request.name}: unknown request type", fault=True)
        requests.append(tuple(found))
    if any(
        (c.match_attribute is None) == (c.distinct_attribute is None) for c in claim.constraints
    ):
        return DeviceRefusal("a constraint of a kind that is not known here", fault=True)
    return ClaimRequest(claim, tuple(requests))


class DeviceMatcher:
    """Matches devices against the conditions of requests; cached per version of a device."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._contents: dict[tuple[int, int], DeviceContent | SelectorFault] = {}
        self._judged: dict[tuple[str, ...], dict[tuple[int, int], Verdict]] = {}
        self._size = 0

    def begin(self) -> None:
        """Begin a session."""
        self._evaluator.begin()

    @property
    def failure(self) -> str:
        """Why expressions are not evaluated at present, "" if they are."""
        return self._evaluator.failure

    def is_known(self, unknown: ResultUnknown) -> bool:
        """Tell whether a missing result is now known."""
        return self._evaluator.verdict(*unknown) is not None

    def admits(self, alternative: Alternative, offered: Offered, budget: SearchBudget) -> bool:
        """Tell whether a device meets all conditions. Raises `SelectorFault`."""
        match = self.answer(alternative, offered, budget)
        if isinstance(match, SelectorFault):
            raise match
        return match

    def answer(self, alternative: Alternative, offered: Offered, budget: SearchBudget) -> Verdict:
        """Return whether a device meets all conditions, or the fault of one.

        While a result is unknown the device does not match, and the budget records that.
        """
        if not alternative.conditions:
            return True
        if self._size > _JUDGED_MAX:
            self._contents, self._judged, self._size = {}, {}, 0
        answers = self._judged.get(alternative.conditions)
        if answers is None:
            answers = self._judged[alternative.conditions] = {}
            self._size += 1 + sum(map(len, alternative.conditions)) // LETTERS
        version = (offered.serial, offered.place)
        match = answers.get(version)
        if match is None:
            match = self._ask(alternative, offered, budget)
            if match is None:
                return False
            answers[version] = match
            self._size += 1
        return match

    def _ask(
        self, alternative: Alternative, offered: Offered, budget: SearchBudget
    ) -> Verdict | None:
        """Return the result of the conditions in their order, None while it is unknown."""
        device = self._content(offered)
        if isinstance(device, SelectorFault):
            return device
        is_known = True
        for expression in alternative.conditions:
            if not expression:
                return SelectorFault("a condition that is no CEL")
            verdict = unreadable(expression) or self._evaluator.verdict(
                alternative.owner, expression, device
            )
            if verdict is None:
                # The following conditions are requested too, so that all are evaluated together.
                is_known = False
                budget.unknowns += 1
                budget.unknown = budget.unknown or ResultUnknown(
                    alternative.owner, expression, device
                )
            elif is_known and isinstance(verdict, SelectorFault):
                return SelectorFault(f"{verdict} (selector {shown(expression)!r})")
            elif is_known and not verdict:
                return False
        return True if is_known else None

    def _content(self, offered: Offered) -> DeviceContent | SelectorFault:
        version = (offered.serial, offered.place)
        found = self._contents.get(version)
        if found is None:
            try:
                found = content_of(offered.id.driver, offered.device)
            except SelectorFault as error:
                found = SelectorFault(f"device {offered.device.name}: {error}")
            self._contents[version] = found
        return found
