"""Devices that drivers prepare before a bind: what is asked of the binder, and what waits."""

from typing import Any

import msgspec
import pytest

from pumice.testing import Cluster
from services.scheduler.messages import commands
from shared.api import kinds
from shared.contracts.messages import BindGang
from tests.unit.scheduler.devices import claim, device_class, slice_of, using

CONF = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""
PREPARED = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}


def world_of(devices: int, **conditions: Any) -> Cluster:
    world = Cluster(CONF).node("n1", cpu="100").put(kinds.DEVICECLASS, device_class())
    listed = [{"name": f"d{number}", **conditions} for number in range(devices)]
    return world.put(kinds.RESOURCESLICE, slice_of("n1", listed, node="n1"))


def user(world: Cluster, name: str, group: str, **status: Any) -> None:
    """Add a pod with a claim of its own."""
    claim(world, name, status=status)
    world.pod(name, group, cpu="1", **using(name))


def sent(world: Cluster, *, pods_each: int = 500) -> list[BindGang]:
    found = commands(world.decide(), token=1, gang_message=pods_each)
    assert all(isinstance(each, BindGang) for each in found)
    return [each for each in found if isinstance(each, BindGang)]


def needed(world: Cluster, **how: int) -> list[int | msgspec.UnsetType]:
    return [each.needed for each in sent(world, **how)]


def test_a_bind_says_that_its_devices_have_to_be_prepared():
    world = world_of(1, **PREPARED).group("g")
    user(world, "p", "g")
    ((bind,),) = [gang.binds for gang in sent(world)]
    (use,) = bind.devices
    (result,) = msgspec.json.decode(use.allocation)["devices"]["results"]
    assert (use.to_prepare, result["bindingConditions"]) == (True, ["ready"])


@pytest.mark.parametrize(
    ("minimum", "pods_each", "expected"),
    [
        pytest.param(4, 500, [4], id="all-of-them"),
        pytest.param(1, 500, [1], id="one-of-four"),
        pytest.param(3, 2, [1, 1], id="in-two-messages"),
    ],
)
def test_a_gang_says_how_many_of_its_pods_it_needs(minimum, pods_each, expected):
    world = world_of(4, **PREPARED).group("g", min_member=minimum)
    for number in range(4):
        user(world, f"p{number}", "g")
    assert needed(world, pods_each=pods_each) == expected


def test_pods_beyond_a_minimum_that_runs_already_need_not_stay_together():
    world = world_of(4, **PREPARED).group("g", min_member=2)
    for number in range(2):
        world.pod(f"r{number}", "g", cpu="1", node="n1", phase="Running")
    for number in range(3):
        user(world, f"p{number}", "g")
    assert needed(world) == [msgspec.UNSET]


def test_the_role_with_the_least_surplus_says_how_many_may_fail():
    world = world_of(5, **PREPARED)
    world.group("g", min_member=3, minTaskMember={"a": 2, "b": 1})
    for number in range(5):
        claim(world, f"p{number}")
        role = "a" if number < 3 else "b"
        world.pod(f"p{number}", "g", cpu="1", role=role, **using(f"p{number}"))
    assert needed(world) == [4]


def test_devices_that_are_ready_are_not_waited_for():
    plain = world_of(1).group("g")
    user(plain, "p", "g")
    assert needed(plain) == [msgspec.UNSET]

    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    status = {
        "allocation": {"devices": {"results": [{**result, **PREPARED}]}},
        "devices": [
            {
                **{name: result[name] for name in ("driver", "pool", "device")},
                "conditions": [{"type": "ready", "status": "True"}],
            }
        ],
    }
    prepared = world_of(1, **PREPARED).group("g")
    user(prepared, "p", "g", **status)
    assert needed(prepared) == [msgspec.UNSET]
