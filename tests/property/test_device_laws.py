"""Laws of devices for claims, on drawn states: none twice, conditions hold, all or nothing."""

from collections.abc import Mapping
from itertools import combinations, product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from services.scheduler.policy.devices.pools import DeviceId, Offered
from services.scheduler.policy.devices.requests import Ask, Refusal, read
from services.scheduler.policy.devices.results import attribute
from shared.api.resource import AllocationResult, DeviceClaim, DeviceConstraint
from tests.support.device_states import CLASSES, NODES, DeviceState, draw
from tests.support.devices import Offer
from tests.support.hits import meet, met_in


def offer_of(state: DeviceState) -> Offer:
    return Offer(*state.slices, classes=CLASSES, labels=state.labels)


def ids_of(found: AllocationResult) -> list[tuple[str, bool]]:
    """Return the devices of an allocation, and whether each is for an administrator only."""
    return [("/".join(r[:3]), bool(r[3])) for r in _rows(found)]


def _rows(found: AllocationResult) -> list[tuple[str, str, str, bool | None]]:
    return [(r.driver, r.pool, r.device, r.admin_access) for r in found.devices.results]


@met_in(at_least=80)
@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_no_device_is_given_twice_and_what_is_given_meets_its_claim(rng: Random):
    state = draw(rng)
    offer = offer_of(state)
    taken: set[str] = set()
    allocated: set[str] = set()
    for pod in state.pods:
        names = [name for name in pod if name not in allocated]
        node = rng.choice(NODES)
        found = offer.ask(*(state.claims[n] for n in names), node=node, taken=sorted(taken))
        if isinstance(found, Refusal):
            continue
        assert len(found) == len(names), "all claims of a pod, or none"
        for name, one in zip(names, found, strict=True):
            mine = [device for device, admin in ids_of(one) if not admin]
            assert not taken & set(mine)
            assert len(set(ids_of(one))) == len(ids_of(one)) <= 32
            taken.update(mine)
            allocated.add(name)
            _meets(offer, state.claims[name]["devices"], one, node)
    meet(allocated)


def _meets(offer: Offer, claim: Mapping, found: AllocationResult, node: str) -> None:
    ask = read(_view(claim), offer.classes)
    assert isinstance(ask, Ask)
    there = {device.id: device for device in _devices(offer, node)}
    given_to: dict[str, list[Offered]] = {}
    for result in found.devices.results:
        device = there[DeviceId(result.driver, result.pool, result.device)]
        given_to.setdefault(result.request, []).append(device)
    for alternatives in ask.requests:
        (used,) = [each for each in alternatives if each.name in given_to]
        devices = given_to[used.name]
        assert all(offer.judge.admits(used, device) for device in devices)
        if not used.wants_all:
            assert len(devices) == (used.asks.count or 1)
    for constraint in ask.claim.constraints:
        concerned = [
            device
            for name, devices in given_to.items()
            if not constraint.requests or name.partition("/")[0] in constraint.requests
            for device in devices
        ]
        assert _holds(constraint, concerned)


def _holds(constraint: DeviceConstraint, devices: list[Offered]) -> bool:
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    values = [attribute(device, name) for device in devices]
    if None in values:
        return False
    distinct = len({repr(value) for value in values})
    return distinct <= 1 if constraint.match_attribute else distinct == len(values)


def _view(claim: Mapping) -> DeviceClaim:
    return convert(claim, DeviceClaim)


def _devices(offer: Offer, node: str) -> list[Offered]:
    labels = offer.labels[node]

    def selects(selector) -> bool:
        (term,) = selector.node_selector_terms
        return all(labels.get(need.key) in need.values for need in term.match_expressions)

    pools = offer.inventory.offer(node, selects)
    return [device for pool in pools if pool.usable for device in pool.devices]


@met_in(at_least=50)
@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_refusal_means_that_no_choice_of_devices_would_do(rng: Random):
    state = draw(rng)
    offer = offer_of(state)
    node, name = rng.choice(NODES), rng.choice(sorted(state.claims))
    there = _devices(offer, node)
    taken = {device.id for device in there if rng.random() < 0.3}
    found = offer.ask(state.claims[name], node=node, taken=["/".join(each) for each in taken])
    ask = read(_view(state.claims[name]["devices"]), offer.classes)
    if (
        isinstance(ask, Refusal)
        or (isinstance(found, Refusal) and found.fault)
        or any(device.counters for device in there)  # these are in test_device_allocation.py
    ):
        meet(())
        return
    possible = any(_fits(offer, ask, ways, there, taken) for ways in product(*ask.requests))
    assert possible is not isinstance(found, Refusal)
    meet([name] if there else ())


def _fits(offer: Offer, ask: Ask, ways, there: list[Offered], taken: set[DeviceId]) -> bool:
    """Tell whether some choice of devices meets one alternative of each request."""
    pots = []
    for way in ways:
        free = [
            device
            for device in there
            if offer.judge.admits(way, device)
            and (
                way.wants_all or ((way.admin or device.id not in taken) and _untainted(way, device))
            )
        ]
        if way.wants_all and (
            not free
            or not all(_untainted(way, d) for d in free)
            or (not way.admin and any(d.id in taken for d in free))
        ):
            return False
        size = len(free) if way.wants_all else way.asks.count or 1
        pots.append(list(combinations(free, size)))
    return any(_together(ask, ways, choice) for choice in product(*pots))


def _untainted(way, device: Offered) -> bool:
    hard = [t for t in device.device.taints if t.effect != "None"]
    return not hard or bool(way.asks.tolerations)


def _together(ask: Ask, ways, choice) -> bool:
    flat = [device for devices in choice for device in devices]
    if len({device.id for device in flat}) != len(flat):
        return False
    return all(
        _holds(
            constraint,
            [
                device
                for way, devices in zip(ways, choice, strict=True)
                if not constraint.requests or way.request in constraint.requests
                for device in devices
            ],
        )
        for constraint in ask.claim.constraints
    )
