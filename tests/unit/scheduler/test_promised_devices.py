"""Devices of binds that were published: whose they are, and what is left when a bind fails."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.contracts.messages import Result
from tests.unit.scheduler.devices import claim, request, slice_of, using
from tests.unit.scheduler.test_allocating_devices import given, world_of


def fail(world: Cluster, pod: str) -> None:
    world.cluster_state.outcome(f"{world.cycle}-0", [(f"uid-ns/{pod}", Result.FAILED)])


def waiting(world: Cluster, *requests) -> Cluster:
    claim(world, "c", *requests)
    return world.group("g").pod("g-0", "g", **using("c"))


@pytest.mark.parametrize("late", [False, True], ids=["before the plan is out", "after it failed"])
def test_a_claim_that_is_made_anew_under_its_name_gets_what_it_asks_for_itself(late):
    world = waiting(world_of({"n1": 2}))
    plan = world.decide()
    world.delete(kinds.RESOURCECLAIM, "ns/c", "uid-c")
    if not late:
        claim(world, "c", request(count=2), uid="uid-new")
    world.publish(plan)
    fail(world, "g-0")
    if late:
        claim(world, "c", request(count=2), uid="uid-new")
    again = world.step()
    assert given(again) == {"g-0": ["n1/d0", "n1/d1"]}
    assert again.binds[0].binds[0].devices[0].uid == "uid-new"


def test_devices_of_a_failed_bind_that_their_driver_no_longer_offers_are_not_given():
    world = waiting(world_of({"n1": 1}))
    assert given(world.step()) == {"g-0": ["n1/d0"]}
    fail(world, "g-0")
    world.put(kinds.RESOURCESLICE, slice_of("newer", ["e0"], node="n1", generation=2))
    assert given(world.step()) == {"g-0": ["n1/e0"]}


def test_of_two_pods_with_one_claim_the_second_keeps_the_devices_when_the_first_fails():
    world = waiting(world_of({"n1": 1}))
    world.group("h").pod("h-0", "h", **using("c"))
    plan = world.step()
    assert given(plan) == {"g-0": ["n1/d0"], "h-0": ["n1/d0"]}
    world.cluster_state.outcome("1-0", [(b.uid, Result.FAILED) for b in plan.binds[0].binds])
    claim(world, "d")
    world.group("i").pod("i-0", "i", **using("d"))
    assert "i-0" not in binds_of(world.step())


def test_a_pod_that_is_gone_leaves_no_devices_with_its_claim():
    world = waiting(world_of({"n1": 1}))
    world.step()
    world.delete(kinds.POD, "ns/g-0")
    claim(world, "d")
    world.group("h").pod("h-0", "h", **using("d"))
    assert given(world.step()) == {"h-0": ["n1/d0"]}


def test_a_gang_that_is_not_whole_leaves_no_devices_with_a_claim_that_a_running_pod_names():
    world = world_of({"n1": 2})
    claim(world, "c")
    claim(world, "much", request(count=5))
    world.pod("other", node="n1", scheduler="other", **using("c"))
    world.group("g", min_member=2).pod("g-0", "g", cpu="1", **using("c"))
    world.pod("g-1", "g", cpu="1", **using("c", "much"))
    assert binds_of(world.step()) == {}
    assert not world.cluster_state.store(Devices).taken().devices
