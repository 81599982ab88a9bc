"""Devices that several claims have a part of each (`allowMultipleAllocations`)."""

from typing import Any

import msgspec
import pytest
from msgspec import convert

from pumice.testing import Cluster, binds_of
from services.scheduler.policy.devices.pools import DeviceId
from services.scheduler.policy.devices.shares import part_of
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.api.resource import AllocationResult, Device
from shared.model.quantity import milli
from tests.unit.scheduler.devices import (
    DRIVER,
    Document,
    Offer,
    claim,
    device_class,
    part_of_card,
    request,
    slice_of,
    spec_of,
    using,
)
from tests.unit.scheduler.devices import card as whole_card

SHORT = "cannot allocate all claims"
CONF = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""
VALUES = {"default": "4Gi", "validValues": ["4Gi", "8Gi"]}
FRACTIONS = {"default": "1", "validRange": {"min": "200m", "max": "8Gi", "step": "300m"}}
STEPS = {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "3Gi"}}
LEAST = {"default": "1Gi", "validRange": {"min": "1Gi"}}


def card(name: str = "d0", *, policy: Document | None = None, value: str = "10Gi") -> Document:
    """Return a device whose memory is shared."""
    memory = {"value": value, **({"requestPolicy": policy} if policy else {})}
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": memory}}


def asking(memory: str, **said: Any) -> Document:
    """Return a request for so much memory of a device."""
    return request(capacity={"requests": {"memory": memory}}, **said)


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        pytest.param(None, None, "10Gi", id="all of it without a policy"),
        pytest.param(None, "300Mi", "300Mi", id="what is asked for without a policy"),
        pytest.param(None, "11Gi", None, id="more than there is"),
        pytest.param(VALUES, None, "4Gi", id="the default"),
        pytest.param(VALUES, "5Gi", "8Gi", id="the next valid value"),
        pytest.param(VALUES, "9Gi", None, id="beyond the valid values"),
        pytest.param(STEPS, "1Gi", "2Gi", id="the least"),
        pytest.param(STEPS, "2Gi", "2Gi", id="the least itself"),
        pytest.param(STEPS, "3Gi", "5Gi", id="the next step"),
        pytest.param(STEPS, "7Gi", "8Gi", id="the last step"),
        pytest.param(FRACTIONS, "1300m", "1400m", id="the next step of a fraction"),
        pytest.param(STEPS, "8500Mi", None, id="beyond the range"),
        pytest.param(LEAST, "9Gi", "9Gi", id="any amount from the least on"),
    ],
)
def test_a_request_takes_what_it_asks_for_rounded_up_by_the_policy(policy, asked, taken):
    device = convert(card(policy=policy), Device)
    found = part_of(device, {"memory": asked} if asked else {})
    assert found == ({"memory": milli(taken)} if taken else None)


def test_a_device_without_the_capacity_that_is_asked_for_is_not_given():
    assert Offer(slice_of("s", [card()], node="n1")).names(spec_of(asking("1Gi"))) == [["d0"]]
    assert Offer(slice_of("s", ["d0"], node="n1")).names(spec_of(asking("1Gi"))) == SHORT


def test_admin_access_to_a_shared_device_needs_room_but_takes_none():
    offer = Offer(slice_of("s", [card("a"), card("b")], node="n1"))
    full = {DeviceId(DRIVER, "n1", "a"): {"memory": milli("8Gi")}}
    admin = asking("3Gi", adminAccess=True)
    assert offer.names(spec_of(admin), taken=[f"{DRIVER}/n1/a"], parts=full) == [["b"]]
    twice = [request("r", adminAccess=True, **CAPACITY), request("s", adminAccess=True, **CAPACITY)]
    assert offer.names(spec_of(*twice)) == [["a", "a"]]


CAPACITY = {"capacity": {"requests": {"memory": "3Gi"}}}


def test_capacity_is_a_condition_only_for_a_device_that_is_given_whole():
    devices = [{"name": n, "capacity": {"memory": {"value": v}}} for n, v in
               (("small", "1Gi"), ("large", "20Gi"))]  # fmt: skip
    (found,) = Offer(slice_of("s", devices, node="n1")).ask(spec_of(asking("2Gi")))
    (result,) = found.devices.results
    assert (result.device, result.share_id, result.consumed_capacity) == ("large", None, {})


def test_claims_share_a_device_while_its_capacity_lasts():
    offer = Offer(slice_of("s", [card()], node="n1"))
    four = spec_of(asking("4Gi"))
    assert offer.names(four, four) == [["d0"], ["d0"]]
    assert offer.names(four, four, four) == SHORT
    used = {DeviceId(DRIVER, "n1", "d0"): {"memory": milli("7Gi")}}
    device = [f"{DRIVER}/n1/d0"]
    assert offer.names(four, taken=device, parts=used) == SHORT
    assert offer.names(spec_of(asking("3Gi")), taken=device, parts=used) == [["d0"]]
    assert offer.names(spec_of(asking("3Gi")), taken=device) == SHORT, "it is given whole"


def test_one_request_has_one_part_of_a_device_and_another_of_its_claim_may_have_one_too():
    """So kube-scheduler decides it (`make dra-check`)."""
    offer = Offer(slice_of("s", [card("d0"), card("d1")], node="n1"))
    assert offer.names(spec_of(asking("1Gi", count=2))) == [["d0", "d1"]]
    assert offer.names(spec_of(asking("1Gi", count=3))) == SHORT
    one, two = asking("1Gi", name="one"), asking("1Gi", name="two", count=2)
    assert offer.names(spec_of(one, two)) == [["d0", "d0", "d1"]]


def test_all_devices_are_those_that_have_the_capacity():
    offer = Offer(slice_of("s", [card("d0"), "d1", card("d2", value="1Gi")], node="n1"))
    every = spec_of(asking("2Gi", allocationMode="All"))
    assert offer.names(every) == [["d0"]]


def test_a_shared_device_takes_of_the_counters_of_its_pool_once():
    shared = {**part_of_card("p0", "30Gi"), **card("p0")}
    other = part_of_card("p1", "20Gi")
    offer = Offer(
        whole_card("a", node="n1", pool="p"),
        slice_of("b", [shared, other], node="n1", pool="p", count=2),
    )
    assert offer.names(spec_of(asking("4Gi")), spec_of(asking("4Gi"))) == [["p0"], ["p0"]]
    assert offer.names(spec_of(asking("4Gi")), spec_of(request())) == SHORT


def test_the_result_says_what_is_taken():
    (found,) = Offer(slice_of("s", [card(policy=STEPS)], node="n1")).ask(spec_of(asking("3Gi")))
    (result,) = found.devices.results
    assert {n: milli(q) for n, q in result.consumed_capacity.items()} == {"memory": milli("5Gi")}


# --- in sessions ---------------------------------------------------------------------------------


def world_of(*devices: Document) -> Cluster:
    world = Cluster(CONF).node("n")
    world.put(kinds.DEVICECLASS, device_class())
    world.put(kinds.RESOURCESLICE, slice_of("n", devices, node="n"))
    return world


def claiming(world: Cluster, name: str, memory: str, status: Any = None) -> None:
    """Add a pod of a group of its own, and its claim."""
    claim(world, name, asking(memory), status=status)
    world.group(name).pod(name, name, **using(name))


def decided(world: Cluster) -> tuple[dict[str, str], dict[str, AllocationResult]]:
    """Return the binds of a cycle, and what each claim gets by them."""
    found = world.decide()
    binds = [bind for gang in found.binds for bind in gang.binds]
    uses = {use.claim: use for bind in binds for use in bind.devices}
    allocations = {
        key: msgspec.json.decode(use.allocation, type=AllocationResult) for key, use in uses.items()
    }
    return binds_of(found), allocations


def test_pods_of_one_cycle_share_a_device_and_have_shares_of_their_own():
    world = world_of(card())
    for name in ("a", "b", "c"):
        claiming(world, name, "4Gi")
    binds, allocations = decided(world)
    assert len(binds) == len(allocations) == 2
    ids = {result.share_id for one in allocations.values() for result in one.devices.results}
    assert len(ids) == 2
    assert all(ids)


def test_what_claims_have_of_a_device_counts_and_comes_back_with_them():
    world = world_of(card())
    allocated = {
        "devices": {
            "results": [
                {
                    "request": "r", "driver": DRIVER, "pool": "n", "device": "d0",
                    "shareID": "0fe9a4a6-1c0d-4b2a-9f2e-5f0f0c1d2e3f",
                    "consumedCapacity": {"memory": "7Gi"},
                }
            ]
        }
    }  # fmt: skip
    status = {
        "allocation": allocated,
        "reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}],
    }
    claim(world, "has", asking("7Gi"), status=status)
    world.pod("x", node="n", uid="x", **using("has"))
    claiming(world, "a", "4Gi")
    assert not decided(world)[0]
    claim(world, "has", asking("7Gi"))
    assert decided(world)[0] == {"a": "n"}


def test_a_published_bind_keeps_its_share_until_the_claim_shows_it():
    world = world_of(card())
    claiming(world, "a", "6Gi")
    assert binds_of(world.step()) == {"a": "n"}
    claiming(world, "b", "6Gi")
    assert not binds_of(world.step())
    kept = world.cluster_state.store(Devices).taken()
    assert kept.parts == {DeviceId(DRIVER, "n", "d0"): {"memory": milli("6Gi")}}
