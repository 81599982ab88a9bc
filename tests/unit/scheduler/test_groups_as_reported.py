"""Gangs that users of Volcano have reported as stuck or misjudged, with the right decisions."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from shared.api import kinds

ONE_GPU = {"nvidia.com/gpu": "1"}


def test_a_role_that_replaces_another_one_is_placed_by_the_minimum_of_now():
    """Reported as volcano#4802: the minimum of the role that had gone was remembered."""
    world = Cluster().queue("default").node("n1", cpu="9")
    world.group("serving", min_member=4, minTaskMember={"prefill": 2, "decode": 2})
    for number in range(2):
        world.pod(f"prefill-{number}", "serving", cpu="1", role="prefill", node="n1")
        world.pod(f"decode-{number}", "serving", cpu="1", role="decode", node="n1")
    world.cluster_state.assume_statuses(world.decide())
    for number in range(2):
        world.delete(kinds.POD, f"ns/prefill-{number}")
    world.group("serving", min_member=2, phase="Running", minTaskMember={"decode": 2})
    world.cluster_state.assume_statuses(world.decide())
    world.group("serving", min_member=4, phase="Running", minTaskMember={"decode": 2, "router": 2})
    for number in range(2):
        world.pod(f"router-{number}", "serving", cpu="1", role="router")
    assert set(binds_of(world.decide())) == {"router-0", "router-1"}


def test_pods_without_a_role_that_ask_for_different_things_are_placed_each_where_it_fits():
    """Reported as kuberay#1752: what one could not use was not tried for the others."""
    world = Cluster().queue("default")
    world.node("cpus", cpu="8", labels={"role": "cpu"})
    world.node("gpus", cpu="2", labels={"role": "gpu"})
    world.group("mixed", min_member=3)
    world.pod("head", "mixed", cpu="1", nodeSelector={"role": "cpu"})
    world.pod("gpu", "mixed", cpu="1", nodeSelector={"role": "gpu"})
    world.pod("big", "mixed", cpu="6", nodeSelector={"role": "cpu"})
    assert binds_of(world.decide()) == {"head": "cpus", "gpu": "gpus", "big": "cpus"}


def test_a_gang_whose_last_pod_was_not_made_says_so_and_not_that_resources_lack():
    """Reported as mpi-operator#608: the launcher is made when the workers are ready."""
    world = Cluster().queue("default").node("n1", cpu="9").group("mpi", min_member=3)
    world.pod("worker-0", "mpi", cpu="1").pod("worker-1", "mpi", cpu="1")
    plan = world.decide()
    assert binds_of(plan) == {}
    (why,) = plan.explanations
    assert why.gate == "gang"
    assert why.message == "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"


def stranded_gang() -> Cluster:
    """A gang of 2 that has lost a pod, beside younger work that wants each free GPU."""
    world = Cluster().queue("default")
    for name in ("a", "b", "c"):
        world.node(name, nvidia_com__gpu="1")
    world.group("gang", min_member=2, phase="Running")
    world.pod("gang-0", "gang", requests=ONE_GPU, node="a").pod("gang-1", "gang", requests=ONE_GPU)
    world.group("filler", phase="Running", created="2026-01-02T00:00:00Z")
    world.pod("filler-0", "filler", requests=ONE_GPU, node="c")
    return world.pod("filler-1", "filler", requests=ONE_GPU)


def test_a_gang_below_its_minimum_goes_before_younger_work_of_equal_rank():
    """Reported as volcano#5805: the free GPU went to who had less, and the gang was stranded."""
    assert binds_of(stranded_gang().decide()) == {"gang-1": "b"}


DEFAULT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang%s}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}]
"""


@pytest.mark.parametrize(
    ("arguments", "placed"),
    [("", {"fresh-0": "b"}), (", arguments: {belowMinimumFirst: true}", {"gang-1": "b"})],
)
def test_a_gang_below_its_minimum_goes_before_fresh_work_where_that_is_configured(
    arguments: str, placed: dict[str, str]
):
    """Reported as volcano#5805: drf prefers the job that has nothing yet."""
    world = Cluster(DEFAULT % arguments).queue("default")
    for name in ("a", "b"):
        world.node(name, nvidia_com__gpu="1")
    world.group("gang", min_member=2, phase="Running")
    world.pod("gang-0", "gang", requests=ONE_GPU, node="a").pod("gang-1", "gang", requests=ONE_GPU)
    world.group("fresh", created="2026-01-02T00:00:00Z").pod("fresh-0", "fresh", requests=ONE_GPU)
    assert binds_of(world.decide()) == placed


def test_a_gang_that_runs_below_its_minimum_says_so():
    world = stranded_gang()
    world.pod("filler-1", "filler", requests=ONE_GPU, node="b")
    plan = world.decide()
    assert phase_in(plan, "gang") == "Unknown"
    (gang,) = (group for group in plan.podgroups if group.key == "ns/gang")
    below = [c.message for c in gang.conditions or () if c.type == "Unschedulable"]
    assert below, gang
    assert "1 pod runs below the minimum of 2" in below[0], below


def ray_cluster(gpus: int) -> Cluster:
    """A head, a pair of GPU workers that start together, and CPU workers beyond the minimum."""
    world = Cluster().queue("default").node("n1", cpu="16", nvidia_com__gpu=str(gpus))
    head = {
        "name": "head", "subGroupSize": 1, "minSubGroups": 1,
        "labelSelector": {"matchLabels": {"ray.io/group": "head"}},
        "matchLabelKeys": ["ray.io/group"],
    }  # fmt: skip
    pair = {
        "name": "gpu", "subGroupSize": 2, "minSubGroups": 1,
        "labelSelector": {"matchLabels": {"ray.io/group": "gpu"}},
        "matchLabelKeys": ["ray.io/replica"],
    }  # fmt: skip
    world.group("ray", min_member=3, subGroupPolicy=[head, pair])
    world.pod("head", "ray", cpu="1", metadata={"labels": {"ray.io/group": "head"}})
    for number in range(4):
        labels = {"ray.io/group": "cpu"}
        world.pod(f"cpu-{number}", "ray", cpu="1", metadata={"labels": labels})
    for number in range(2):
        labels = {"ray.io/group": "gpu", "ray.io/replica": "r0"}
        world.pod(f"gpu-{number}", "ray", requests=ONE_GPU, metadata={"labels": labels})
    return world


@pytest.mark.parametrize("gpus", [0, 1])
def test_surplus_workers_do_not_start_a_gang_whose_subgroup_does_not_fit(gpus: int):
    """Reported as kuberay#5249: CPU workers met the minimum, the GPU pair never started."""
    plan = ray_cluster(gpus).decide()
    assert binds_of(plan) == {}
    (why,) = plan.explanations
    assert "subgroup gpu" in why.message, why
    (group,) = plan.podgroups
    (condition,) = group.conditions or ()
    assert condition.message.startswith(f"{2 - gpus}/7 tasks in gang"), condition


def test_a_gang_starts_whole_when_each_subgroup_fits():
    assert len(binds_of(ray_cluster(2).decide())) == 7


@pytest.mark.parametrize("noise", range(4))
def test_pods_that_must_not_be_together_are_never_on_one_node(noise: int):
    """Reported as volcano#3138: after a while, two replicas were on one node."""
    term = {
        "labelSelector": {"matchLabels": {"app": "apart"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"labels": {"app": "apart"}}
    world = Cluster().queue("default")
    world.node("n1", cpu="8", labels={"kubernetes.io/hostname": "n1"})
    world.group("apart", min_member=1)
    for number in range(2):
        world.pod(f"apart-{number}", "apart", cpu="1", metadata=labels, affinity=rule)
    bound = binds_of(world.step())
    assert len(bound) == 1
    for number in range(noise):
        world.gang(f"noise-{number}", tasks=2, cpu="1")
        world.step()
        world.delete(kinds.POD, f"ns/noise-{number}-0")
        plan = world.step()
        assert not {"apart-0", "apart-1"} & binds_of(plan).keys()
        assert evictions_of(plan) == {}


def test_a_gang_whose_owner_makes_pods_one_by_one_says_how_it_makes_all():
    """Reported as volcano#4739: the new ReplicaSet of an update has one pod, and needs two."""
    world = Cluster().queue("default").node("n1", cpu="8")
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "serve-5d8f",
        "uid": "r",
        "controller": True,
    }
    meta = {"name": "podgroup-r", "namespace": "ns", "uid": "g", "ownerReferences": [owner]}
    spec = {"minMember": 2, "queue": "default"}
    world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Inqueue"}})
    world.pod("serve-5d8f-x", "podgroup-r", cpu="1")
    plan = world.decide()
    (group,) = plan.podgroups
    (condition,) = group.conditions or ()
    assert "1 of 2 pods of ReplicaSet serve-5d8f are there" in condition.message
    assert "maxSurge 100%" in condition.message


def test_of_partitions_as_many_whole_ones_start_as_the_queue_has_room_for():
    """Reported as volcano#4867: room for 10 pods of 12 is room for three partitions of 3."""
    world = Cluster().node("n1", cpu="64").queue("ten", capability={"cpu": "20"})
    whole = {
        "name": "worker",
        "subGroupSize": 3,
        "minSubGroups": 2,
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
    }
    minimum = {"minTaskMember": {"worker": 6}, "minResources": {"cpu": "12"}}
    world.group("job", queue="ten", min_member=6, subGroupPolicy=[whole], **minimum)
    for number in range(12):
        labels = {"volcano.sh/task-spec": "worker", "volcano.sh/partition-id": str(number // 3)}
        world.pod(f"p-{number:02}", "job", cpu="2", role="worker", metadata={"labels": labels})
    assert list(binds_of(world.decide())) == [f"p-{number:02}" for number in range(9)]
