"""Claims for devices: quotas of queues count them (PL06), and pods go where theirs are (PL07)."""

from typing import Any

import pytest

from pumice.testing import Cluster, binds_of
from shared.api import kinds
from tests.unit.scheduler.devices import device_class

QUOTAS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - {name: gang}
  - name: capacity
    enableHierarchy: TREE
    arguments:
      capacity.DynamicResourceAllocationEnable: ENABLED
      capacity.DRAConsumableCapacityEnable: CAPACITIES
"""


def quotas(*, tree: bool = False, enabled: bool = True, capacities: bool = False) -> Cluster:
    words = {
        "TREE": str(tree).lower(),
        "ENABLED": str(enabled).lower(),
        "CAPACITIES": str(capacities).lower(),
    }
    conf = QUOTAS
    for word, value in words.items():
        conf = conf.replace(word, value)
    return Cluster(conf, queue=False).node("n1")


def claim(
    world: Cluster,
    name: str,
    *,
    device: str = "gpu.com",
    count: int = 1,
    allocated: Any = None,
    capacity: dict[str, str] | None = None,
) -> Cluster:
    exactly = {"deviceClassName": device, "count": count, "capacity": {"requests": capacity or {}}}
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {} if allocated is None else {"allocation": allocated},
    }
    return world.put(kinds.RESOURCECLAIM, document)


def using(name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}


def pair(world: Cluster, *, device: str = "gpu.com", count: int = 1, **asks: Any) -> Cluster:
    """Two jobs of one pod each, each with a claim of its own."""
    for number in range(2):
        claim(world, f"c{number}", device=device, count=count, **asks)
        world.group(f"g{number}", created=f"2026-01-01T00:00:0{number}Z")
        world.pod(f"g{number}-0", f"g{number}", cpu="1", **using(f"c{number}"))
    return world


def test_a_queue_gets_no_more_devices_of_a_class_than_its_quota_pl06():
    world = pair(quotas().queue("default", capability={"deviceclass/gpu.com": "1"}))
    plan = world.decide()
    assert binds_of(plan) == {"g0-0": "n1"}
    assert {e.job: e.gate for e in plan.explanations} == {"ns/g1": "quota"}


def test_other_classes_have_quotas_of_their_own():
    world = pair(quotas().queue("default", capability={"deviceclass/nic.com": "1"}))
    assert len(binds_of(world.decide())) == 2


def test_quotas_of_devices_count_only_when_asked_for():
    limits = {"deviceclass/gpu.com": "1"}
    assert (
        len(binds_of(pair(quotas(enabled=False).queue("default", capability=limits)).decide())) == 2
    )


def test_what_running_pods_hold_counts_from_cycle_to_cycle():
    world = pair(quotas().queue("default", capability={"deviceclass/gpu.com": "1"}))
    world.step()
    assert binds_of(world.step()) == {}
    world.pod("g0-0", "g0", cpu="1", node="n1", phase="Succeeded", **using("c0"))
    assert binds_of(world.decide()) == {"g1-0": "n1"}


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
def test_a_claim_that_pods_share_counts_once_in_its_queue_pl06(phase):
    world = quotas().queue("default", capability={"deviceclass/gpu.com": "1"})
    claim(world, "shared").group("g", min_member=2, phase=phase, minResources={"cpu": "2"})
    for pod in ("g-0", "g-1"):
        world.pod(pod, "g", cpu="1", **using("shared"))
    world.group("h").pod("h-0", "h", cpu="1", **using("shared"))
    claim(world, "own").group("i").pod("i-0", "i", cpu="1", **using("own"))
    bound = binds_of(world.step()) | binds_of(world.step())
    assert bound.keys() == {"g-0", "g-1", "h-0"}
    for pod in ("g-0", "g-1"):
        world.delete(kinds.POD, f"ns/{pod}")
    assert binds_of(world.step()) == {}
    world.delete(kinds.POD, "ns/h-0")
    assert binds_of(world.step()) == {"i-0": "n1"}


def test_a_quota_of_a_parent_holds_for_all_its_children():
    world = quotas(tree=True).queue("root")
    world.queue("p", parent="root", capability={"deviceclass/gpu.com": "1"})
    world.queue("default", parent="p")
    assert len(binds_of(pair(world).decide())) == 1


def test_a_job_that_asks_for_more_devices_than_its_queue_may_have_stays_outside():
    world = quotas().queue("default", capability={"deviceclass/gpu.com": "1"})
    claim(world, "c", count=2).group("g", phase="Pending", minResources={"cpu": "1"})
    world.pod("g-0", "g", cpu="1", **using("c"))
    (why,) = world.decide().explanations
    assert (why.gate, why.shortages[0].resource) == ("enqueue", "deviceclass/gpu.com")
    assert (why.shortages[0].requested, why.shortages[0].largest_free) == (2000, 1000)


@pytest.mark.parametrize("roles", [False, True], ids=["minimum", "minimum of a role"])
def test_a_job_enters_its_queue_with_the_devices_of_its_minimum_and_gets_no_more_than_its_quota(
    roles,
):
    world = quotas().queue("default", capability={"deviceclass/gpu.com": "2"})
    minima = {"minTaskMember": {"w": 1}} if roles else {}
    world.group("g", phase="Pending", minResources={"cpu": "1"}, **minima)
    for number in range(4):
        claim(world, f"c{number}")
        world.pod(f"g-{number}", "g", cpu="1", role="w", **using(f"c{number}"))
    bound = binds_of(world.step()) | binds_of(world.step())
    assert bound.keys() == {"g-0", "g-1"}


def test_a_job_that_entered_its_queue_reserves_the_devices_of_its_pods():
    world = quotas().queue("default", capability={"deviceclass/gpu.com": "3"})
    for name in ("a", "b"):
        claim(world, name, count=2).group(name, phase="Pending", minResources={"cpu": "1"})
        world.pod(f"{name}-0", name, cpu="1", **using(name))
    assert {e.job: e.gate for e in world.decide().explanations} == {"ns/b": "enqueue"}


@pytest.mark.parametrize(
    ("capability", "asked", "bound"),
    [
        pytest.param({"memory.deviceclass/gpu.com": "16Gi"}, {"memory": "8Gi"}, 2, id="room"),
        pytest.param({"memory.deviceclass/gpu.com": "15Gi"}, {"memory": "8Gi"}, 1, id="too-much"),
        pytest.param(
            {"deviceclass/gpu.com": "1", "memory.deviceclass/gpu.com": "64Gi"},
            {"memory": "8Gi"},
            1,
            id="too-many-devices",
        ),
        pytest.param({"cores.deviceclass/gpu.com": "8"}, {"memory": "1Gi"}, 0, id="not-named"),
        pytest.param({"deviceclass/gpu.com": "9"}, {"memory": "1Gi"}, 0, id="devices-named-alone"),
        pytest.param({"memory.deviceclass/nic.com": "1"}, {"memory": "1Gi"}, 2, id="another-class"),
        pytest.param({"memory.deviceclass/gpu.com": "1"}, {}, 2, id="asks-for-none"),
    ],
)
def test_what_is_asked_of_capacities_is_counted_by_class_pl06(capability, asked, bound):
    world = quotas(capacities=True).queue("default", capability=capability)
    assert len(binds_of(pair(world, capacity=asked).decide())) == bound


def test_capacities_are_counted_for_each_device_of_a_request():
    limits = {"memory.deviceclass/gpu.com": "31Gi"}
    world = quotas(capacities=True).queue("default", capability=limits)
    assert len(binds_of(pair(world, count=2, capacity={"memory": "8Gi"}).decide())) == 1


def test_quotas_of_capacities_count_only_when_asked_for():
    limits = {"memory.deviceclass/gpu.com": "1Gi"}
    world = quotas().queue("default", capability=limits)
    assert len(binds_of(pair(world, capacity={"memory": "8Gi"}).decide())) == 2


def test_a_job_that_asks_for_more_of_a_capacity_than_its_queue_may_have_stays_outside():
    world = quotas(capacities=True)
    world.queue("default", capability={"memory.deviceclass/gpu.com": "4Gi"})
    claim(world, "c", capacity={"memory": "8Gi"})
    world.group("g", phase="Pending", minResources={"cpu": "1"})
    world.pod("g-0", "g", cpu="1", **using("c"))
    (why,) = world.decide().explanations
    assert (why.gate, why.shortages[0].resource) == ("enqueue", "memory.deviceclass/gpu.com")
    assert "insufficient memory.deviceclass/gpu.com" in why.message


# --- where pods go -------------------------------------------------------------------------------

NODES = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
"""


def reachable(node: str) -> dict[str, Any]:
    need = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}}


def two_nodes() -> Cluster:
    world = Cluster(NODES)
    for name in ("n1", "n2"):
        world.node(name, labels={"kubernetes.io/hostname": name})
    return world


@pytest.mark.parametrize(
    ("allocated", "nodes"),
    [({}, {"n1", "n2"}), (reachable("n2"), {"n2"})],
    ids=["everywhere", "one-node"],
)
def test_a_pod_goes_where_its_claim_is_allocated_pl07(allocated, nodes):
    world = claim(two_nodes(), "c", allocated=allocated).group("g")
    world.pod("g-0", "g", cpu="1", **using("c"))
    assert binds_of(world.decide())["g-0"] in nodes


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (True, "cannot allocate all claims: ns/c (1 gpu.com)"),
        (False, "waiting for a resource claim to be created: ns/c"),
    ],
    ids=["not-allocated", "not-there"],
)
def test_a_pod_waits_while_a_claim_of_it_is_not_allocated(known, reason):
    world = two_nodes().group("g").pod("g-0", "g", cpu="1", **using("c"))
    world.put(kinds.DEVICECLASS, device_class("gpu.com"))
    if known:
        claim(world, "c")
    plan = world.decide()
    assert binds_of(plan) == {}
    assert dict(plan.explanations[0].reasons) == {reason: 2}


def test_a_claim_that_was_made_of_a_template_is_found_by_the_pods_status():
    world = claim(two_nodes(), "g-0-c-xyz", allocated=reachable("n2")).group("g")
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    world.pod("g-0", "g", cpu="1", resourceClaims=claims)
    assert binds_of(world.decide()) == {}
    made = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "g-0-c-xyz"}]}
    world.pod("g-0", "g", cpu="1", resourceClaims=claims, status=made)
    assert binds_of(world.decide()) == {"g-0": "n2"}
