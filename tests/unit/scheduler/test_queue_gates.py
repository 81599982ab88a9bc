"""Gates of queues (CA14, PL06): lifted when the queue has room, which is reserved from then on."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler import messages
from services.scheduler.desired import is_outstanding
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import states
from shared.api import keys, kinds
from shared.contracts.messages import DesiredUngated

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: SHARING}, {name: nodeorder}]
"""
OURS = {"name": keys.QUEUE_GATE}
FOREIGN = {"name": "example.com/wait"}


def world(*, on: bool = True, sharing: str = "capacity", cpu: str = "3") -> Cluster:
    found = Cluster(CONF.replace("SHARING", sharing), queue=False)
    found.cluster_state = ClusterState(("volcano",), states(queue_gates=on))
    return found.queue("q", capability={"cpu": cpu}).node("n1", cpu="32")


def gang(cluster: Cluster, name: str, tasks: int, *gates: dict[str, str], **more) -> Cluster:
    """Add a gang of pods that ask for the gate and have these."""
    cluster.group(name, queue="q", min_member=more.pop("min_member", 1))
    for number in range(tasks):
        add_pod(cluster, f"{name}-{number}", name, *gates, **more)
    return cluster


def add_pod(
    cluster: Cluster, name: str, group: str, *gates: dict[str, str], cpu="1", **more
) -> None:
    asks = {"annotations": {keys.QUEUE_GATE: "true"}}
    cluster.pod(name, group, cpu=cpu, metadata=asks, schedulingGates=list(gates), **more)


def lifted(plan: Plan) -> list[str]:
    return [gate.key.removeprefix("ns/") for gate in plan.lifted]


def test_as_many_gates_are_lifted_as_the_queue_has_room_for_ca14():
    cluster = gang(world(), "g", 5, OURS)
    assert lifted(cluster.step()) == ["g-0", "g-1", "g-2"]
    assert lifted(cluster.step()) == []


def test_no_gate_is_lifted_without_the_feature_or_without_the_pods_asking():
    assert lifted(gang(world(on=False), "g", 1, OURS).step()) == []
    silent = world().group("g", queue="q").pod("g-0", "g", cpu="1", schedulingGates=[OURS])
    assert lifted(silent.step()) == []


def test_a_pod_with_a_gate_of_others_waits_until_that_one_falls():
    cluster = gang(world(), "g", 1, FOREIGN, OURS)
    assert lifted(cluster.step()) == []
    add_pod(cluster, "g-0", "g", OURS)
    assert lifted(cluster.step()) == ["g-0"]


def test_a_pod_without_a_gate_that_no_node_takes_keeps_its_queues_room_pl06():
    """Its gate was lifted and its nodes are still to be made."""
    cluster = gang(world(), "first", 1, cpu="2", nodeSelector={"made": "later"})
    gang(cluster, "second", 1, OURS, cpu="2")
    cluster.group("third", queue="q").pod("third-0", "third", cpu="2")
    plan = cluster.step()
    assert (lifted(plan), binds_of(plan)) == ([], {})
    cluster.delete(kinds.POD, "ns/first-0")
    assert lifted(cluster.step()) == ["second-0"]


def test_what_is_reserved_is_held_when_the_pod_has_its_place_and_not_twice():
    cluster = gang(world(), "g", 3)
    assert binds_of(cluster.step()).keys() == {"g-0", "g-1", "g-2"}


def test_a_gang_is_admitted_as_a_whole_though_none_of_it_may_be_placed_yet():
    cluster = gang(world(), "g", 3, OURS, min_member=3)
    assert lifted(cluster.step()) == ["g-0", "g-1", "g-2"]
    gang(cluster, "g", 3, min_member=3)
    assert len(binds_of(cluster.step())) == 3


def test_of_more_admitted_pods_than_a_queue_has_room_for_as_many_start_as_fit_pl06():
    """The queue may have less by now; and without its webhook a pod comes without the gate."""
    cluster = gang(world(), "g", 3, OURS)
    assert len(lifted(cluster.step())) == 3
    cluster.queue("q", capability={"cpu": "2"})
    gang(cluster, "g", 3)
    assert binds_of(cluster.step()).keys() == {"g-0", "g-1"}
    assert binds_of(gang(world(), "h", 5).step()).keys() == {"h-0", "h-1", "h-2"}


def test_a_pod_that_asks_for_nothing_is_admitted_too():
    assert lifted(gang(world(), "g", 1, OURS, cpu="").step()) == ["g-0"]


@pytest.mark.parametrize("sharing", ["capacity", "proportion"])
def test_a_job_of_subgroups_is_admitted_too(sharing):
    cluster = world(sharing=sharing)
    policy = {"name": "p", "subGroupSize": 1, "labelSelector": {}, "matchLabelKeys": ["part"]}
    cluster.group("g", queue="q", min_member=1, subGroupPolicy=[policy])
    add_pod(cluster, "g-0", "g", OURS)
    assert lifted(cluster.step()) == ["g-0"]


def test_a_gate_that_is_not_seen_to_fall_is_wanted_again():
    cluster = gang(world(), "g", 1, OURS)
    plan = cluster.step()
    (status,) = [
        each
        for each in messages.desires(plan, cluster.cluster_state)
        if isinstance(each.message, DesiredUngated)
    ]
    assert is_outstanding(status, cluster.cluster_state)
    add_pod(cluster, "g-0", "g")
    assert not is_outstanding(status, cluster.cluster_state)


def test_a_new_leader_lifts_again_what_it_cannot_know_of():
    cluster = gang(world(), "g", 1, OURS)
    cluster.step()
    cluster.cluster_state.forget_desired()
    assert lifted(cluster.step()) == ["g-0"]
