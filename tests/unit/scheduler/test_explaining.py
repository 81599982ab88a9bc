"""Why a job waits: the first gate that stops it, with reasons, amounts and its place in the order.

One row per gate; what the plan explains is also what the PodGroup's and the pods' conditions say.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.plan import JobExplanation, Plan, Shortage
from shared.api import kinds
from tests.unit.scheduler.devices import device_class, request, spec_of

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [PLUGINS{name: predicates}, {name: nodeorder}]
"""
GI = 1 << 30


def world(*plugins: str, actions: str = "enqueue, allocate, backfill", queue=None) -> Cluster:
    named = "".join(f"{{name: {plugin}}}, " for plugin in plugins)
    found = Cluster(f'actions: "{actions}"' + TIERS.replace("PLUGINS", named), queue=False)
    return found.queue("default", **(queue or {})).node("n1", cpu="4", memory="8Gi")


def kept_out_of_the_cluster() -> Cluster:
    return world("overcommit").group("g", min_member=2, phase="Pending", minResources={"cpu": "6"})


def kept_out_of_the_queue(plugin: str) -> Callable[[], Cluster]:
    def build() -> Cluster:
        limits = {"capability": {"cpu": "3"}, "deserved": {"cpu": "3"}}
        found = world(plugin, queue=limits).gang("first", tasks=1, minResources={"cpu": "1"})
        return found.group("g", min_member=3, phase="Pending", minResources={"cpu": "3"})

    return build


def kept_out_by_quota() -> Cluster:
    found = world("resourcequota")
    status = {"hard": {"memory": "4Gi"}, "used": {"memory": "3Gi"}}
    found.put(
        kinds.RESOURCEQUOTA,
        {"metadata": {"name": "q", "namespace": "ns", "uid": "q"}, "status": status},
    )
    return found.group("g", min_member=1, phase="Pending", minResources={"memory": "2Gi"})


def overused() -> Cluster:
    found = world("proportion").queue("rich").pod("r-0", "r", cpu="2", node="n1")
    found.group("r", queue="rich", phase="Running")
    return (
        found.queue("default", weight=1, capability={"cpu": "1", "pods": "1"})
        .pod("h-0", "h", cpu="1", node="n1")
        .group("h", phase="Running")
        .gang("g", tasks=1)
    )


def beyond_the_queues_share() -> Cluster:
    limits = {"capability": {"cpu": "2"}}
    return world("capacity", queue=limits).gang("g", tasks=1, cpu="3")


def too_few_pods() -> Cluster:
    return world().group("g", min_member=3).pod("g-0", "g", cpu="1")


def too_few_pods_of_a_role() -> Cluster:
    found = world().group("g", min_member=2, minTaskMember={"a": 1, "b": 1})
    return found.pod("g-0", "g", cpu="1", role="a").pod("g-1", "g", cpu="1", role="a")


def no_room() -> Cluster:
    return world().node("n2", cpu="2").gang("g", tasks=1, cpu="5")


def no_node_at_all() -> Cluster:
    return world().delete(kinds.NODE, "n1", "uid-n1").gang("g", tasks=1)


def not_ready() -> Cluster:
    found = world().node("n2")
    found.node("n1", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    return found.node("n2", unschedulable=True).gang("g", tasks=1)


def volume_missing() -> Cluster:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    return world().gang("g", tasks=1, volumes=[claim])


def no_device() -> Cluster:
    found = world().put(kinds.DEVICECLASS, device_class("gpu.example.com"))
    marks = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    meta = {"name": "c", "namespace": "ns", "uid": "c", "annotations": marks}
    spec = spec_of(request(device_class="gpu.example.com"))
    found.put(kinds.RESOURCECLAIM, {"metadata": meta, "spec": spec})
    uses = [{"name": "gpu", "resourceClaimName": "c"}]
    return found.gang("g", tasks=1, resourceClaims=uses)


def gated() -> Cluster:
    return world().gang("g", tasks=1, schedulingGates=[{"name": "wait"}])


def no_hypernode() -> Cluster:
    spec = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    found = world("network-topology-aware").node("n2", cpu="4", memory="8Gi")
    for number in (1, 2):
        member = {"type": "Node", "selector": {"exactMatch": {"name": f"n{number}"}}}
        found.put(
            kinds.HYPERNODE,
            {
                "metadata": {"name": f"r{number}", "uid": f"r{number}"},
                "spec": {"tier": 1, "members": [member]},
            },
        )
    found.group("g", min_member=2, **spec)
    return found.pod("g-0", "g", cpu="3").pod("g-1", "g", cpu="3")


def no_queue() -> Cluster:
    return world().gang("g", tasks=1, queue="elsewhere")


class Row(NamedTuple):
    build: Callable[[], Cluster]
    gate: str
    message: str
    reasons: Mapping[str, int] = MappingProxyType({})
    shortages: tuple[Shortage, ...] = ()
    condition: str = "NotEnoughResources"
    pods: str = "Unschedulable"
    """Reason of the conditions of its pods; empty for a group without pods."""


SHORT = Shortage.of
ROWS = {
    "enqueue, cluster": Row(
        kept_out_of_the_cluster,
        "enqueue",
        "resource in cluster is overused: overused cpu",
        shortages=(SHORT("cpu", 6000, 4800),),
        pods="",
    ),
    "enqueue, proportion": Row(
        kept_out_of_the_queue("proportion"),
        "enqueue",
        "queue resource quota insufficient: insufficient cpu",
        shortages=(SHORT("cpu", 3000, 2000),),
        pods="",
    ),
    "enqueue, capacity": Row(
        kept_out_of_the_queue("capacity"),
        "enqueue",
        "queue resource quota insufficient: insufficient cpu",
        shortages=(SHORT("cpu", 3000, 2000),),
        pods="",
    ),
    "enqueue, quota of the namespace": Row(
        kept_out_by_quota,
        "enqueue",
        "resource quota insufficient: memory",
        shortages=(SHORT("memory", 2 * GI, GI),),
        pods="",
    ),
    "queue overused": Row(overused, "queue", "queue default has used up what it deserves"),
    "queue's share": Row(
        beyond_the_queues_share,
        "quota",
        "queue default has no share left for g-0",
        shortages=(SHORT("cpu", 3000, 2000),),
    ),
    "too few pods": Row(
        too_few_pods, "gang", "Not enough valid tasks for gang-scheduling, valid: 1, min: 3"
    ),
    "too few pods of a role": Row(
        too_few_pods_of_a_role,
        "gang",
        "Not enough valid pods of each task for gang-scheduling",
    ),
    "no room": Row(
        no_room,
        "predicate",
        "0/2 nodes are unavailable: 2 Insufficient cpu.",
        {"Insufficient cpu": 2},
        (SHORT("cpu", 5000, 4000),),
    ),
    "no node": Row(no_node_at_all, "predicate", "0/0 nodes are unavailable"),
    "nodes not ready": Row(
        not_ready,
        "predicate",
        "0/2 nodes are unavailable: ",
        {
            "node(s) had untolerated taint(s)": 1,
            "node(s) were unschedulable": 1,
        },
    ),
    "no volume": Row(
        volume_missing,
        "predicate",
        "0/1 nodes are unavailable: ",
        {'persistentvolumeclaim "data" not found': 1},
    ),
    "no device": Row(
        no_device,
        "predicate",
        "0/1 nodes are unavailable: 1 cannot allocate all claims: gpu (1 gpu.example.com).",
        {"cannot allocate all claims: gpu (1 gpu.example.com)": 1},
    ),
    "gated": Row(gated, "gang", "pod g-0 has scheduling gates", pods=""),
    "no HyperNode": Row(no_hypernode, "topology", "no HyperNode"),
    "no queue": Row(
        no_queue, "queue", "spec.queue: there is no queue 'elsewhere'", condition="QueueNotFound"
    ),
}


def explained(plan: Plan) -> JobExplanation:
    return next(e for e in plan.explanations if e.job == "ns/g")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_first_gate_that_stops_a_job_is_told_everywhere(row: Row):
    plan = row.build().decide()
    why = explained(plan)
    assert (why.gate, why.message[: len(row.message)]) == (row.gate, row.message)
    assert dict(why.reasons) == row.reasons
    assert why.nodes == sum(row.reasons.values())
    assert why.shortages == row.shortages
    group = next(g for g in plan.podgroups if g.key == "ns/g")
    (said,) = (c for c in group.conditions if c.type == "Unschedulable")
    assert (said.status, said.reason) == ("True", row.condition)
    assert why.message in said.message
    assert said.message.endswith(why.details)
    assert why.position == 0 or f"place {why.position} in queue default" in why.details
    pods = [p.condition for p in plan.pods if p.key.startswith("ns/g-")]
    assert {(c.type, c.status, c.reason) for c in pods} == (
        {("PodScheduled", "False", row.pods)} if row.pods else set()
    )


def test_a_job_that_is_placed_in_part_says_what_its_other_tasks_lack():
    plan = world().gang("g", tasks=6, min_member=2, cpu="1").decide()
    assert sum(len(gang.binds) for gang in plan.binds) == 4
    assert explained(plan).gate == "predicate"
    assert {p.condition.reason for p in plan.pods} == {"Unschedulable"}


def test_members_of_a_gang_that_would_fit_say_so_and_the_others_call_for_nodes():
    plan = world().gang("g", tasks=5, cpu="1").decide()
    reasons = [p.condition.reason for p in plan.pods]
    assert sorted(reasons) == ["Schedulable"] * 4 + ["Unschedulable"]  # D02
    assert explained(plan).shortages == (SHORT("cpu", 1000, 0),)


def told_of(plan: Plan, name: str = "g") -> str:
    """Return the message of a group's condition."""
    group = next(g for g in plan.podgroups if g.key == f"ns/{name}")
    return next(c.message for c in group.conditions if c.type == "Unschedulable")


def beyond_the_share_and_any_node(**requests: str) -> Cluster:
    found = world("capacity", queue={"capability": {"cpu": "6"}}).node("n2", cpu="4", memory="8Gi")
    found.group("r", phase="Running").pod("r-0", "r", cpu="3", node="n1")
    found.pod("r-1", "r", cpu="2", node="n2")
    return found.gang("g", tasks=1, requests=requests or {"cpu": "5"})


AMOUNTS = {
    "more than the cluster": (
        lambda: world("overcommit").group(
            "g", min_member=2, phase="Pending", minResources={"cpu": "64"}
        ),
        "(needs 64 cpu, the cluster has 4: it never fits as it is; place 1 in queue default)",
    ),
    "more than queues may admit": (
        lambda: (
            world("overcommit")
            .group("r", phase="Running")
            .pod("r-0", "r", cpu="2500m", node="n1")
            .group("g", min_member=1, phase="Pending", minResources={"cpu": "3500m"})
        ),
        (
            "(needs 3.5 cpu; queues may admit 2.3 more (120 % of the cluster); "
            "place 1 in queue default)"
        ),
    ),
    "more than is free": (
        kept_out_of_the_queue("capacity"),
        "(needs 3 cpu, 2 free; place 1 in queue default)",
    ),
    "more than the queue may have": (
        lambda: world("capacity", queue={"capability": {"cpu": "2"}}).group(
            "g", min_member=1, phase="Pending", minResources={"cpu": "3"}
        ),
        "(needs 3 cpu, queue default has 2: it never fits as it is; place 1 in queue default)",
    ),
    "a namespace's quota": (
        kept_out_by_quota,
        "(needs 2Gi memory, 1Gi free; place 1 in queue default)",
    ),
    "more than any node": (
        no_room,
        (
            "(needs 5 cpu on one node, the largest has 4: it never fits as it is; "
            "place 1 in queue default)"
        ),
    ),
    "more than any node, stopped by a share before": (
        beyond_the_share_and_any_node,
        (
            "(needs 5 cpu, 1 free; needs 5 cpu on one node, the largest has 4: "
            "it never fits as it is; place 1 in queue default)"
        ),
    ),
    "more of another resource than any node": (
        lambda: beyond_the_share_and_any_node(cpu="2", memory="9Gi"),
        (
            "(needs 2 cpu, 1 free; needs 9Gi memory on one node, the largest has 8Gi: "
            "it never fits as it is; place 1 in queue default)"
        ),
    ),
    "as much as a node, stopped by a share": (
        lambda: beyond_the_share_and_any_node(cpu="4", memory="8Gi"),
        "(needs 4 cpu, 1 free; place 1 in queue default)",
    ),
    "what no node has": (
        lambda: world().gang("g", tasks=1, requests={"nvidia.com/gpu": "1"}),
        "(no node has nvidia.com/gpu, it never fits as it is; place 1 in queue default)",
    ),
    "a part of a CPU": (
        lambda: world().pod("other", cpu="2500m", node="n1").gang("g", tasks=1, cpu="3500m"),
        "(needs 3.5 cpu, 1.5 free on one node; place 1 in queue default)",
    ),
    "a node that is taken": (
        lambda: world().pod("other", cpu="2", node="n1").gang("g", tasks=1, cpu="3"),
        "(needs 3 cpu, 2 free on one node; place 1 in queue default)",
    ),
}


@pytest.mark.parametrize(("build", "details"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_a_condition_says_how_much_is_short_and_the_place_in_line(
    build: Callable[[], Cluster], details: str
) -> None:
    plan = build().decide()
    assert explained(plan).details == f" {details}"
    assert told_of(plan).endswith(details)


def test_each_pod_without_a_share_is_told_of_itself() -> None:
    limits = {"capability": {"cpu": "2"}}
    found = world("capacity", queue=limits).gang("g", tasks=4, min_member=1, cpu="1")
    plan = found.decide()
    bound = {bind.pod for gang in plan.binds for bind in gang.binds}
    said = {pod.key: pod.condition.message for pod in plan.pods}
    assert len(said) == 2
    assert not bound & said.keys()
    for key, message in said.items():
        name = key.partition("/")[2]
        assert message.startswith(f"queue default has no share left for {name} (")


def test_a_condition_is_not_said_again_for_figures_that_move_all_the_time() -> None:
    found = world().node("n1", cpu="8").pod("other", cpu="2", node="n1")
    found.gang("g", tasks=1, cpu="7")
    first = found.step()
    assert "6 free on one node" in told_of(first)
    again = found.pod("other", cpu="4", node="n1").step()
    assert not again.podgroups
    assert not again.pods
    # Two places further back is the same step; forty are news.
    for number in range(40):
        found.gang(f"a{number:02}", tasks=1, cpu="7", created="2025-01-01T00:00:00Z")
    assert "place 41 in queue default" in told_of(found.step())
    found.delete(kinds.PODGROUP, "ns/a00", "uid-ns/a00").delete(kinds.POD, "ns/a00-0")
    assert "ns/g" not in {group.key for group in found.step().podgroups}


def test_a_budget_that_moves_does_not_write_the_status_again() -> None:
    found = world("overcommit").group("r", phase="Running").pod("r-0", "r", cpu="3", node="n1")
    found.group("g", min_member=1, phase="Pending", minResources={"cpu": "3500m"})
    assert "queues may admit 1.8 more" in told_of(found.step())

    again = found.pod("r-0", "r", cpu="2500m", node="n1").step()

    assert "ns/g" not in {group.key for group in again.podgroups}


def test_a_queue_shows_how_many_groups_wait_to_enter_it() -> None:
    found = world("overcommit")
    for name in "abc":
        found.group(name, min_member=2, phase="Pending", minResources={"cpu": "6"})
    (queue,) = found.step().queues
    assert (queue.name, queue.pending) == ("default", 3)
    assert not found.step().queues
    found.node("n2", cpu="4").decide()
    (queue,) = found.decide().queues
    assert queue.pending == 2


def test_a_resource_is_short_only_on_nodes_that_nothing_else_forbids():
    """Otherwise a message says that a pod needs 1 CPU, and that a node has 2 free."""
    world = Cluster().node("full", cpu="2", labels={"disk": "ssd"}).node("other", cpu="4")
    world.gang("old", tasks=1, cpu="2", node="full").gang("new", tasks=1, cpu="1")
    world.pod("new-0", "new", cpu="1", nodeSelector={"disk": "ssd"})
    world.gang("lost", tasks=1).pod("lost-0", "lost", cpu="1", nodeSelector={"disk": "sdd"})
    found = {why.job: why.shortages for why in world.decide().explanations}
    assert found["ns/new"] == (SHORT("cpu", 1000, 0),)
    assert found["ns/lost"] == ()
