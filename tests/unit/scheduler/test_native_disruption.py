"""What native PodGroups say of evictions: `disruptionMode`, `priority`, `preemptionPolicy`."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from shared.api import kinds
from tests.unit.scheduler.test_native_groups import gang, member, native

CONF = """
actions: "enqueue, allocate, {}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}]
"""
TOGETHER = {"all": {}}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "low", "uid": "low", "controller": True}


def cluster(actions="gangpreempt", nodes=2):
    world = Cluster(CONF.format(actions))
    for number in range(nodes):
        world.node(f"n{number}", cpu="2")
    return world


def running(world, name, *, pods, cpu="1", min_count=1, nodes=2, **spec):
    native(world, name, min_count=min_count, priority=0, **spec)
    for number in range(pods):
        member(world, f"{name}-{number}", name, cpu=cpu, node=f"n{number % nodes}")
    return world


def important(world, *, pods, **spec):
    return gang(world, "high", pods=pods, priority=10, **spec)


def test_surplus_of_a_group_is_evicted_pod_by_pod_by_default():
    world = running(cluster(), "low", pods=4)
    assert len(evictions_of(important(world, pods=1).decide())) == 1


def test_a_group_that_is_disrupted_together_goes_whole():
    world = running(cluster(), "low", pods=4, disruptionMode=TOGETHER)
    assert len(evictions_of(important(world, pods=1).decide())) == 4


@pytest.mark.parametrize("actions", ["preempt", "reclaim", "preempt, reclaim"])
def test_no_pod_of_such_a_group_is_evicted_alone(actions):
    world = running(cluster(actions), "low", pods=4, disruptionMode=TOGETHER)
    assert evictions_of(important(world, pods=1).decide()) == {}


def test_preempt_passes_such_a_group_and_takes_surplus_of_another_one():
    world = running(cluster("preempt"), "together", pods=2, disruptionMode=TOGETHER)
    running(world, "single", pods=2)
    (victim,) = evictions_of(important(world, pods=1).decide())
    assert victim.startswith("single-")


def test_of_groups_that_are_disrupted_together_no_more_go_than_are_needed():
    world = cluster()
    for name in ("a", "b"):
        running(world, name, pods=2, disruptionMode=TOGETHER)
    victims = evictions_of(important(world, pods=2).decide())
    assert len({victim[0] for victim in victims}) == 1
    assert len(victims) == 2


def test_a_group_with_a_pod_that_may_not_go_stays():
    world = running(cluster(), "low", pods=3, disruptionMode=TOGETHER)
    no = {"annotations": {"volcano.sh/preemptable": "false"}}
    member(world, "low-3", "low", node="n1", metadata=no)
    assert evictions_of(important(world, pods=1).decide()) == {}


def test_the_priority_of_a_group_is_the_one_that_admission_wrote():
    world = native(Cluster(), "g", min_count=1, priorityClassName="high", priority=7)
    meta = {"name": "high", "uid": "c"}
    world.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": 100})
    assert world.job("g").priority == 7


@pytest.mark.parametrize("actions", ["preempt", "gangpreempt"])
@pytest.mark.parametrize(("policy", "victims"), [("Never", 0), ("PreemptLowerPriority", 1)])
def test_a_group_that_does_not_preempt_waits(actions, policy, victims):
    world = running(cluster(actions), "low", pods=4)
    plan = important(world, pods=1, preemptionPolicy=policy).decide()
    assert len(evictions_of(plan)) == victims
    assert binds_of(plan) == {}


@pytest.mark.parametrize(("mode", "moves"), [({"single": {}}, 1), (TOGETHER, 0)])
def test_no_pod_of_such_a_group_moves_for_a_gang(mode, moves):
    arguments = "{schedule: '@every 1m', minRunningTime: 0s}"
    conf = CONF.format("defrag") + f"configurations: [{{name: defrag, arguments: {arguments}}}]\n"
    world = Cluster(conf)
    native(world, "low", min_count=1, priority=0, disruptionMode=mode)
    for number in range(2):
        world.node(f"n{number}", cpu="3")
        metadata = {"ownerReferences": [OWNER]}
        member(world, f"low-{number}", "low", cpu="1", node=f"n{number}", metadata=metadata)
    native(world, "high", min_count=1, priority=10)
    member(world, "high-0", "high", cpu="3")
    world.decide(now=1000.0)
    assert len(evictions_of(world.decide(now=1060.0))) == moves
