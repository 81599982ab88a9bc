"""Costs of evictions: of victims that the order leaves equal, the cheapest go first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, evictions_of
from services.scheduler.engine.tasks.from_pod import stated_cost
from shared.api import kinds

COST = "pumice.dev/eviction-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CONF = """
actions: "enqueue, allocate, {action}, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang, enablePreemptable: false}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
"""
ACTIONS = ["preempt", "reclaim", "gangpreempt", "gangreclaim"]


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        ({}, None),
        ({COST: "7"}, 7),
        ({COST: "-7"}, -7),
        ({DELETION_COST: "5"}, 5),
        ({COST: "1", DELETION_COST: "5"}, 1),
        ({COST: "much", DELETION_COST: "5"}, 5),
        ({COST: "--1"}, None),
        ({COST: "1.5"}, None),
        ({COST: "123456789012"}, None),
    ],
)
def test_a_cost_is_a_whole_number_and_pumices_annotation_comes_first(
    annotations: dict[str, str], cost: int | None
):
    assert stated_cost(annotations) == cost


def crowd(action: str, costs: list[int | None], *, wanted: int, of_group: str = "") -> Cluster:
    """Make a full node of pods with these costs, and a gang that may evict `wanted` of them."""
    cluster = Cluster(CONF.format(action=action), queue=False).node("n1", cpu=str(len(costs)))
    theirs = "rich" if "reclaim" in action else "default"
    for name in dict.fromkeys(("default", theirs)):
        cluster.queue(name, weight=1)
    for name, value in (("high", 1000), ("low", 10)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    meta = {"name": "low", "namespace": "ns", "uid": "uid-ns/low", "annotations": {COST: of_group}}
    spec = {"minMember": 1, "queue": theirs, "priorityClassName": "low"}
    cluster.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    for number, cost in enumerate(costs):
        said = {} if cost is None else {"annotations": {COST: str(cost)}}
        cluster.pod(f"low-{number}", "low", cpu="1", node="n1", priority=10, metadata=said)
    cluster.group("high", min_member=wanted, priorityClassName="high")
    for number in range(wanted):
        cluster.pod(f"high-{number}", "high", cpu="1", priority=1000)
    return cluster


@pytest.mark.parametrize("action", ACTIONS)
def test_the_cheapest_pods_of_a_job_go_first(action: str):
    evicted = evictions_of(crowd(action, [3, 1, 2, 4], wanted=2).decide())
    assert sorted(evicted) == ["low-1", "low-2"]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_pod_without_a_cost_has_that_of_its_group(action: str):
    evicted = evictions_of(crowd(action, [3, None, 2, 4], wanted=1, of_group="5").decide())
    assert sorted(evicted) == ["low-2"]


def test_a_more_important_pod_stays_whatever_the_others_cost():
    cluster = crowd("preempt", [9, 9], wanted=1)
    cluster.pod("low-0", "low", cpu="1", node="n1", priority=20)
    assert sorted(evictions_of(cluster.decide())) == ["low-1"]


@settings(max_examples=60)
@given(
    st.sampled_from(ACTIONS),
    st.lists(st.integers(-5, 5), min_size=2, max_size=6),
    st.integers(1, 3),
)
def test_no_pod_that_stays_is_cheaper_than_one_that_goes(
    action: str, costs: list[int], wanted: int
):
    cluster = crowd(action, costs, wanted=min(wanted, len(costs) // 2))
    gone = {int(name.rpartition("-")[2]) for name in evictions_of(cluster.decide())}
    assert gone
    stay = [cost for number, cost in enumerate(costs) if number not in gone]
    assert max(costs[number] for number in gone) <= min(stay)
