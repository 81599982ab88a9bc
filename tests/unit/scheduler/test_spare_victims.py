"""Nobody goes in vain, gangs get all or nothing (A05, A07, A08).

Beside it what goes in vain with `volcanoEvictions`.
"""

import pytest

from pumice.testing import Cluster, evictions_of
from shared.api import kinds

ACTIONS = ["preempt", "reclaim", "gangpreempt", "gangreclaim"]


def world(action: str, *, spare: bool) -> Cluster:
    """One node of 4 CPUs that a job of another queue or of less importance has filled."""
    conf = f"""
actions: "allocate, {action}"
tiers:
- plugins: [{{name: priority}}]
- plugins: [{{name: predicates}}, {{name: proportion, enabledAllocatable: false}}]
volcanoEvictions: {str(not spare).lower()}
"""
    cluster = Cluster(conf, queue=False).node("n1", cpu="4").queue("a").queue("b", weight=9)
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "p", "uid": "p"}, "value": 7})
    cluster.group("j", queue="b" if "preempt" in action else "a", min_member=0, phase="Running")
    for number in range(4):
        cluster.pod(f"j-{number}", "j", cpu="1", node="n1")
    return cluster


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
@pytest.mark.parametrize("spare", [False, True], ids=["Volcano", "spare"])
def test_part_of_a_gang_is_cleared_for_only_where_nobody_asks_for_the_whole(action, spare):
    """Five are needed and four fit at most: without the plugin gang Volcano evicts all the same."""
    cluster = world(action, spare=spare)
    cluster.group("preemptor", queue="b", min_member=5, priorityClassName="p")
    for number in range(5):
        cluster.pod(f"preemptor-{number}", "preemptor", cpu="1")
    assert bool(cluster.decide().evictions) is not spare


@pytest.mark.parametrize("action", ["reclaim", "gangpreempt"])
@pytest.mark.parametrize("spare", [False, True], ids=["Volcano", "spare"])
def test_a_place_that_predicates_refuse_is_cleared_only_in_volcanos_way(action, spare):
    """The port stays taken by one who does not go."""
    cluster = world(action, spare=spare).node("n1", cpu="5")
    port = [{"containerPort": 80, "hostPort": 80}]
    cluster.group("top", queue="b", min_member=1, phase="Running", priorityClassName="p")
    cluster.pod("top-0", "top", cpu="1", node="n1", ports=port)
    cluster.group("preemptor", queue="b", priorityClassName="p")
    cluster.pod("preemptor-0", "preemptor", cpu="1", ports=port)
    assert bool(cluster.decide().evictions) is not spare


@pytest.mark.parametrize("action", ACTIONS)
def test_who_is_needed_goes_with_it_as_without(action):
    cluster = world(action, spare=True)
    cluster.group("preemptor", queue="b", min_member=2, priorityClassName="p")
    cluster.pod("preemptor-0", "preemptor", cpu="1").pod("preemptor-1", "preemptor", cpu="1")
    plan = cluster.decide()
    assert len(evictions_of(plan)) == 2
    assert sorted(n.pod for n in plan.nominations) == ["ns/preemptor-0", "ns/preemptor-1"]
