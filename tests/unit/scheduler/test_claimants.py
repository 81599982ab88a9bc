"""Room that victims leave belongs to the pods for which they went (A02, A05, A07, SS11)."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from shared.api import kinds
from tests.property.eviction_histories import JOB, Group, History

RECLAIMING = """
actions: "enqueue, allocate, reclaim, backfill"
volcanoEvictions: %s
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: capacity}
  - {name: nodeorder}
"""
PREEMPTING = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf, enablePreemptable: false}, {name: predicates}, {name: nodeorder}]
"""


def three_and_five(*, volcano: str = "false") -> History:
    """A queue runs 4 CPUs and deserves 3; another deserves 5, runs 1 and wants 4 more."""
    queues = {"three": {"deserved": {"cpu": "3"}}, "five": {"deserved": {"cpu": "5"}}}
    history = History(RECLAIMING % volcano, {"n1": 8}, queues)
    history.arrive(Group("borrower", JOB, "three", "low", 1, (4,), 1))
    history.arrive(Group("small", JOB, "five", "low", 1, (1,), 1))
    history.step()
    history.arrive(Group("owner", JOB, "five", "low", 1, (4,), 1))
    return history


def test_a_victim_that_comes_back_finds_its_room_taken_by_the_one_it_went_for():
    """volcano#4947: the queue of the victim comes first then, since it has nothing."""
    history = three_and_five()
    assert history.rest(20) >= 17
    assert [(e.pod, e.preemptor) for e in history.evictions] == [("ns/borrower-0", "ns/owner-0")]
    assert {pod.group.name for pod in history.pods.values() if pod.node} == {"small", "owner"}


def test_with_volcanos_evictions_it_goes_again_and_again():
    history = three_and_five(volcano="true")
    history.rest(20)
    assert len(history.evictions) > 5


def test_queues_that_deserve_as_much_come_to_rest_where_their_pods_do_not_divide_it():
    """volcano#3729: five are deserved and pods ask for two."""
    queues = {n: {"deserved": {"cpu": "5"}, "capability": {"cpu": "10"}} for n in ("left", "right")}
    history = History(RECLAIMING % "false", {"n1": 11}, queues)
    history.arrive(Group("left", JOB, "left", "low", 2, (2,) * 5, 1))
    history.step()
    history.arrive(Group("right", JOB, "right", "low", 2, (2,) * 5, 1))
    assert history.rest(20) >= 15
    placed = [pod.group.name for pod in history.pods.values() if pod.node]
    assert (placed.count("left"), placed.count("right")) == (3, 2)
    assert len(history.evictions) == 2


@pytest.mark.parametrize("grace", [1, 4])
def test_a_gang_starts_whole_with_what_its_victims_leave_and_what_was_idle(grace):
    queues = {"a": {"deserved": {"cpu": "4"}}, "b": {"deserved": {"cpu": "4"}}}
    history = History(RECLAIMING % "false", {"n1": 4, "n2": 4}, queues)
    history.arrive(Group("all", JOB, "a", "low", 0, (2, 2, 2), grace))
    history.step()
    history.arrive(Group("gang", JOB, "b", "low", 2, (2, 2), grace))
    history.step()
    history.restart()  # a new leader reads nominations from the statuses of pods
    history.rest(8)
    assert len(history.evictions) == 1
    assert sum(pod.group.name == "gang" and bool(pod.node) for pod in history.pods.values()) == 2
    assert history.broken == []


def test_a_gang_starts_with_the_pods_that_fit_where_the_first_ones_do_not():
    """It had others evicted for these; the large one would leave too little for the rest."""
    cluster = Cluster(PREEMPTING).node("n1", cpu="3").group("gang", min_member=3)
    for name, cpu in (("gang-0", "2"), ("gang-1", "1"), ("gang-2", "1"), ("gang-3", "1")):
        status = {"nominatedNodeName": "n1"} if name == "gang-1" else {}
        cluster.pod(name, "gang", cpu=cpu, status=status)
    assert sorted(binds_of(cluster.decide())) == ["gang-1", "gang-2", "gang-3"]


def test_a_queue_gets_nothing_that_the_queue_it_takes_from_could_take_back():
    """Each has more than it deserves of one resource and less of the other."""
    deserved = {"cpu": "4", "memory": "4Gi"}
    cluster = Cluster(RECLAIMING % "false", queue=False).node("n1", cpu="8", memory="8Gi")
    for name in ("a", "b"):
        cluster.queue(name, deserved=deserved)
        cluster.group(name, queue=name, min_member=0, phase="Running")
    cluster.pod("a-0", "a", cpu="5", memory="1Gi", node="n1")
    cluster.pod("a-1", "a", cpu="1", memory="1Gi", node="n1")
    cluster.pod("b-0", "b", cpu="1", memory="5Gi", node="n1")
    cluster.group("more", queue="b", min_member=1)
    cluster.pod("more-0", "more", cpu="2", memory="1Gi")
    assert evictions_of(cluster.decide()) == {}


def stale() -> Cluster:
    """A pod is nominated to a node that a pod of higher priority has filled meanwhile."""
    cluster = Cluster(PREEMPTING).node("n1", cpu="4").node("n2", cpu="4")
    for name, value in (("low", 1), ("mid", 10), ("top", 100)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    cluster.group("top", min_member=1, phase="Running", priorityClassName="top")
    cluster.pod("top-0", "top", cpu="4", node="n1", priority=100)
    cluster.group("low", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="4", node="n2", priority=1)
    cluster.group("mid", min_member=1, priorityClassName="mid")
    nominated = {"nominatedNodeName": "n1"}
    return cluster.pod("mid-0", "mid", cpu="4", priority=10, status=nominated)


def test_a_pod_whose_nominated_node_went_to_another_preempts_again():
    """volcano#5131."""
    cluster = stale()
    plan = cluster.step()
    assert evictions_of(plan) == {"low-0": "mid-0"}
    assert [(n.pod, n.node) for n in plan.nominations] == [("ns/mid-0", "n2")]


def test_a_pod_whose_nominated_node_is_gone_preempts_again():
    cluster = stale()
    cluster.delete(kinds.NODE, "n1", "uid-n1")
    assert evictions_of(cluster.step()) == {"low-0": "mid-0"}


def test_a_claimant_takes_idle_room_when_its_node_is_lost_before_others_do():
    cluster = stale().node("n3", cpu="4")
    cluster.group("mate", min_member=1, priorityClassName="top", created="2025-01-01T00:00:00Z")
    cluster.pod("mate-0", "mate", cpu="4", priority=100)
    plan = cluster.step()
    assert binds_of(plan) == {"mid-0": "n3"}


def test_a_nominated_pod_of_a_gang_that_cannot_be_whole_holds_nothing():
    cluster = Cluster(PREEMPTING).node("n1", cpu="2")
    cluster.group("gang", min_member=2)
    cluster.pod("gang-0", "gang", cpu="2", status={"nominatedNodeName": "n1"})
    cluster.pod("gang-1", "gang", cpu="2")
    cluster.group("one", min_member=1).pod("one-0", "one", cpu="2")
    assert binds_of(cluster.step()) == {"one-0": "n1"}
