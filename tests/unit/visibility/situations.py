"""Situations in which `ns/job` waits, to ask about and to act on."""

from typing import Any

from tests.support.world import Json
from tests.unit.visibility.mirrors import World, running

GPU = "nvidia.com/gpu"


def pod_asking(world: World, name: str, part: str = "", **asked: str) -> World:
    """Add a pending pod of `job` that asks for several resources."""
    containers = [{"name": "main", "resources": {"requests": asked}}]
    meta = {"labels": {"part": part}} if part else {}
    return world.pod(name, "job", cpu="", metadata=meta, containers=containers)


def one_node(cpu: str = "4", **more: str) -> World:
    return World().queue("default").node("n1", cpu=cpu, **more)


def with_node(
    world: World, name: str, *, labels: dict[str, str] | None = None, **spec: Any
) -> World:
    def change(node: Json) -> None:
        node["metadata"]["labels"] |= labels or {}
        node["spec"] = spec

    return world.edit("nodes", name, change)


# --- situations in which ns/job waits -----------------------------------------------------------


def gang_too_wide() -> World:
    return one_node("8").node("n2", cpu="8").gang("job", pods=3, cpu="8")


def gang_beside_another() -> World:
    return running(gang_too_wide(), "other", cpu="8", node="n1")


def pod_larger_than_a_node() -> World:
    return one_node().node("n2", cpu="4").gang("job", pods=1, cpu="6")


def not_admitted_and_too_large() -> World:
    return one_node().node("n2", cpu="4").waiting("job", pods=1, cpu="6")


def not_admitted_on_a_full_cluster() -> World:
    return running(one_node(), "other", cpu="4", node="n1").waiting("job", pods=1, cpu="4")


def not_admitted_gang() -> World:
    return running(one_node(), "other", cpu="3", node="n1").waiting("job", pods=4, cpu="4")


def full_queue() -> World:
    world = World().queue("default", capability={"cpu": "4"}).node("n1", cpu="16")
    return running(world, "three", cpu="3", node="n1").gang("job", pods=2, cpu="1")


def full_queue_and_full_nodes() -> World:
    world = World().queue("default", capability={"cpu": "4"}).node("n1", cpu="4")
    return running(world, "all", cpu="4", node="n1").gang("job", pods=1, cpu="2")


def full_parent() -> World:
    world = World().queue("root").queue("eng", parent="root", capability={"cpu": "3"})
    world.queue("a", parent="eng").queue("b", parent="eng").node("n1", cpu="16")
    running(world, "near", cpu="2", node="n1", queue="b")
    return world.gang("job", pods=1, cpu="2", queue="a")


def closed_queue() -> World:
    world = one_node().waiting("job", pods=1, cpu="1")
    return world.edit("queues", "default", lambda queue: queue["status"].update(state="Closed"))


def no_such_queue() -> World:
    return one_node().gang("job", pods=1, cpu="1", queue="reserach")


def selector_typo() -> World:
    world = with_node(one_node(), "n1", labels={"disk": "ssd"}).node("n2", cpu="8")
    world.group("job", phase="Inqueue", minMember=1)
    return world.pod("job-0", "job", cpu="2", nodeSelector={"disk": "sdd"})


def selected_node_is_full() -> World:
    world = with_node(one_node(), "n1", labels={"disk": "ssd"}).node("n2", cpu="16")
    running(world, "other", cpu="3", node="n1").group("job", phase="Inqueue", minMember=1)
    return world.pod("job-0", "job", cpu="2", nodeSelector={"disk": "ssd"})


def cordoned() -> World:
    world = one_node().node("n2", cpu="8")
    return with_node(world.gang("job", pods=2, cpu="4"), "n2", unschedulable=True)


def all_cordoned() -> World:
    world = one_node().node("n2", cpu="4").gang("job", pods=2, cpu="3")
    for name in ("n1", "n2"):
        with_node(world, name, unschedulable=True)
    return world


def tainted() -> World:
    taints = [{"key": "gpu-only", "effect": "NoSchedule"}]
    return with_node(one_node().gang("job", pods=1, cpu="1"), "n1", taints=taints)


def no_gpu_anywhere() -> World:
    world = one_node().group("job", phase="Inqueue", minMember=1)
    return pod_asking(world, "job-0", cpu="1", **{GPU: "1"})


def two_gpus_on_nodes_of_one() -> World:
    world = one_node(**{GPU: "1"}).node("n2", cpu="4", **{GPU: "1"})
    return pod_asking(
        world.group("job", phase="Inqueue", minMember=1), "job-0", cpu="1", **{GPU: "2"}
    )


def pair_for_gpus_in_a_gang() -> World:
    policies = [
        {
            "name": name,
            "subGroupSize": size,
            "minSubGroups": 1,
            "labelSelector": {"matchLabels": {"part": name}},
            "matchLabelKeys": ["part"],
        }
        for name, size in (("head", 1), ("gpu", 2))
    ]
    world = one_node("16")
    world.group("job", phase="Inqueue", minMember=3, subGroupPolicy=policies)
    for name in ("head-0", "cpu-0", "cpu-1"):
        pod_asking(world, f"job-{name}", name.partition("-")[0], cpu="1")
    for name in ("gpu-0", "gpu-1"):
        pod_asking(world, f"job-{name}", "gpu", cpu="1", **{GPU: "1"})
    return world


def launcher_and_workers() -> World:
    world = one_node("8").group("job", phase="Inqueue", minMember=3)
    pod_asking(world, "job-launcher", cpu="1")
    for number in range(2):
        pod_asking(world, f"job-worker-{number}", cpu="6")
    return world


def too_few_pods() -> World:
    world = one_node().group("job", phase="Inqueue", minMember=3)
    return world.pod("job-0", "job", cpu="1")


def too_few_pods_and_no_room() -> World:
    world = one_node("1").group("job", phase="Inqueue", minMember=3)
    return world.pod("job-0", "job", cpu="1")


def gated_pods() -> World:
    world = one_node().group("job", phase="Inqueue", minMember=2)
    for number in range(2):
        world.pod(f"job-{number}", "job", cpu="1", schedulingGates=[{"name": "quota"}])
    return world


def terminating_pod() -> World:
    world = running(one_node(), "leaving", cpu="4", node="n1").gang("job", pods=1, cpu="4")
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    return world.edit("pods", "ns/leaving-0", lambda pod: pod["metadata"].update(gone))


def elastic_beyond_its_minimum() -> World:
    world = one_node("2").group("job", phase="Running", minMember=1)
    for number in range(2):
        world.pod(f"job-{number}", "job", cpu="1", node="n1")
    return world.pod("job-2", "job", cpu="1")


def low(world: World) -> World:
    """Add a job of two pods that fills the node and may lose one."""
    running(world, "low", cpu="2", node="n1", priority="low", preemptable=True)
    return world.pod("low-1", "low", cpu="2", node="n1")


def polite_beside_a_low_one() -> World:
    world = one_node().priority("high", 1000).priority("low", 1)
    low(world).group("job", phase="Inqueue", minMember=1, priorityClassName="high")
    return world.pod("job-0", "job", cpu="2", priority=1000, preemptionPolicy="Never")


def preempting() -> World:
    world = one_node().priority("high", 1000).priority("low", 1)
    low(world).group("job", phase="Inqueue", minMember=1, priorityClassName="high")
    return world.pod("job-0", "job", cpu="2", priority=1000)


def behind_a_gang() -> World:
    """A gang ahead takes what would become free."""
    world = running(one_node(), "other", cpu="4", node="n1")
    world.gang("ahead", pods=1, cpu="4")
    earlier = {"creationTimestamp": "2025-12-31T00:00:00Z"}
    world.edit("podgroups", "ns/ahead", lambda group: group["metadata"].update(earlier))
    return world.gang("job", pods=1, cpu="4")


def held_by_three() -> World:
    world = one_node("6")
    for number in range(3):
        running(world, f"r{number}", cpu="2", node="n1")
    return world.gang("job", pods=1, cpu="5")


def anti_affinity() -> World:
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world = one_node("8").group("other", phase="Running")
    world.pod("other-0", "other", cpu="1", node="n1", metadata={"labels": {"app": "db"}})
    return world.group("job", phase="Inqueue").pod("job-0", "job", cpu="1", affinity=affinity)
