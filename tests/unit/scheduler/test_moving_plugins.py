"""What task-topology and rescheduling decide (PL20, PL22)."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.policy.states.usage import NodeUsage, UsageTable
from services.scheduler.policy.task_buckets import rules_of
from shared.api import kinds

BUCKETS = (
    'actions: "allocate"\ntiers:\n'
    "- plugins: [{name: gang}, {name: predicates}, {name: task-topology}]\n"
)
MOVE = 'actions: "shuffle"\ntiers:\n- plugins:\n  - name: rescheduling\n    arguments:'
THRESHOLDS = "{thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}"


def topology(roles, **annotations):
    """A job with a task per role, told by annotations how its roles belong together."""
    world = Cluster(BUCKETS)
    stated = {
        f"volcano.sh/task-topology-{key.replace('_', '-')}": v for key, v in annotations.items()
    }
    meta = {"name": "g", "namespace": "ns", "uid": "g", "annotations": stated}
    spec = {"minMember": len(roles), "queue": "default"}
    world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Inqueue"}})
    for number, role in enumerate(roles):
        world.pod(f"{role}-{number}", "g", cpu="1", role=role)
    return world


def nodes_of(world):
    return {pod.partition("-")[0]: node for pod, node in binds_of(world.decide()).items()}


def test_roles_that_belong_together_share_a_node_pl20():
    world = topology(["ps", "worker", "ps", "worker"], affinity="ps,worker", anti_affinity="ps")
    for name in ("a", "b"):
        world.node(name, cpu="2")
    placed = binds_of(world.decide())
    assert placed["ps-0"] != placed["ps-2"]
    assert sorted([placed["worker-1"], placed["worker-3"]]) == ["a", "b"]


def test_a_role_that_keeps_apart_is_spread_pl20():
    world = topology(["w"] * 3, anti_affinity="w")
    for name in ("a", "b", "c"):
        world.node(name)
    assert sorted(binds_of(world.decide()).values()) == ["a", "b", "c"]


def test_a_bucket_goes_where_its_tasks_are_pl20():
    world = topology(["ps", "worker"], affinity="ps,worker").node("a").node("b")
    world.pod("ps-9", "g", cpu="1", role="ps", node="b")
    assert set(nodes_of(world).values()) == {"b"}


def test_the_larger_bucket_is_served_first_pl20():
    world = topology(["a", "b", "b"], anti_affinity="a;a,b", affinity="b").node("n", cpu="9")
    session = world.session()
    tasks = sorted(world.job("g").tasks.values(), key=session.hooks.task_order)
    assert [task.role for task in tasks] == ["b", "b", "a"]
    session.close()


@pytest.mark.parametrize(
    "annotations",
    [{}, {"affinity": "a,nobody"}, {"affinity": "a,a"}, {"task_order": "a,b,c"}],
    ids=["nothing said", "unknown role", "twice", "unknown in order"],
)
def test_what_makes_no_sense_is_left_out_pl20(annotations):
    stated = {f"volcano.sh/task-topology-{k.replace('_', '-')}": v for k, v in annotations.items()}
    assert rules_of(stated, frozenset({"a", "b"})) is None


def hot_and_cold(arguments):
    world = Cluster(f"{MOVE} {arguments}\n").node("hot", cpu="10").node("cold", cpu="10")
    world.gang("g", tasks=5, min_member=1, cpu="2", node="hot")
    world.cluster_state.store(UsageTable).put("hot", NodeUsage(95.0, 10.0, 0.0))
    world.cluster_state.store(UsageTable).put("cold", NodeUsage(5.0, 10.0, 0.0))
    return world


def victims_at(world, now):
    session = world.session(now=now)
    found = [task.name for task in session.hooks.victim_tasks(list(world.job("g").tasks.values()))]
    session.close()
    return found


def test_hot_nodes_lose_pods_until_they_are_below_the_target_pl22():
    strategy = f"{{strategies: [{{name: lowNodeUtilization, params: {THRESHOLDS}}}]}}"
    world = hot_and_cold(strategy)
    assert victims_at(world, 0.0) == []  # the clock starts
    assert victims_at(world, 300.0) == []
    assert victims_at(world, 301.0) == ["g-0", "g-1"]
    assert victims_at(world, 302.0) == []


@pytest.mark.parametrize("arguments", ["{}", "{strategies: [{name: other}]}"])
def test_without_cold_and_hot_nodes_nothing_moves_pl22(arguments):
    world = hot_and_cold(arguments)
    assert victims_at(world, 0.0) + victims_at(world, 1000.0) == []


def test_shuffle_evicts_them_pl22():
    strategy = f"{{interval: 1s, strategies: [{{name: lowNodeUtilization, params: {THRESHOLDS}}}]}}"
    world = hot_and_cold(strategy)
    world.cluster_state.memory["rescheduling"] = -10.0
    assert sorted(evictions_of(world.decide())) == ["g-0", "g-1"]
