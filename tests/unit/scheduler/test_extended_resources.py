"""Extended resources that devices serve: the claim for a pod, nodes that fit, limits of queues."""

from typing import Any

import msgspec
import pytest
from msgspec import convert

from pumice.testing import Cluster, binds_of
from services.scheduler.policy.devices.extended import (
    classes_by_resource,
    devices_of,
    make_claim,
    name_of_claim,
)
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.api.core import Pod
from shared.api.resource import DeviceClass
from shared.contracts.messages import DeviceUse
from tests.unit.scheduler.devices import DRIVER, claim, device, device_class, slice_of, using

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity}]
"""
PREEMPTING = CONF.replace("allocate, ", "allocate, preempt, ")


def container(name: str, amount: int = 0, resource: str = GPU, **more: Any) -> dict[str, Any]:
    asked = {resource: str(amount), "cpu": "1"} if amount else {"cpu": "1"}
    return {"name": name, "resources": {"requests": asked}, **more}


def claim_of(containers: list, init: list | None = None, classes: Any = None) -> Any:
    pod = convert({"spec": {"containers": containers, "initContainers": init or []}}, Pod)
    made = make_claim(devices_of(pod), classes or {GPU: "gpu"})
    requests = [(r.name, r.exactly.count) for r in made.claim.requests if r.exactly]
    return requests, [tuple(each) for each in made.mappings]


# --- the claim -----------------------------------------------------------------------------------


def test_each_container_that_stays_has_a_request_of_its_own():
    requests, mappings = claim_of([container("a", 2), container("b"), container("c", 1)])
    assert requests == [("container-0-request-1", 2), ("container-2-request-1", 1)]
    assert mappings == [
        ("a", GPU, "container-0-request-1"),
        ("c", GPU, "container-2-request-1"),
    ]


def test_init_containers_use_devices_of_later_containers_and_share_what_is_more():
    init = [container("i", 3), container("j", 5)]
    requests, mappings = claim_of([container("a", 2)], init)
    assert requests == [("container-1-request-1", 3), ("container-2-request-1", 2)]
    assert mappings == [
        ("a", GPU, "container-2-request-1"),
        ("i", GPU, "container-2-request-1"),
        ("i", GPU, "container-1-request-1"),
        ("j", GPU, "container-2-request-1"),
        ("j", GPU, "container-1-request-1"),
    ]


def test_sidecars_stay_and_only_containers_before_them_may_use_their_devices():
    sidecar = container("s", 1, restartPolicy="Always")
    requests, _ = claim_of([container("a")], [container("i", 1), sidecar, container("j", 1)])
    assert requests == [("container-1-request-1", 1), ("container-2-request-1", 1)]


def test_a_resource_without_a_class_is_no_part_of_the_claim():
    requests, _ = claim_of([container("a", 1), container("b", 1, "example.com/fpga")])
    assert requests == [("container-0-request-1", 1)]


def test_of_classes_with_one_resource_the_youngest_serves_it():
    def dated(name: str, created: str) -> DeviceClass:
        meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{created}Z"}
        return convert({"metadata": meta, "spec": {"extendedResourceName": GPU}}, DeviceClass)

    classes = [dated("b", "1"), dated("a", "1"), dated("old", "0")]
    found = classes_by_resource(classes)
    assert found[GPU] == "a"
    assert found["deviceclass.resource.kubernetes.io/old"] == "old"


def test_the_name_of_a_claim_is_one_that_kubernetes_could_generate():
    name = name_of_claim("p" * 60, "uid")
    assert len(name) == 63
    assert name_of_claim("p", "uid-1") != name_of_claim("p", "uid-2")
    assert name_of_claim("p", "u").startswith("p-extended-resources-")


# --- sessions ------------------------------------------------------------------------------------


def world_of(devices: dict[str, int], conf: str = CONF, **class_spec: Any) -> Cluster:
    """Return nodes with so many devices each, of a class that is an extended resource."""
    world = Cluster(conf)
    spec = {"extendedResourceName": GPU, **class_spec}
    world.put(kinds.DEVICECLASS, device_class("gpu", f'device.driver == "{DRIVER}"', **spec))
    for node, count in devices.items():
        world.node(node)
        names = [f"d{number}" for number in range(count)]
        world.put(kinds.RESOURCESLICE, slice_of(node, names, node=node))
    return world


def uses_of(plan: Any) -> dict[str, DeviceUse]:
    """Return the device uses that travel with the binds, by pod."""
    binds = (bind for gang in plan.binds for bind in gang.binds)
    return {bind.pod.partition("/")[2]: use for bind in binds for use in bind.devices}


def given(plan: Any) -> dict[str, list[str]]:
    return {pod: _devices(use) for pod, use in uses_of(plan).items()}


def _devices(use: DeviceUse) -> list[str]:
    results = msgspec.json.decode(use.allocation)["devices"]["results"]
    return [result["device"] for result in results]


@pytest.mark.parametrize("resource", [GPU, IMPLICIT])
def test_a_pod_gets_devices_for_an_extended_resource_of_a_class(resource: str):
    world = world_of({"n1": 1, "n2": 3})
    world.group("g").pod("p", "g", cpu="1", requests={resource: "2"})
    plan = world.decide()
    use = uses_of(plan)["p"]
    assert binds_of(plan) == {"p": "n2"}
    assert _devices(use) == ["d0", "d1"]
    assert (use.uid, use.allocated) == ("", False)
    assert use.claim == f"ns/{name_of_claim('p', 'uid-ns/p')}"
    assert use.requests == (("container-0-request-1", "gpu", 2),)
    assert use.mappings == (("main", resource, "container-0-request-1"),)


def test_a_gang_gets_each_device_once_and_waits_whole_for_more():
    world = world_of({"n1": 2, "n2": 1})
    world.gang("a", tasks=3, requests={GPU: "1"})
    world.gang("b", tasks=1, requests={GPU: "1"}, created="2026-01-02T00:00:00Z")
    plan = world.step()
    assert sorted(binds_of(plan)) == ["a-0", "a-1", "a-2"]
    assert sorted(name for names in given(plan).values() for name in names) == ["d0", "d0", "d1"]
    assert not binds_of(world.step())


def test_a_node_whose_plugin_offers_the_resource_needs_no_claim():
    world = world_of({"n1": 0})
    world.node("n1", example_com__gpu="1")
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    plan = world.decide()
    assert (binds_of(plan), given(plan)) == ({"p": "n1"}, {})


def test_claims_and_extended_resources_of_a_pod_get_different_devices():
    world = world_of({"n1": 2})
    claim(world, "c")
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"}, **using("c"))
    (bind,) = world.decide().binds[0].binds
    by_claim = {use.claim.partition("/")[2]: _devices(use) for use in bind.devices}
    assert by_claim == {"c": ["d0"], name_of_claim("p", "uid-ns/p"): ["d1"]}


def test_a_resource_of_no_class_is_insufficient_everywhere():
    world = world_of({"n1": 1})
    world.group("g").pod("p", "g", cpu="1", requests={"example.com/fpga": "1"})
    assert not binds_of(world.decide())


def test_a_class_that_comes_later_serves_pods_that_wait():
    world = world_of({"n1": 1}, extendedResourceName="example.com/other")
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    assert not binds_of(world.decide())
    world.put(kinds.DEVICECLASS, device_class("gpu", extendedResourceName=GPU))
    assert given(world.decide()) == {"p": ["d0"]}


def test_devices_of_other_classes_do_not_serve_it():
    world = world_of({"n1": 1})
    nic = slice_of("nic", [device("nic0")], node="n1", pool="nic", driver="nic.example.com")
    world.put(kinds.RESOURCESLICE, nic)
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "2"})
    world.decide()  # the selectors are evaluated in it
    assert not binds_of(world.decide())
    assert world.session().total[world.cluster_state.dimensions.index(GPU)] == 1000


def test_a_queue_gets_no_more_devices_than_its_capability_says():
    world = world_of({"n1": 4}).queue("default", capability={GPU: "2"})
    for number in range(3):
        world.gang(f"g{number}", tasks=1, requests={GPU: "1"})
    assert len(binds_of(world.decide())) == 2


def test_a_group_without_pods_enters_its_queue_when_devices_suffice():
    world = world_of({"n1": 2}).queue("default", deserved={GPU: "2"})
    world.group("g", phase="Pending", minResources={GPU: "2"})
    world.group("h", phase="Pending", minResources={GPU: "3"})
    phases = {group.key: group.phase for group in world.decide().podgroups}
    assert phases == {"ns/g": "Inqueue", "ns/h": "Pending"}


def test_what_a_claim_shows_is_not_given_again_and_is_free_after_it():
    world = world_of({"n1": 1})
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    plan = world.step()
    use, name = uses_of(plan)["p"], name_of_claim("p", "uid-ns/p")
    show(world, name, use)
    world.pod("p", "g", cpu="1", node="n1", requests={GPU: "1"})
    world.group("h").pod("q", "h", cpu="1", requests={GPU: "1"})
    assert not binds_of(world.step())
    world.delete(kinds.POD, "ns/p", "uid-ns/p")
    assert not binds_of(world.step()), "the claim still has it"
    world.delete(kinds.RESOURCECLAIM, f"ns/{name}", "uid-made")
    assert given(world.step()) == {"q": ["d0"]}


def test_a_bind_that_is_assumed_before_its_class_is_known_keeps_its_device():
    world = world_of({"n1": 1})
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    plan = world.decide()
    after = Cluster(CONF).node("n1")
    after.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    after.publish(plan)
    after.put(kinds.RESOURCESLICE, slice_of("n1", ["d0"], node="n1"))
    after.put(kinds.DEVICECLASS, device_class("gpu", extendedResourceName=GPU))
    after.group("h").pod("q", "h", cpu="1", requests={GPU: "1"})
    assert not binds_of(after.decide())
    taken = after.cluster_state.store(Devices).taken()
    assert [device.device for device in taken.devices] == ["d0"]


def test_a_more_important_pod_takes_the_device_of_another():
    world = world_of({"n1": 1}, PREEMPTING)
    for name, value in (("low", 1), ("high", 9)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    world.group("g", min_member=0, priorityClassName="low")
    world.pod("p", "g", cpu="1", requests={GPU: "1"}, priority=1)
    use = uses_of(world.step())["p"]
    show(world, name_of_claim("p", "uid-ns/p"), use)
    world.pod("p", "g", cpu="1", node="n1", requests={GPU: "1"}, priority=1)
    world.group("h", priorityClassName="high")
    world.pod("q", "h", cpu="1", requests={GPU: "1"}, priority=9)
    plan = world.decide()
    assert [eviction.pod for eviction in plan.evictions] == ["ns/p"]


def test_a_claim_that_a_failed_bind_left_is_decided_anew():
    world = world_of({"n1": 2})
    world.group("g").pod("p", "g", cpu="1", requests={GPU: "1"})
    name = name_of_claim("p", "uid-ns/p")
    show(world, name, uses_of(world.decide())["p"])
    plan = world.step()
    assert given(plan) == {"p": ["d1"]}, "the other device has the claim that is left"
    devices = world.cluster_state.store(Devices)
    world.delete(kinds.RESOURCECLAIM, f"ns/{name}", "uid-made")
    world.group("h").pod("q", "h", cpu="1", requests={GPU: "1"})
    assert given(world.decide()) == {"q": ["d0"]}, "the binder is about to make the claim anew"
    show(world, name, uses_of(plan)["p"])
    allocation = devices.allocation(f"ns/{name}")
    assert allocation is not None
    assert [result.device for result in allocation.devices.results] == ["d1"]


def pod_of(name: str, *containers: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of the group `g`."""
    group = {"scheduling.k8s.io/group-name": "g"}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-ns/{name}",
            "annotations": group,
        },
        "spec": {"schedulerName": "volcano", "containers": list(containers)},
    }


def test_requests_of_pods_that_are_gone_are_forgotten():
    """A tenant may create pods with ever new names of containers."""
    world = world_of({"n1": 1})
    world.group("g")
    for number in range(300):
        world.put(kinds.POD, pod_of("p", container(f"c{number}", 1)))
        assert given(world.decide()) == {"p": ["d0"]}
        world.delete(kinds.POD, "ns/p", "uid-ns/p")
    extended = world.cluster_state.store(Devices).extended
    assert len(extended._made) <= 80
    assert len(extended._counts) <= 1


def test_two_pods_whose_statuses_name_one_claim_may_both_go():
    """Whoever may write the status of pods may write so."""
    world = world_of({"n1": 1})
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}}
    for name in ("p", "q"):
        world.put(kinds.POD, {**pod_of(name, container("a", 1)), "status": status})
    for name in ("p", "q"):
        world.delete(kinds.POD, f"ns/{name}", f"uid-ns/{name}")
    world.group("h").pod("r", "h", cpu="1", requests={GPU: "1"})
    assert given(world.decide()) == {"r": ["d0"]}


def show(world: Cluster, name: str, use: DeviceUse) -> None:
    """Show the claim that the binder has made."""
    requests = [
        {"name": request, "exactly": {"deviceClassName": of_class, "count": count}}
        for request, of_class, count in use.requests
    ]
    meta = {"name": name, "namespace": "ns", "uid": "uid-made"}
    reserved = [{"resource": "pods", "name": "p", "uid": "uid-ns/p"}]
    status = {"allocation": msgspec.json.decode(use.allocation), "reservedFor": reserved}
    spec = {"devices": {"requests": requests}}
    world.put(kinds.RESOURCECLAIM, {"metadata": meta, "spec": spec, "status": status})
