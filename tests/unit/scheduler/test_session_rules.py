"""Rules of sessions, tasks and nodes that are easy to get wrong, one by one (SS, T and A items)."""

import numpy as np
import pytest

from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from services.scheduler.decide import run_actions
from services.scheduler.engine.placement.hooks import Registrar
from services.scheduler.engine.resources.dimensions import CPU_DIM
from services.scheduler.engine.session.session import Session
from shared.api import kinds
from shared.model.status import TaskStatus

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def world(actions: str = "enqueue, allocate, backfill", tiers: str = TIERS) -> Cluster:
    return Cluster(f'actions: "{actions}"{tiers}')


def played(cluster: Cluster) -> Session:
    """Return a session whose actions have run; the caller closes it."""
    session = cluster.session()
    run_actions(session, cluster.config)
    return session


# --- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "placed"),
    [("enqueue, allocate", {"j-0": "n1"}), ("allocate, enqueue", {})],
    ids=["enqueue first", "allocate first"],
)
def test_actions_run_once_in_the_order_of_the_configuration_ss01(actions, placed):
    plan = world(actions).node("n1").gang("j", tasks=1, phase="Pending").decide()
    assert binds_of(plan) == placed
    assert phase_in(plan, "j") == "Inqueue"


def test_scores_of_plugins_add_up_ss08():
    cluster = world(tiers="").node("n1").node("n2").gang("j", tasks=1)
    session = cluster.session()
    flags = dict.fromkeys(("enableNodeOrder",), True)
    for name, scores in (("one", [3.0, 1.0]), ("two", [0.0, 4.0])):
        registrar = Registrar(session.hooks, tier=0, flags=flags, identity=name)
        registrar.node_score(lambda _, rows, scores=scores: rows.pick(np.array(scores)))
    task_class = next(iter(cluster.job("j").tasks.values())).task_class
    assert session.candidates(task_class).score.tolist() == [3.0, 5.0]
    assert session.choose(task_class, 1, waiting=False) == [1]
    session.close()


def test_of_equally_good_nodes_the_seed_says_which_ss08():
    """Volcano rolls dice here; any of them is its outcome."""

    def chosen(seed: int) -> dict[str, str]:
        cluster = world().node("n1").node("n2").node("n3").gang("j", tasks=1)
        return binds_of(cluster.decide(seed=seed))

    assert [chosen(seed)["j-0"] for seed in range(4)] == ["n1", "n2", "n3", "n1"]


def test_what_only_waits_for_a_release_is_committed_to_nobody_ss10():
    """⚠ To commit a pipelined task does nothing: no bind, and without evictions no nomination."""
    cluster = world().node("n1", cpu="2").group("old").group("new")
    cluster.pod("old-0", "old", cpu="2", node="n1", deleting=True).pod("new-0", "new", cpu="2")
    session = played(cluster)
    assert [t.name for t in cluster.job("new").by_status[TaskStatus.PIPELINED].values()] == [
        "new-0"
    ]
    session.close()
    plan = cluster.decide()
    assert (plan.binds, plan.nominations) == ((), ())


def test_what_waits_for_a_release_keeps_it_from_those_behind_a02():
    """⚠ Such a statement is neither committed nor undone: it holds its room for the session."""
    cluster = world().node("n1", cpu="2").group("old")
    cluster.pod("old-0", "old", cpu="2", node="n1", deleting=True)
    for name, day in (("first", 1), ("second", 2)):
        cluster.group(name, created=f"2026-01-01T00:00:0{day}Z").pod(f"{name}-0", name, cpu="2")
    session = played(cluster)
    assert cluster.job("first").waiting_count == 1
    assert cluster.job("second").waiting_count == 0
    session.close()


def test_a_refused_group_leaves_the_gate_open_for_those_behind_it_a01():
    tiers = TIERS.replace("{name: proportion}", "{name: proportion}, {name: overcommit}")
    cluster = world(tiers=tiers).node("n1", cpu="4")
    for name, cpu, day in (("huge", "9", 1), ("small", "1", 2)):
        day_ = f"2026-01-01T00:00:0{day}Z"
        cluster.group(name, phase="Pending", created=day_, minResources={"cpu": cpu})
    plan = cluster.decide()
    assert phase_in(plan, "small") == "Inqueue"
    assert phase_in(plan, "huge") in {None, "Pending"}


def test_every_starving_job_of_a_queue_gets_its_turn_in_reclaim_a07():
    """⚠ The queue comes back as long as it has jobs, also after one that found nothing."""
    tiers = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}]
"""
    cluster = world("allocate, reclaim", tiers).node("n1", cpu="4").queue("rich").queue("poor")
    cluster.group("old", queue="rich", min_member=1, phase="Running")
    for number in range(4):
        cluster.pod(f"old-{number}", "old", cpu="1", node="n1")
    for name, cpu, day in (("too-big", "3", 1), ("one", "1", 2), ("two", "1", 3)):
        day_ = f"2026-01-01T00:00:0{day}Z"
        cluster.group(name, queue="poor", created=day_).pod(f"{name}-0", name, cpu=cpu)
    assert sorted(evictions_of(cluster.decide()).values()) == ["one-0", "two-0"]


def test_predicates_are_asked_of_all_nodes_and_the_best_of_those_left_is_taken_a03():
    cluster = world().node("n1", cpu="8", unschedulable=True).node("n2", cpu="4")
    cluster.node("n3", cpu="8").gang("j", tasks=1)
    assert binds_of(cluster.decide()) == {"j-0": "n3"}


# --- tasks ---------------------------------------------------------------------------------------


def test_what_starting_takes_counts_as_long_as_the_pod_lives_t04():
    """⚠ There is one request: the larger of init containers and all others, started or not."""
    init = [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]
    cluster = world().node("n1", cpu="4").group("j")
    cluster.pod("j-0", "j", cpu="1", node="n1", initContainers=init)
    assert cluster.job("j").allocated[CPU_DIM] == 3000
    plan = cluster.group("k").pod("k-0", "k", cpu="2").decide()
    assert plan.binds == ()


@pytest.mark.parametrize(
    ("metadata", "may_go"),
    [
        ({}, True),
        ({"labels": {"volcano.sh/preemptable": "false"}}, False),
        ({"annotations": {"volcano.sh/preemptable": "false"}}, False),
        ({"labels": {"volcano.sh/preemptable": "true"}}, True),
    ],
    ids=["silent", "label no", "annotation no", "label yes"],
)
def test_a_pod_may_be_evicted_unless_it_says_no_but_a_job_only_if_it_says_yes_t05(metadata, may_go):
    cluster = world().node("n1").group("j").pod("j-0", "j", cpu="1", node="n1", metadata=metadata)
    assert next(iter(cluster.job("j").tasks.values())).preemptable is may_go
    assert cluster.job("j").preemptable is False


@pytest.mark.parametrize("role_minimum", [2, 3])
def test_minima_of_roles_count_only_up_to_the_minimum_of_the_job_t03(role_minimum):
    """⚠ Where they add up to more than minMember nobody looks at them."""
    cluster = world().node("n1", cpu="3")
    cluster.group("j", min_member=3, minTaskMember={"ps": 1, "w": role_minimum})
    for number, role in enumerate(["ps", "ps", "ps", "w", "w"]):
        cluster.pod(f"j-{number}", "j", cpu="1", role=role)
    bound = binds_of(cluster.decide())
    # with 1 + 2 the job wants two workers; 1 + 3 exceeds minMember and is no rule
    assert len(bound) == (0 if role_minimum == 2 else 3)


def test_cpu_and_memory_are_compared_even_when_not_asked_for_t07():
    cluster = world().node("n1", cpu="4", memory="1Gi").group("old").group("j")
    cluster.pod("old-0", "old", memory="2Gi", node="n1")  # more than there is
    assert binds_of(cluster.pod("j-0", "j", cpu="1").decide()) == {}


# --- nodes ---------------------------------------------------------------------------------------


def test_future_room_is_idle_and_releasing_less_what_others_wait_for_t08():
    cluster = world().node("n1", cpu="8").group("old").group("new")
    cluster.pod("old-0", "old", cpu="3", node="n1").pod(
        "old-1", "old", cpu="2", node="n1", deleting=True
    )
    cluster.pod("new-0", "new", cpu="4")
    session = played(cluster)
    ledger = session.ledger
    idle = ledger.allocatable[CPU_DIM, 0] - ledger.used[CPU_DIM, 0]
    assert (idle, ledger.releasing[CPU_DIM, 0], ledger.pipelined[CPU_DIM, 0]) == (3000, 2000, 4000)
    assert ledger.future_idle(CPU_DIM)[0] == 1000
    session.close()


def test_a_node_counts_as_long_as_its_object_exists_whatever_its_conditions_say_t08():
    """⚠ Not being ready shows in taints, which predicates read; conditions are read by nobody."""
    cluster = world().gang("j", tasks=1)
    sick = {"type": "Ready", "status": "False"}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [sick]}
    cluster.put(kinds.NODE, {"metadata": {"name": "n1", "uid": "n1"}, "status": status})
    assert binds_of(cluster.decide()) == {"j-0": "n1"}


def test_a_queue_may_be_reclaimed_from_unless_it_says_no_t09():
    cluster = world().queue("silent").queue("no", reclaimable=False)
    queues = cluster.cluster_state.jobs.queues
    assert (queues["silent"].reclaimable, queues["no"].reclaimable) == (True, False)


def test_reasons_are_counted_over_nodes_and_listed_in_order_t11():
    cluster = world().node("n1", cpu="1").node("n2", cpu="1").node("n3", unschedulable=True)
    explained = {e.job: e for e in cluster.gang("j", tasks=1, cpu="2").decide().explanations}
    assert explained["ns/j"].nodes == 3
    text = explained["ns/j"].message
    assert text.startswith("0/3 nodes are unavailable: 1 node(s) ")
    assert text.endswith("2 Insufficient cpu.")


def test_what_a_plugin_remembers_is_undone_with_a_trial_and_outlives_the_session():
    world = Cluster().node("n1")
    session = world.session()
    session.memory["kept"] = 1.0
    with session.trial():
        session.memory["kept"] = 2.0
        session.memory["undone"] = 3.0
        del session.memory["kept"]
    assert dict(session.memory) == {"kept": 1.0}
    session.close()
    assert world.cluster_state.memory == {"kept": 1.0}
