"""Volumes decide where pods go (PL07: VolumeZone, NodeVolumeLimits, VolumeBinding)."""

from typing import Any

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.state.cluster_state import BadFact, ClusterState
from services.scheduler.policy.catalog import states
from shared.api import kinds


def claim(world: Cluster, name: str, *, volume: str = "", storage_class: str = "fast", **meta: Any):
    spec = {
        "storageClassName": storage_class,
        "volumeName": volume,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    head = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **meta}
    return world.put(kinds.PVC, {"metadata": head, "spec": spec})


def volume(world: Cluster, name: str, *, node: str = "", size: str = "1Gi", csi: str = "", **meta):
    spec: dict[str, Any] = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
    }
    if node:
        need = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = [{"matchExpressions": [need]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if csi:
        spec["csi"] = {"driver": csi, "volumeHandle": name}
    head = {"name": name, "uid": f"uid-{name}", **meta}
    document = {"metadata": head, "spec": spec, "status": {"phase": "Available"}}
    return world.put(kinds.PV, document)


def storage_class(world: Cluster, *, provisioner: str = "", waits: bool = True, **more: Any):
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    document = {"metadata": {"name": "fast", "uid": "sc"}, "provisioner": provisioner}
    return world.put(kinds.STORAGECLASS, document | {"volumeBindingMode": mode, **more})


def world_of(*zones: str) -> Cluster:
    world = Cluster()
    for number, zone in enumerate(zones):
        name = f"n{number}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        world.node(name, labels=labels)
    return world


def mounting(*claims: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    }


def reasons(plan) -> dict[str, int]:
    return dict(plan.explanations[0].reasons)


def test_a_pod_follows_its_bound_volume():
    world = world_of("a", "b")
    claim(volume(world, "pv", node="n1"), "c", volume="pv").gang("g", tasks=2, **mounting("c"))
    assert set(binds_of(world.decide()).values()) == {"n1"}


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda _: None, 'persistentvolumeclaim "c" not found'),
        (
            lambda w: claim(w, "c", deletionTimestamp="2026-01-01T00:00:00Z"),
            'persistentvolumeclaim "c" is being deleted',
        ),
        (lambda w: claim(w, "c"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            lambda w: claim(storage_class(w, waits=False, provisioner="csi"), "c"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            lambda w: claim(w, "c", volume="gone"),
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        (
            lambda w: claim(volume(w, "pv", node="elsewhere"), "c", volume="pv"),
            "node(s) didn't match PersistentVolume's node affinity",
        ),
        (
            lambda w: claim(storage_class(w), "c"),
            "node(s) didn't find available persistent volumes to bind",
        ),
        (
            lambda w: claim(
                volume(w, "pv", labels={"topology.kubernetes.io/zone": "z"}), "c", volume="pv"
            ),
            "node(s) had no available volume zone",
        ),
    ],
    ids=[
        "no claim",
        "deleted claim",
        "no class",
        "immediate",
        "no volume",
        "elsewhere",
        "no offer",
        "zone",
    ],
)
def test_what_is_wrong_with_a_claim_is_said(prepare, reason):
    world = world_of("a")
    prepare(world)
    plan = world.gang("g", tasks=1, **mounting("c")).decide()
    assert plan.binds == ()
    assert reasons(plan) == {reason: 1}


def test_zones_of_a_volume_may_be_several():
    world = world_of("a", "b", "c")
    zones = {"failure-domain.beta.kubernetes.io/zone": "b__c"}
    claim(volume(world, "pv", labels=zones), "c", volume="pv").gang("g", tasks=1, **mounting("c"))
    assert set(binds_of(world.decide()).values()) <= {"n1", "n2"}


def test_a_claim_that_waits_takes_a_volume_that_its_node_reaches_and_nobody_else_gets_it():
    world = storage_class(world_of("a", "b"), provisioner="kubernetes.io/no-provisioner")
    volume(world, "pv", node="n1")
    claim(claim(world, "c"), "d")
    world.gang("g", tasks=1, created="2026-01-01T00:00:00Z", **mounting("c"))
    world.gang("h", tasks=1, created="2026-01-02T00:00:00Z", **mounting("d"))
    assert binds_of(world.step()) == {"g-0": "n1"}
    assert world.decide().binds == ()
    volume(world, "pv2", node="n0")
    assert binds_of(world.decide()) == {"h-0": "n0"}


def test_two_claims_of_a_pod_need_two_volumes():
    world = storage_class(world_of("a", "b"), provisioner="kubernetes.io/no-provisioner")
    volume(volume(world, "p1", node="n0"), "p2", node="n1")
    claim(claim(world, "c"), "d").gang("g", tasks=1, **mounting("c", "d"))
    assert world.decide().binds == ()
    volume(world, "p3", node="n1", size="9Gi")
    assert binds_of(world.decide()) == {"g-0": "n1"}


def test_volumes_are_made_where_the_class_allows_and_for_one_node_only():
    allowed = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}]
    world = storage_class(world_of("a", "b", "b"), provisioner="csi", allowedTopologies=allowed)
    claim(world, "c").gang("g", tasks=3, **mounting("c"))
    nodes = list(binds_of(world.decide()).values())
    assert len(nodes) == 3
    assert len(set(nodes)) == 1
    assert set(nodes) <= {"n1", "n2"}


def test_a_node_that_was_selected_for_a_claim_is_the_only_one():
    world = storage_class(world_of("a", "b"), provisioner="csi")
    claim(world, "c", annotations={"volume.kubernetes.io/selected-node": "n1"})
    world.gang("g", tasks=1, **mounting("c"))
    assert binds_of(world.decide()) == {"g-0": "n1"}


def publish(world: Cluster, *, on: bool = True) -> Cluster:
    """Have the driver of a class that waits say that it publishes its capacity."""
    driver = {"metadata": {"name": "csi", "uid": "csi"}, "spec": {"storageCapacity": on}}
    return storage_class(world, provisioner="csi").put(kinds.CSIDRIVER, driver)


def room(world: Cluster, name: str, size: str | None, *, of: str = "fast", **more: Any) -> Cluster:
    """Say how much room a class has in a zone, or where `nodeTopology` says."""
    head = {"name": name, "namespace": "driver", "uid": name}
    topology = {"nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": name}}}
    document = {"metadata": head, "storageClassName": of, **topology, **more}
    return world.put(kinds.CSISTORAGECAPACITY, document | ({"capacity": size} if size else {}))


def test_a_pod_goes_where_its_driver_has_room_for_its_volume():
    world = claim(publish(world_of("a", "b", "c")), "c")
    room(room(room(world, "a", "500Mi"), "c", "9Gi", of="slow"), "b", "1Gi")
    assert binds_of(world.gang("g", tasks=1, **mounting("c")).decide()) == {"g-0": "n1"}


def test_a_pod_waits_for_room_and_says_so_until_the_driver_has_it():
    world = claim(publish(world_of("a", "b")), "c")
    plan = room(world, "a", "500Mi").gang("g", tasks=1, **mounting("c")).decide()
    assert plan.binds == ()
    assert reasons(plan) == {"node(s) did not have enough free storage": 2}
    assert binds_of(room(world, "a", "2Gi").step()) == {"g-0": "n0"}


def test_a_capacity_that_is_withdrawn_no_longer_counts():
    world = room(claim(publish(world_of("a")), "c"), "a", "2Gi").gang("g", tasks=1, **mounting("c"))
    world.delete(kinds.CSISTORAGECAPACITY, "driver/a", "a")
    assert world.decide().binds == ()
    world.delete(kinds.CSIDRIVER, "csi", "csi")
    assert binds_of(world.decide()) == {"g-0": "n0"}


@pytest.mark.parametrize(
    ("said", "placed"),
    [
        ({"capacity": "9Gi", "maximumVolumeSize": "500Mi"}, False),
        ({"capacity": "500Mi", "maximumVolumeSize": "1Gi"}, True),
        ({}, False),
        ({"capacity": "1e30"}, True),
        ({"capacity": "1Gi", "nodeTopology": None}, False),
        ({"capacity": "1Gi", "nodeTopology": {}}, True),
        (
            {
                "capacity": "1Gi",
                "nodeTopology": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0"]}
                    ]
                },
            },
            False,
        ),
        (
            {
                "capacity": "1Gi",
                "nodeTopology": {
                    "matchLabels": {
                        "kubernetes.io/hostname": "n0",
                        "topology.kubernetes.io/zone": "a",
                    }
                },
            },
            True,
        ),
    ],
    ids=[
        "largest volume too small",
        "largest volume wins",
        "no amount",
        "beyond all bounds",
        "no nodes",
        "all nodes",
        "not this node",
        "two labels",
    ],
)
def test_what_an_object_says_of_capacity_is_read_as_kubernetes_does(said, placed):
    world = room(claim(publish(world_of("a")), "c"), "a", None, **said)
    plan = world.gang("g", tasks=1, **mounting("c")).decide()
    assert bool(binds_of(plan)) is placed


def test_an_object_that_cannot_be_read_counts_as_absent():
    world = claim(publish(world_of("a")), "c").gang("g", tasks=1, **mounting("c"))
    room(world, "a", "1Gi")
    with pytest.raises(BadFact, match="'much' is no quantity"):
        room(world, "a", "much")
    assert world.decide().binds == ()
    assert binds_of(room(world, "a", "1Gi").decide()) == {"g-0": "n0"}


def test_of_several_objects_for_a_node_the_largest_counts():
    world = claim(publish(world_of("a")), "c")
    for name, size in (("x", "2Gi"), ("y", "500Mi"), ("z", "1Mi")):
        nodes = {"matchLabels": {"topology.kubernetes.io/zone": "a"}}
        room(world, name, size, nodeTopology=nodes if name != "z" else {})
    assert binds_of(world.gang("g", tasks=1, **mounting("c")).decide()) == {"g-0": "n0"}


def test_a_driver_that_publishes_nothing_is_believed_to_have_room():
    world = claim(publish(world_of("a"), on=False), "c")
    assert binds_of(world.gang("g", tasks=1, **mounting("c")).decide()) == {"g-0": "n0"}


def test_a_free_volume_needs_no_room():
    world = volume(claim(publish(world_of("a")), "c"), "pv", node="n0")
    assert binds_of(world.gang("g", tasks=1, **mounting("c")).decide()) == {"g-0": "n0"}


def test_a_node_that_moves_to_a_zone_with_room_is_taken():
    world = room(claim(publish(world_of("a")), "c"), "b", "1Gi").gang("g", tasks=1, **mounting("c"))
    assert world.decide().binds == ()
    world.node("n0", labels={"topology.kubernetes.io/zone": "b"})
    assert binds_of(world.decide()) == {"g-0": "n0"}


def test_without_the_flag_capacity_is_not_even_read():
    heeding, heedless = (
        ClusterState(("volcano",), states(queue_gates=False, csi_storage=on), ())
        for on in (True, False)
    )
    assert heeding.kinds - heedless.kinds == {
        kinds.CSIDRIVER.token,
        kinds.CSISTORAGECAPACITY.token,
    }


def test_a_node_attaches_no_more_volumes_than_its_driver_can():
    world = world_of("a", "b")
    for node, count in (("n0", 1), ("n1", 2)):
        drivers = [{"name": "csi", "allocatable": {"count": count}}]
        world.put(
            kinds.CSINODE, {"metadata": {"name": node, "uid": node}, "spec": {"drivers": drivers}}
        )
    world.group("g", min_member=1)
    for number in range(5):
        claim(volume(world, f"pv{number}", csi="csi"), f"c{number}", volume=f"pv{number}")
        world.pod(f"p{number}", "g", cpu="1", **mounting(f"c{number}"))
    plan = world.decide()
    nodes = list(binds_of(plan).values())
    assert (nodes.count("n0"), nodes.count("n1")) == (1, 2)
    assert reasons(plan) == {"node(s) exceed max volume count": 2}
    world.pod("again", "h", cpu="1", **mounting("c0")).group("h")
    assert "again" in binds_of(world.step())


def test_switched_off_volume_checks_are_not_made_pl07():
    off = ", ".join(
        f"predicate.{name}Enable: false"
        for name in ("NodeVolumeLimits", "VolumeZone", "VolumeBinding")
    )
    plugins = f"[{{name: gang}}, {{name: predicates, arguments: {{{off}}}}}]"
    world = Cluster(f'actions: "allocate"\ntiers:\n- plugins: {plugins}\n').node("n0")
    world.gang("g", tasks=1, **mounting("nothing"))
    assert len(binds_of(world.decide())) == 1


# --- what the binding is told of claims ----------------------------------------------------------


def uses_of(plan) -> dict[str, list[tuple[str, str]]]:
    return {
        bind.pod.partition("/")[2]: [(use.claim, use.volume) for use in bind.claims]
        for gang in plan.binds
        for bind in gang.binds
    }


def test_a_binding_names_the_volume_that_each_waiting_claim_gets_ca11():
    world = storage_class(world_of("a", "b"), provisioner="kubernetes.io/no-provisioner")
    volume(volume(world, "v0", node="n0"), "v1", node="n1")
    for name in ("c0", "c1"):
        claim(world, name)
    world.group("g", min_member=2)
    for number in (0, 1):
        world.pod(f"g-{number}", "g", cpu="6", **mounting(f"c{number}"))
    plan = world.decide()
    by_node = {"n0": "v0", "n1": "v1"}
    where = binds_of(plan)
    assert uses_of(plan) == {
        f"g-{number}": [(f"ns/c{number}", by_node[where[f"g-{number}"]])] for number in (0, 1)
    }


def test_a_claim_whose_volume_is_to_be_made_is_named_without_one():
    world = storage_class(world_of("a"), provisioner="example.com/made")
    claim(claim(world, "c"), "bound", volume="there")
    volume(world, "there", node="n0", size="100Mi")
    world.group("g").pod("g-0", "g", cpu="1", **mounting("bound", "c"))
    assert uses_of(world.decide()) == {"g-0": [("ns/c", "")]}


def test_a_volume_that_was_promised_stays_promised_until_the_claim_shows_it():
    world = storage_class(world_of("a"), provisioner="kubernetes.io/no-provisioner")
    volume(volume(world, "v0", node="n0"), "v1", node="n0")
    claim(world, "z").group("g").pod("g-0", "g", cpu="1", **mounting("z"))
    assert uses_of(world.step()) == {"g-0": [("ns/z", "v0")]}
    claim(world, "a").group("h").pod("h-0", "h", cpu="1", **mounting("a"))
    assert uses_of(world.step()) == {"h-0": [("ns/a", "v1")]}
    claim(world, "b").group("i").pod("i-0", "i", cpu="1", **mounting("b"))
    assert uses_of(world.step()) == {}


def alone(world: Cluster, name: str) -> Cluster:
    spec = {"storageClassName": "fast", "volumeName": "v", "accessModes": ["ReadWriteOncePod"]}
    head = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return volume(world, "v").put(kinds.PVC, {"metadata": head, "spec": spec})


def test_a_claim_for_one_pod_is_used_by_one_pod_at_a_time_on_all_nodes_pl07():
    world = alone(world_of("a", "b"), "data").gang("g", tasks=2, min_member=1, **mounting("data"))
    first = world.step()
    assert len(binds_of(first)) == 1
    ((pod, node),) = binds_of(first).items()
    world.pod(pod, "g", cpu="1", node=node, **mounting("data"))
    waits = world.step()
    assert binds_of(waits) == {}
    assert reasons(waits) == {
        "node has pod using PersistentVolumeClaim with the same name "
        "and ReadWriteOncePod access mode": 2
    }
    world.delete(kinds.POD, f"ns/{pod}")
    assert len(binds_of(world.step())) == 1


def test_a_claim_for_one_pod_concerns_no_pod_of_another_claim_pl07():
    world = alone(world_of("a"), "data").pod("other", node="n0", scheduler="x", **mounting("data"))
    claim(world, "free", volume="w")
    volume(world, "w").gang("g", tasks=1, **mounting("free"))
    assert binds_of(world.step()) == {"g-0": "n0"}
