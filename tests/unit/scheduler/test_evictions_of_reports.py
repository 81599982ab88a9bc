"""Evictions as users reported them to Volcano, with their right outcome."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from shared.api import kinds

GPU = "nvidia.com/gpu"
PLUGINS = """
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: capacity}
  - {name: nodeorder}
"""


def world(actions: str) -> Cluster:
    cluster = Cluster(f'actions: "{actions}"{PLUGINS}', queue=False)
    for name, value in (("low", 10), ("high", 1000)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    return cluster


def test_a_queue_that_deserves_gpus_alone_takes_them_back_from_pods_that_ask_for_more():
    """volcano#4658, #3990, #4808."""
    cluster = world("enqueue, allocate, reclaim, backfill").node(
        "n1", cpu="32", nvidia_com__gpu="4"
    )
    for name in ("holding", "claiming"):
        cluster.queue(name, deserved={GPU: "2"})
        cluster.group(name, queue=name, min_member=2, phase="Inqueue")
    asked = {"cpu": "2", "memory": "1Gi", "requests": {GPU: "1"}}
    for number in range(4):
        cluster.pod(f"holding-{number}", "holding", node="n1", **asked)
    for number in range(2):
        cluster.pod(f"claiming-{number}", "claiming", **asked)
    plan = cluster.step()
    assert sorted(evictions_of(plan).values()) == ["claiming-0", "claiming-1"]
    for eviction in plan.evictions:
        cluster.delete(kinds.POD, eviction.pod, eviction.uid)
    assert set(binds_of(cluster.step())) == {"claiming-0", "claiming-1"}
    assert cluster.step().evictions == ()


@pytest.mark.parametrize("cpu", ["4", "8"])
def test_one_victim_that_leaves_room_for_a_gang_goes_alone(cpu):
    """volcano#2772, #3291: two pods on its node, or one there and one on the free node."""
    cluster = world("enqueue, allocate, preempt, backfill").queue("default").node("n1", cpu="8")
    if cpu == "8":
        cluster.node("n2", cpu="8")
    cluster.group("low", min_member=1, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="8", node="n1", priority=10)
    cluster.group("high", min_member=2, priorityClassName="high")
    for number in range(2):
        cluster.pod(f"high-{number}", "high", cpu=cpu, priority=1000)
    plan = cluster.step()
    assert [eviction.pod for eviction in plan.evictions] == ["ns/low-0"]
    cluster.delete(kinds.POD, "ns/low-0", "uid-ns/low-0")
    assert set(binds_of(cluster.step())) == {"high-0", "high-1"}


def test_a_polite_pod_evicts_nobody_and_gets_free_room_first():
    """volcano#3642, #3739, #3512."""
    cluster = world("enqueue, allocate, preempt, backfill").queue("default").node("n1", cpu="4")
    cluster.group("low", min_member=1, phase="Running", priorityClassName="low")
    for number in range(2):
        cluster.pod(f"low-{number}", "low", cpu="2", node="n1", priority=10)
    cluster.group("later", min_member=1, priorityClassName="low")
    cluster.pod("later-0", "later", cpu="2", priority=10)
    cluster.group("polite", min_member=1, priorityClassName="high")
    cluster.pod("polite-0", "polite", cpu="2", priority=1000, preemptionPolicy="Never")
    assert cluster.step().evictions == ()
    cluster.delete(kinds.POD, "ns/low-0", "uid-ns/low-0")
    assert set(binds_of(cluster.step())) == {"polite-0"}


def test_an_evicted_pod_is_no_obstacle_to_one_that_must_not_be_beside_it():
    """volcano#3068."""
    cluster = world("enqueue, allocate, preempt, backfill").queue("default").node("n1", cpu="4")
    cluster.group("old", min_member=1, phase="Running", priorityClassName="low")
    labels = {"labels": {"app": "old"}}
    cluster.pod("old-0", "old", cpu="4", node="n1", priority=10, metadata=labels)
    cluster.group("new", min_member=1, priorityClassName="high")
    term = {
        "labelSelector": {"matchLabels": {"app": "old"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.node("n1", cpu="4", labels={"kubernetes.io/hostname": "n1"})
    cluster.pod("new-0", "new", cpu="4", priority=1000, affinity=apart)
    assert evictions_of(cluster.step()) == {"old-0": "new-0"}
    cluster.delete(kinds.POD, "ns/old-0", "uid-ns/old-0")
    assert binds_of(cluster.step()) == {"new-0": "n1"}


def test_a_pod_that_waits_for_one_that_was_deleted_is_not_nominated():
    """volcano#3681: an autoscaler adds no node for a nominated pod."""
    cluster = world("enqueue, allocate, preempt, backfill").queue("default").node("n1", cpu="4")
    cluster.group("leaving", min_member=1, phase="Running")
    cluster.pod("leaving-0", "leaving", cpu="4", node="n1", deleting=True)
    cluster.group("waiting", min_member=1).pod("waiting-0", "waiting", cpu="4")
    plan = cluster.step()
    assert (plan.evictions, plan.nominations, plan.binds) == ((), (), ())
