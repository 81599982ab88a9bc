"""ResourceClaims that the pods of a native PodGroup share (KEP-5729)."""

from pumice.testing import Cluster, binds_of
from services.scheduler.policy.devices.pools import DeviceId
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from tests.unit.scheduler.devices import claim, device_class, slice_of, using
from tests.unit.scheduler.test_native_groups import member

CONF = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""
OWNED = {
    "ownerReferences": [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "name": "g",
            "uid": "native-g",
            "controller": True,
        }
    ]
}
FROM_TEMPLATE = [{"name": "shared", "resourceClaimTemplateName": "t"}]
MADE = {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": "g-shared"}]}
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "native-g"}


def cluster(devices=1):
    world = Cluster(CONF).node("n1", cpu="1000", pods="1000").node("n2", cpu="1000", pods="1000")
    names = [f"d{number}" for number in range(devices)]
    world.put(kinds.RESOURCESLICE, slice_of("n1", names, node="n1"))
    return world.put(kinds.DEVICECLASS, device_class())


def group(world, *, min_count, status=MADE, claims=FROM_TEMPLATE):
    meta = {"name": "g", "namespace": "ns", "uid": "native-g", "resourceVersion": "7"}
    policy = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    spec = {**policy, "resourceClaims": claims}
    return world.put(kinds.NATIVEPODGROUP, {"metadata": meta, "spec": spec, "status": status})


def users(plan):
    """Return claim → for which PodGroup each bind reserves it, "" for the pod itself."""
    found = {}
    for gang in plan.binds:
        for bind in gang.binds:
            for use in bind.devices:
                found.setdefault(use.claim, set()).add(f"{use.group} {use.group_uid}".strip())
    return found


def test_more_pods_than_a_claim_may_list_share_one_of_their_group():
    world = group(cluster(), min_count=300)
    claim(world, "g-shared", **OWNED)
    for number in range(300):
        member(world, f"g-{number}", "g", resourceClaims=FROM_TEMPLATE, status=MADE)
    plan = world.decide()
    assert set(binds_of(plan).values()) == {"n1"}
    assert len(binds_of(plan)) == 300
    assert users(plan) == {"ns/g-shared": {"g native-g"}}


def test_a_claim_that_the_group_names_is_reserved_for_it_and_others_for_the_pod():
    claims = [{"name": "ours", "resourceClaimName": "ours"}]
    world = group(cluster(devices=2), min_count=1, claims=claims, status={})
    claim(world, "ours")
    claim(world, "own")
    member(world, "g-0", "g", **using("ours", "own"))
    assert users(world.decide()) == {"ns/ours": {"g native-g"}, "ns/own": {""}}


def test_devices_that_are_reserved_for_a_group_are_not_promised_to_others_when_its_pods_leave():
    world = group(cluster(), min_count=1)
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}]
    held = {"allocation": {"devices": {"results": results}}, "reservedFor": [GROUP]}
    claim(world, "g-shared", status=held, **OWNED)
    going = {"resourceClaims": FROM_TEMPLATE, "status": MADE, "node": "n1", "deleting": True}
    member(world, "g-0", "g", **going)
    kept = world.cluster_state.store(Devices).kept()
    assert DeviceId("gpu.example.com", "n1", "d0") in kept.devices


def test_a_pod_of_a_group_waits_until_its_claim_is_made_of_the_template():
    world = group(cluster(), min_count=1, status={})
    member(world, "g-0", "g", resourceClaims=FROM_TEMPLATE)
    assert binds_of(world.decide()) == {}
    claim(world, "g-shared", **OWNED)
    group(world, min_count=1)
    member(world, "g-0", "g", resourceClaims=FROM_TEMPLATE, status=MADE)
    assert binds_of(world.decide()) == {"g-0": "n1"}
