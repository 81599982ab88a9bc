"""Room at the moment of binding (CA05): a node holds what is bound and what still terminates."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.engine.plan import Plan
from shared.api import kinds

CONF = """
actions: "{actions}"
volcanoEvictions: true
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
"""


def world(actions: str = "enqueue, allocate, reclaim, backfill") -> Cluster:
    found = Cluster(CONF.format(actions=actions), queue=False)
    return found.queue("rich", weight=1).queue("poor", weight=1)


def reclaiming() -> Cluster:
    """One place, held by a pod of one queue, and a pod of another queue that may take it."""
    found = world().node("n1", cpu="4", pods="1")
    found.group("r", queue="rich", min_member=0, phase="Running").pod("r-0", "r", node="n1")
    return found.group("p", queue="poor").pod("p-0", "p")


def over_its_memory() -> Cluster:
    """A node whose pods ask for more memory than it has, and a pod that asks for nothing."""
    found = world().node("n1", memory="1Gi").pod("big", memory="2Gi", node="n1", scheduler="other")
    return found.group("p", queue="poor").pod("p-0", "p")


def test_a_pod_that_asks_for_nothing_is_not_bound_while_its_victim_holds_the_nodes_last_place():
    cluster = reclaiming()
    plan = cluster.step()
    assert evictions_of(plan) == {"r-0": "p-0"}
    assert binds_of(plan) == {}
    cluster.pod("r-0", "r", node="n1", deleting=True)
    assert binds_of(cluster.step()) == {}
    cluster.delete(kinds.POD, "ns/r-0")
    assert binds_of(cluster.step()) == {"p-0": "n1"}


def test_a_pod_that_asks_for_nothing_is_not_bound_to_a_node_that_is_over_its_memory():
    cluster = over_its_memory()
    assert binds_of(cluster.step()) == {}
    cluster.delete(kinds.POD, "ns/big")
    assert binds_of(cluster.step()) == {"p-0": "n1"}


def test_a_resource_that_a_pod_does_not_ask_for_may_be_short_where_it_is_bound():
    cluster = world().node("n1").pod("big", node="n1", requests={"nvidia.com/gpu": "2"})
    cluster.group("p", queue="poor").pod("p-0", "p")
    assert binds_of(cluster.step()) == {"p-0": "n1"}


def test_a_pod_of_a_gang_that_is_not_whole_holds_no_place_that_another_is_bound_to_ss11():
    cluster = world("allocate, preempt, backfill").node("n1", cpu="4", pods="5")
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    cluster.pod("s-0", node="n1", scheduler="other")
    cluster.gang("r", tasks=2, min_member=0, cpu="2", queue="poor", node="n1", phase="Running")
    cluster.group("c", queue="poor", priorityClassName="high").pod("c-0", "c", cpu="4")
    cluster.group("a", queue="poor", min_member=3).pod("a-0", "a").pod("a-1", "a")
    cluster.pod("a-2", "a", cpu="100")
    cluster.group("b", queue="poor").pod("b-0", "b")
    plan = cluster.step()
    assert evictions_of(plan).keys() == {"r-0", "r-1"}
    assert binds_of(plan) == {"b-0": "n1"}


def test_a_pod_is_not_bound_to_the_port_of_a_victim_before_that_one_is_gone():
    port = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    cluster = world("allocate, preempt, backfill").node("n1", cpu="4")
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    cluster.group("r", queue="poor", min_member=0, phase="Running")
    cluster.pod("r-0", "r", cpu="4", node="n1", ports=port)
    cluster.group("c", queue="poor", priorityClassName="high").pod("c-0", "c", cpu="4")
    cluster.group("p", queue="poor").pod("p-0", "p", ports=port)
    plan = cluster.step()
    assert evictions_of(plan) == {"r-0": "c-0"}
    assert binds_of(plan) == {}
    assert said(plan)[0] == ["pod ns/r-0 terminates and still has a host port of p-0 on n1"]
    cluster.delete(kinds.POD, "ns/r-0")
    assert binds_of(cluster.step()) == {"c-0": "n1", "p-0": "n1"}


def said(plan: Plan) -> tuple[list[str], list[str]]:
    pods = [c.condition.message for c in plan.pods if c.key == "ns/p-0"]
    return pods, [f"{why.gate}: {why.message}" for why in plan.explanations]


@pytest.mark.parametrize(("build", "short"), [(reclaiming, "pods"), (over_its_memory, "memory")])
def test_a_pod_that_waits_for_room_says_so(build, short):
    message = f"node n1 has too little {short} left for p-0, pods that terminate included"
    pods, gates = said(build().step())
    assert pods == [message]
    assert gates == [f"predicate: {message}"]
