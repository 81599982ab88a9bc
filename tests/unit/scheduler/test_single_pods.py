"""Pods without PodGroup and queue, each placed by itself, as agent-scheduler has it (Y01)."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.config import SINGLE_PODS_TEXT
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import Sharding, ShardMode
from services.scheduler.policy.catalog import STATES
from shared.api import kinds

AGENT = "agent-scheduler"


def world(conf: str = SINGLE_PODS_TEXT) -> Cluster:
    found = Cluster(conf, queue=False)
    found.cluster_state = ClusterState((AGENT,), STATES, single_pods=True)
    return found


def agent(cluster: Cluster, name: str, **more) -> Cluster:
    return cluster.pod(name, **{"cpu": "1", "scheduler": AGENT, **more})


def test_a_pod_is_placed_without_group_and_queue_and_nothing_is_written_about_either():
    plan = agent(world().node("n1"), "a").step()
    assert binds_of(plan) == {"a": "n1"}
    assert (plan.podgroups, plan.queues, plan.pods) == ((), (), ())


def test_a_pod_that_asks_for_nothing_is_placed_too():
    assert binds_of(agent(world().node("n1"), "a", cpu="").step()) == {"a": "n1"}


def test_one_that_has_no_room_waits_and_keeps_none_from_its_place():
    cluster = world().node("n1", cpu="2")
    plan = agent(agent(cluster, "large", cpu="3"), "small").step()
    assert binds_of(plan) == {"small": "n1"}
    (condition,) = plan.pods
    assert condition.key == "ns/large"
    assert condition.condition.reason == "Unschedulable"
    assert "Insufficient cpu" in condition.condition.message
    assert binds_of(cluster.node("n2", cpu="4").step()) == {"large": "n2"}


def test_pods_of_a_group_are_placed_one_by_one_whatever_the_group_asks_for():
    cluster = world().node("n1", cpu="1").group("g", min_member=2)
    plan = agent(agent(cluster, "a", group="g"), "b", group="g").step()
    assert binds_of(plan) == {"a": "n1"}
    assert plan.podgroups == ()


def test_pods_of_other_schedulers_are_not_placed_and_hold_room_where_they_run():
    cluster = world().node("n1", cpu="2").node("n2", cpu="2")
    cluster.gang("g", tasks=2)
    cluster.pod("theirs", "g", cpu="2", node="n1")
    assert binds_of(agent(cluster, "a").step()) == {"a": "n2"}


def test_the_more_important_pod_comes_first_then_the_older_one():
    cluster = world().node("n1", cpu="1")
    vip = {"metadata": {"name": "vip", "uid": "uid-vip"}, "value": 9}
    cluster.put(kinds.PRIORITYCLASS, vip)
    older = {"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}}
    agent(agent(agent(cluster, "a"), "b", **older), "c", priorityClassName="vip", priority=9)
    placed = []
    for number in range(3):
        placed += binds_of(cluster.step())
        cluster.node(f"n{number + 2}", cpu="1")
    assert placed == ["c", "b", "a"]


def test_a_pod_that_comes_again_under_its_name_is_another_pod():
    cluster = agent(world().node("n1", cpu="1"), "a")
    assert binds_of(cluster.step()) == {"a": "n1"}
    cluster.delete(kinds.POD, "ns/a")
    assert binds_of(cluster.step()) == {}
    (gang,) = agent(cluster, "a", uid="again").step().binds
    assert (gang.job, gang.job_uid) == ("ns/a", "again")


def test_a_finished_pod_leaves_its_room():
    cluster = agent(world().node("n1", cpu="1"), "a")
    cluster.step()
    agent(cluster, "a", node="n1", phase="Succeeded")
    assert binds_of(agent(cluster, "b").step()) == {"b": "n1"}


@pytest.mark.parametrize(("mode", "second"), [("none", "n1"), ("soft", "n1"), ("hard", "")])
def test_it_keeps_to_its_shard_as_other_schedulers_do_ca12(mode: str, second: str):
    cluster = world().node("n1", cpu="2").node("n2", cpu="1")
    cluster.put(
        kinds.NODESHARD,
        {
            "metadata": {"name": AGENT, "uid": "uid-shard", "resourceVersion": "1"},
            "spec": {"nodesDesired": ["n2"]},
            "status": {"nodesInUse": ["n2"]},
        },
    )
    sharding = Sharding(mode=ShardMode(mode), name=AGENT)
    first = binds_of(agent(cluster, "a").step(sharding=sharding))
    assert first == {"a": "n2"} or mode == "none"
    cluster.pod("theirs", cpu="1", node="n2", scheduler="else")
    assert binds_of(agent(cluster, "b").step(sharding=sharding)).get("b", "") == second


def test_a_configuration_with_evictions_takes_room_from_less_important_pods():
    cluster = world(SINGLE_PODS_TEXT.replace("backfill", "preempt")).node("n1", cpu="1")
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "vip", "uid": "u"}, "value": 9})
    agent(cluster, "low", node="n1")
    agent(cluster, "high", priorityClassName="vip", priority=9)
    assert evictions_of(cluster.step()) == {"low": "high"}
