"""preempt: whom starving jobs evict within their queue, and for whom nobody goes (A05, SS11)."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.decide import run_actions
from shared.api import kinds
from shared.contracts.messages import Result
from shared.model.status import TaskStatus

CONF = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""


def world(conf: str = CONF) -> Cluster:
    cluster = Cluster(conf)
    for name, value in (("low", 10), ("high", 1000)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    return cluster


def crowd(*, running: int = 4, min_member: int = 1, conf: str = CONF, **pod) -> Cluster:
    """One full node with a job of low priority."""
    cluster = world(conf).node("n1", cpu=str(running))
    cluster.group("low", min_member=min_member, phase="Running", priorityClassName="low")
    for number in range(running):
        cluster.pod(f"low-{number}", "low", cpu="1", node="n1", **pod)
    return cluster


def test_as_many_as_needed_go_and_the_preemptors_wait_on_their_nodes_a05():
    cluster = crowd().group("high", min_member=2, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1").pod("high-1", "high", cpu="1")
    plan = cluster.decide()
    # the last ones first: against the order of tasks
    assert evictions_of(plan) == {"low-3": "high-0", "low-2": "high-1"}
    assert {e.reason for e in plan.evictions} == {"preempt"}
    assert [(n.pod, n.node) for n in plan.nominations] == [("ns/high-0", "n1"), ("ns/high-1", "n1")]
    assert plan.binds == ()


def test_a_gang_that_cannot_be_whole_evicts_nobody_and_leaves_no_trace_ss10():
    cluster = crowd().group("high", min_member=4, priorityClassName="high")
    for number in range(4):
        cluster.pod(f"high-{number}", "high", cpu="1")
    session = cluster.session()
    ledger = session.ledger
    try:
        before = [ledger.used.copy(), ledger.releasing.copy(), ledger.evicted.copy()]
    finally:
        session.close()
    plan = cluster.decide()  # three are beyond the minimum of `low`, four are asked for
    assert plan.evictions == ()
    assert plan.nominations == ()
    after = [ledger.used, ledger.releasing, ledger.evicted]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert len(cluster.job("low").by_status[TaskStatus.RUNNING]) == 4
    assert ledger.at_rest


def test_a_job_like_one_that_has_failed_is_tried_again_once_another_has_made_room():
    """`c` is as `a`: what holds for both ends with the eviction between them."""
    in_turn = CONF.replace("{name: priority}", "{name: priority, enableJobOrder: false}")
    alone = in_turn.replace("enqueue, allocate, preempt, backfill", "preempt")
    cluster = world(alone).node("n1", cpu="4")
    cluster.group("victim", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("victim-0", "victim", cpu="4", node="n1")
    for name, rank in (("a", "low"), ("between", "high"), ("c", "low")):
        cluster.group(name, phase="Inqueue", min_member=1, priorityClassName=rank)
        cluster.pod(f"{name}-0", name, cpu="2")
    session = cluster.session()
    try:
        assert session.equal_jobs_fail_equally
        run_actions(session, cluster.config)
        standing = {t.name: t.status for t in cluster.cluster_state.tasks()}
    finally:
        session.close()
    assert standing["a-0"] is TaskStatus.PENDING
    assert standing["between-0"] is standing["c-0"] is TaskStatus.PIPELINED


def test_nobody_is_taken_from_an_equal():
    cluster = crowd().group("other", min_member=1, priorityClassName="low")
    assert cluster.pod("other-0", "other", cpu="1").decide().evictions == ()


@pytest.mark.parametrize(
    "spared",
    [
        {"metadata": {"labels": {"volcano.sh/preemptable": "false"}}},
        {"priorityClassName": "system-node-critical"},
        {"deleting": True},
        {"phase": "Failed"},
    ],
    ids=["not preemptable", "critical", "leaving already", "over"],
)
def test_only_running_preemptable_pods_go_a05(spared):
    cluster = crowd(running=2).node("n1", cpu="2")
    for number in range(2):
        cluster.pod(f"low-{number}", "low", cpu="1", node="n1", **spared)
    cluster.group("high", min_member=1, priorityClassName="high").pod("high-0", "high", cpu="1")
    assert cluster.decide().evictions == ()


def test_a_tier_that_finds_nobody_leaves_it_to_the_next_even_for_critical_pods_ss06():
    """⚠ Volcano's rule: with drf on in the second tier, its word alone decides then."""
    cluster = Cluster(CONF.replace(", enablePreemptable: false", "")).node("n1", cpu="2")
    cluster.group("low", phase="Running")
    for name in ("low-0", "low-1"):
        cluster.pod(name, "low", cpu="1", node="n1", priorityClassName="system-node-critical")
    plan = cluster.group("same").pod("same-0", "same", cpu="1").decide()
    assert evictions_of(plan) == {"low-1": "same-0"}


def test_a_pod_whose_policy_is_never_takes_from_nobody_a05():
    cluster = crowd().group("high", min_member=1, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1", preemptionPolicy="Never")
    assert cluster.decide().evictions == ()


def test_a_pod_that_asks_for_nothing_takes_only_from_its_like_a05():
    cluster = world().node("n1", cpu="4", pods="2")
    cluster.group("low", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="1", node="n1").pod("low-1", "low", cpu="1", node="n1")
    cluster.group("high", min_member=1, priorityClassName="high").pod("high-0", "high")
    assert cluster.decide().evictions == ()
    cluster.pod("low-1", "low", node="n1")
    assert evictions_of(cluster.decide()) == {"low-1": "high-0"}


def test_within_a_job_more_important_tasks_take_from_less_important_ones_a05():
    conf = 'actions: "allocate, preempt"\ntiers:\n- plugins: [{name: priority}]\n'
    cluster = world(conf).node("n1", cpu="2").group("j", min_member=1, phase="Running")
    cluster.pod("j-0", "j", cpu="1", node="n1", priority=5)
    cluster.pod("j-1", "j", cpu="1", node="n1", priority=1)
    cluster.pod("j-2", "j", cpu="1", priority=9)
    assert evictions_of(cluster.decide()) == {"j-1": "j-2"}


def test_a_job_that_is_not_starving_takes_from_nobody_ss07():
    """The first tier with a say decides, and all in it must say so: gang says no."""
    cluster = crowd().group("high", min_member=0, phase="Running", priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1")
    assert cluster.decide().evictions == ()


def test_a_gated_pod_takes_from_nobody():
    cluster = crowd().group("high", min_member=1, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1", schedulingGates=[{"name": "wait"}])
    assert cluster.decide().evictions == ()


def test_a_node_that_refuses_for_good_is_not_cleared_a05():
    cluster = crowd().node("n1", cpu="4", taints=[{"key": "k", "effect": "NoSchedule"}])
    cluster.group("high", min_member=1, priorityClassName="high").pod("high-0", "high", cpu="1")
    assert cluster.decide().evictions == ()


def test_a_port_is_free_once_its_holder_has_to_go():
    port = [{"containerPort": 80, "hostPort": 80}]
    cluster = world().node("n1", cpu="8")
    cluster.group("low", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="1", node="n1", ports=port)
    cluster.group("high", min_member=1, priorityClassName="high")
    plan = cluster.pod("high-0", "high", cpu="1", ports=port).decide()
    assert evictions_of(plan) == {"low-0": "high-0"}


def test_what_an_earlier_eviction_freed_is_taken_without_another_and_not_nominated_ss11():
    cluster = world().node("n1", cpu="4")
    cluster.group("low", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="4", node="n1")
    cluster.group("high", min_member=2, priorityClassName="high")
    plan = cluster.pod("high-0", "high", cpu="1").pod("high-1", "high", cpu="1").decide()
    assert evictions_of(plan) == {"low-0": "high-0"}
    assert [n.pod for n in plan.nominations] == ["ns/high-0"]


def test_once_asked_the_scheduler_asks_for_no_more_and_binds_when_the_victims_are_gone():
    cluster = crowd().group("high", min_member=2, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1").pod("high-1", "high", cpu="1")
    gone = evictions_of(cluster.step())
    assert len(gone) == 2
    for _ in range(3):
        again = cluster.step()
        assert (again.evictions, again.binds) == ((), ())
    for name in gone:
        cluster.delete(kinds.POD, f"ns/{name}")
    assert binds_of(cluster.step()) == {"high-0": "n1", "high-1": "n1"}


def test_an_eviction_that_failed_is_asked_for_again():
    cluster = crowd().group("high", min_member=1, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1")
    (first,) = cluster.step().evictions
    cluster.cluster_state.assume_nomination("1-e0", "uid-ns/high-0", "n1")
    cluster.cluster_state.outcome("1-e0", [(first.uid, Result.FAILED)])
    assert evictions_of(cluster.step()) == {"low-3": "high-0"}


def test_a_pod_waits_while_its_nominated_node_is_being_cleared_for_it_a05():
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    cluster = crowd(running=3)
    cluster.pod("low-2", "low", cpu="1", node="n1", deleting=True, status={"conditions": [target]})
    cluster.group("high", min_member=1, priorityClassName="high")
    waiting = {"nominatedNodeName": "n1"}
    cluster.pod("high-0", "high", cpu="2", priority=7, status=waiting)
    assert cluster.decide().evictions == ()


def test_a_victim_that_is_not_seen_to_leave_yet_costs_no_other_pod_its_place_a05():
    """Its port keeps the taker off the node, and its object does not show that it is to go."""
    port = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    cluster = world().node("n1", cpu="4").node("n2", cpu="4")
    for node in ("n1", "n2"):
        cluster.group(node, min_member=0, phase="Running", priorityClassName="low")
        cluster.pod(f"{node}-0", node, cpu="3", node=node, ports=port)
    cluster.group("high", min_member=1, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="2", priority=7, ports=port)
    gone = evictions_of(cluster.step())
    assert gone == {"n1-0": "high-0"}
    assert [evictions_of(cluster.step()) for _ in range(3)] == [{}, {}, {}]
    cluster.delete(kinds.POD, "ns/n1-0")
    assert binds_of(cluster.step()) == {"high-0": "n1"}


@pytest.mark.parametrize("volcano_evictions", [False, True])
def test_a_nominated_node_that_is_gone_ends_a_pods_claims_with_volcanos_evictions_only_a05(
    volcano_evictions: bool,
):
    cluster = crowd(conf=f"volcanoEvictions: {str(volcano_evictions).lower()}\n{CONF}")
    cluster.group("high", min_member=1, priorityClassName="high")
    cluster.pod("high-0", "high", cpu="1", status={"nominatedNodeName": "gone"})
    assert (cluster.decide().evictions == ()) == volcano_evictions


def test_victims_in_other_queues_are_not_preempts_business():
    cluster = crowd().queue("other").group("high", queue="other", priorityClassName="high")
    assert cluster.pod("high-0", "high", cpu="1").decide().evictions == ()


def test_the_least_important_job_gives_first():
    cluster = world().node("n1", cpu="3")
    for name, cls in (("mid", "mid"), ("low", "low")):
        value = {"mid": 100, "low": 10}[cls]
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": cls, "uid": cls}, "value": value})
        cluster.group(name, min_member=0, phase="Running", priorityClassName=cls)
    cluster.pod("low-0", "low", cpu="1", node="n1").pod("mid-7", "mid", cpu="1", node="n1")
    cluster.pod("mid-8", "mid", cpu="1", node="n1")
    cluster.group("high", min_member=1, priorityClassName="high").pod("high-0", "high", cpu="1")
    assert evictions_of(cluster.decide()) == {"low-0": "high-0"}


def test_a_queue_without_share_makes_its_own_jobs_give_way_though_there_is_room():
    """Room on the node is not enough: the queue must be allowed one more (A05)."""
    cluster = world().node("n1", cpu="8").queue("default", capability={"cpu": "2"})
    cluster.group("low", min_member=0, phase="Running", priorityClassName="low")
    cluster.pod("low-0", "low", cpu="1", node="n1").pod("low-1", "low", cpu="1", node="n1")
    cluster.group("high", min_member=1, priorityClassName="high")
    plan = cluster.pod("high-0", "high", cpu="1").decide()
    assert evictions_of(plan) == {"low-1": "high-0"}
