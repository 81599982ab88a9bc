"""Laws of devices for claims, on drawn states: none twice, conditions hold, all or nothing."""

from collections.abc import Mapping
from itertools import combinations, product
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from pumice.testing import Cluster
from services.scheduler.decide import run_actions
from services.scheduler.policy.devices.pools import DeviceId, Offered
from services.scheduler.policy.devices.requests import (
    ClaimRequest,
    DeviceRefusal,
    SearchBudget,
    read,
)
from services.scheduler.policy.devices.results import attribute, shared_parts
from services.scheduler.policy.devices.shares import added, has_room
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.api.resource import AllocationResult, DeviceClaim, DeviceConstraint
from tests.property.device_states import (
    CLASSES,
    NODES,
    DeviceState,
    draw,
    draw_extended,
    draw_shared,
)
from tests.support.laws import count_hits, needs_hits
from tests.unit.scheduler.devices import Offer


def offer_of(state: DeviceState) -> Offer:
    return Offer(*state.slices, classes=CLASSES, labels=state.labels)


def ids_of(found: AllocationResult) -> list[tuple[str, bool]]:
    """Return the devices of an allocation, and whether each is for an administrator only."""
    return [("/".join(r[:3]), bool(r[3])) for r in _rows(found)]


def _rows(found: AllocationResult) -> list[tuple[str, str, str, bool | None]]:
    return [(r.driver, r.pool, r.device, r.admin_access) for r in found.devices.results]


@needs_hits(at_least=60)
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
        if isinstance(found, DeviceRefusal):
            continue
        assert len(found) == len(names), "all claims of a pod, or none"
        for name, one in zip(names, found, strict=True):
            mine = [device for device, admin in ids_of(one) if not admin]
            assert not taken & set(mine)
            assert len(set(ids_of(one))) == len(ids_of(one)) <= 32
            taken.update(mine)
            allocated.add(name)
            _meets(offer, state.claims[name]["devices"], one, node)
    count_hits(allocated)


@needs_hits(at_least=10)
@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_what_claims_have_of_a_device_is_never_more_than_it_has(rng: Random):
    state = draw_shared(rng)
    offer = offer_of(state)
    whole: set[DeviceId] = set()
    parts: dict[DeviceId, dict[str, int]] = {}
    given_parts = 0
    for name in sorted(state.claims):
        node = rng.choice(NODES)
        taken = ["/".join(device) for device in sorted(whole | parts.keys())]
        found = offer.ask(state.claims[name], node=node, taken=taken, parts=parts)
        if isinstance(found, DeviceRefusal):
            continue
        there = {device.id: device for device in _devices(offer, node)}
        mine = shared_parts(found[0])
        given_parts += len(mine)
        for device, part in mine.items():
            parts[device] = added([parts.get(device, {}), part])
            assert has_room(there[device].device, {}, parts[device])
        alone = {
            DeviceId(r.driver, r.pool, r.device)
            for r in found[0].devices.results
            if r.share_id is None and not r.admin_access
        }
        assert not (alone & parts.keys())
        assert not (whole & alone)
        whole |= alone
    count_hits(range(given_parts))


def _meets(offer: Offer, claim: Mapping, found: AllocationResult, node: str) -> None:
    ask = read(_view(claim), offer.classes)
    assert isinstance(ask, ClaimRequest)
    there = {device.id: device for device in _devices(offer, node)}
    given_to: dict[str, list[Offered]] = {}
    for result in found.devices.results:
        device = there[DeviceId(result.driver, result.pool, result.device)]
        given_to.setdefault(result.request, []).append(device)
    for alternatives in ask.requests:
        (used,) = [each for each in alternatives if each.name in given_to]
        devices = given_to[used.name]
        assert all(offer.judge.admits(used, device, SearchBudget(10**6)) for device in devices)
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
    return [device for pool in offer.pools(node) if pool.usable for device in pool.devices]


@needs_hits(at_least=35)
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
        isinstance(ask, DeviceRefusal)
        or (isinstance(found, DeviceRefusal) and found.fault)
        or any(device.counters for device in there)  # these are in test_device_allocation.py
    ):
        count_hits(())
        return
    possible = any(_fits(offer, ask, ways, there, taken) for ways in product(*ask.requests))
    assert possible is not isinstance(found, DeviceRefusal)
    count_hits([name] if there else ())


def _fits(
    offer: Offer, ask: ClaimRequest, ways, there: list[Offered], taken: set[DeviceId]
) -> bool:
    """Tell whether some choice of devices meets one alternative of each request."""
    pots = []
    for way in ways:
        free = [
            device
            for device in there
            if offer.judge.admits(way, device, SearchBudget(10**6))
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


def _together(ask: ClaimRequest, ways, choice) -> bool:
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


# --- sessions ------------------------------------------------------------------------------------

CONF = """
actions: "allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""


def world_of(state: DeviceState, rng: Random) -> Cluster:
    """Return a cluster whose pods are in gangs, some of them running and of low priority."""
    world = Cluster(CONF)
    for name, value in (("low", 1), ("high", 9)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    for node in NODES:
        world.node(node, cpu="4", labels=state.labels[node], **state.plugins.get(node, {}))
    for each in CLASSES:
        world.put(kinds.DEVICECLASS, each)
    for each in state.slices:
        world.put(kinds.RESOURCESLICE, each)
    for name, spec in state.claims.items():
        world.put(kinds.RESOURCECLAIM, {"metadata": meta(name), "spec": spec})
    for number, claims in enumerate(state.pods):
        size, rank = rng.randint(1, 2), rng.choice(("low", "high"))
        world.group(f"g{number}", min_member=size, priorityClassName=rank)
        for index in range(size):
            uses = [{"name": claim, "resourceClaimName": claim} for claim in claims]
            main, init = state.containers[number] if state.containers else ([], [])
            asking = {"containers": main, "initContainers": init} if main else {}
            world.pod(f"g{number}-{index}", f"g{number}", cpu="1", resourceClaims=uses, **asking)
    if rng.random() < 0.3:  # another scheduler has placed a pod whose claim has no devices
        name = rng.choice(sorted(state.claims))
        uses = [{"name": name, "resourceClaimName": name}]
        world.pod("other", node=rng.choice(NODES), scheduler="other", resourceClaims=uses)
    return world


def meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}"}


def kept_in(world: Cluster) -> bytes:
    """Return all that a cluster state goes by of devices."""
    devices = world.cluster_state.store(Devices)
    return repr(
        (
            sorted((device, sorted(claims)) for device, claims in devices._holders.claims.items()),
            sorted(devices._decided.items()),
            sorted((key, sorted(tasks)) for key, tasks in devices._decided_for.items()),
            devices._on_nodes.all(),
            sorted(devices._given_up),
            sorted(devices._promises.by_claim.items()),
        )
    ).encode()


@needs_hits(at_least=15)
@given(st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_sessions_give_no_device_twice_keep_gangs_whole_and_leave_no_trace(rng: Random):
    state = draw_extended(rng, draw(rng))
    world = world_of(state, rng)
    owners: dict[str, str] = {}
    bound: dict[str, int] = {}
    for _ in range(3):
        before = kept_in(world)
        plan = world.decide()
        assert kept_in(world) == before, "a session leaves nothing behind"
        world.publish(plan)
        for binds in plan.binds:
            bound[binds.job] = bound.get(binds.job, 0) + len(binds.binds)
            for use in (use for bind in binds.binds for use in bind.devices):
                allocation = msgspec.json.decode(use.allocation, type=AllocationResult)
                for device, admin in ids_of(allocation):
                    if not admin:
                        assert owners.setdefault(device, use.claim) == use.claim
        show_some(world, plan, rng)
    for key, count in bound.items():
        assert count >= world.job(key.partition("/")[2]).min_available
    count_hits(owners)


def show_some(world: Cluster, plan: Any, rng: Random) -> None:
    """Show what the binder has written, of some claims and pods."""
    for bind in (bind for binds in plan.binds for bind in binds.binds):
        if rng.random() < 0.5:
            continue
        pod = bind.pod.partition("/")[2]
        devices = world.cluster_state.store(Devices)
        for use in bind.devices:
            name = use.claim.partition("/")[2]
            reserved = {"resource": "pods", "name": pod, "uid": bind.uid}
            status = {"allocation": msgspec.json.decode(use.allocation), "reservedFor": [reserved]}
            spec = (
                {"devices": {"requests": [_exactly(*request) for request in use.requests]}}
                if use.requests
                else msgspec.to_builtins(devices.claims[use.claim].spec)
            )
            world.put(kinds.RESOURCECLAIM, {"metadata": meta(name), "spec": spec, "status": status})


def _exactly(name: str, device_class: str, count: int) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}


@needs_hits(at_least=15)
@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_trial_that_is_not_kept_takes_devices_back(rng: Random):
    world = world_of(draw(rng), rng)
    session = world.session()
    before = kept_in(world)
    try:
        with session.trial():
            run_actions(session, world.config)
            inside = kept_in(world)
        assert kept_in(world) == before
    finally:
        session.close()
    assert kept_in(world) == before
    count_hits([inside] if inside != before else ())
