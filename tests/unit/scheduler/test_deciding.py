"""What actions and plugins decide, one rule at a time (A01 to A04, PL01 to PL10, SS04, D01)."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from shared.api import kinds
from shared.model.status import TaskStatus

ALLOCATE_ONLY = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'


def conditions(plan, name):
    group = next(g for g in plan.podgroups if g.key == f"ns/{name}")
    return {c.type: (c.reason, c.message) for c in group.conditions}


# --- gangs -----------------------------------------------------------------------------------


def test_a_gang_is_placed_whole_or_not_at_all():
    world = Cluster().node("n1", cpu="2").gang("g", tasks=3, cpu="1")
    assert binds_of(world.decide()) == {}
    world.node("n2", cpu="1")
    assert sorted(binds_of(world.decide())) == ["g-0", "g-1", "g-2"]


def test_a_gang_that_does_not_fit_leaves_room_for_the_next():
    world = Cluster().node("n1", cpu="2").gang("big", tasks=3, created="2026-01-01T00:00:00Z")
    world.gang("small", tasks=2, created="2026-01-02T00:00:00Z")
    assert sorted(binds_of(world.decide())) == ["small-0", "small-1"]


def test_tasks_beyond_the_minimum_are_placed_as_far_as_they_fit():
    world = Cluster().node("n1", cpu="3").gang("g", tasks=5, min_member=2)
    assert sorted(binds_of(world.decide())) == ["g-0", "g-1", "g-2"]


def test_minima_per_role_are_kept_t03():
    world = Cluster().node("n1", cpu="2").group("g", min_member=2, minTaskMember={"ps": 1, "w": 1})
    for name, role in (("w-0", "w"), ("w-1", "w"), ("ps-2", "ps")):
        world.pod(name, "g", cpu="1", role=role)
    assert sorted(binds_of(world.decide())) == []  # two workers come first and fill the node
    world.node("n1", cpu="3")
    assert sorted(binds_of(world.decide())) == ["ps-2", "w-0", "w-1"]


def test_minima_per_role_beyond_the_jobs_own_do_not_count_t03():
    world = Cluster().node("n1", cpu="2").group("g", min_member=2, minTaskMember={"ps": 1, "w": 2})
    for name, role in (("w-0", "w"), ("w-1", "w")):
        world.pod(name, "g", cpu="1", role=role)
    assert sorted(binds_of(world.decide())) == ["w-0", "w-1"]


def test_a_job_with_too_few_pods_is_told_so_pl01():
    world = Cluster().node("n1").gang("g", tasks=1, min_member=3)
    plan = world.decide()
    assert plan.binds == ()
    assert plan.explanations[0].gate == "gang"
    assert "valid: 1, min: 3" in plan.explanations[0].message


def test_a_gated_pod_waits_and_its_gang_with_it():
    world = Cluster().node("n1").gang("g", tasks=2)
    world.pod("g-1", "g", cpu="1", schedulingGates=[{"name": "wait"}])
    assert world.decide().binds == ()
    world.pod("g-1", "g", cpu="1")
    assert len(binds_of(world.decide())) == 2


def test_a_gang_waits_on_nodes_for_what_is_being_released():
    world = Cluster().node("n1", cpu="2").pod("old", cpu="2", node="n1", deleting=True)
    world.gang("g", tasks=2)
    session = world.session()
    try:
        plan = world.decide()
    finally:
        session.close()
    assert plan.binds == ()
    assert plan.explanations[0].message == "waits for resources that are being released"
    world.gang("h", tasks=1, created="2027-01-01T00:00:00Z")
    assert world.decide().binds == ()  # what is promised to one is not given to another


# --- order -----------------------------------------------------------------------------------


def test_the_higher_priority_job_goes_first_pl02():
    world = Cluster().node("n1", cpu="1")
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high", "uid": "p"}, "value": 10})
    world.gang("old", tasks=1)
    world.group("new", priorityClassName="high", created="2027-01-01T00:00:00Z")
    world.pod("new-0", "new", cpu="1")
    assert binds_of(world.decide()) == {"new-0": "n1"}


def test_the_job_with_the_smaller_share_goes_first_pl04():
    world = Cluster().node("n1", cpu="3").pod("rich-0", "rich", cpu="1", node="n1")
    world.pod("rich-1", "rich", cpu="2").group("rich", created="2025-01-01T00:00:00Z")
    world.gang("poor", tasks=1, cpu="2", created="2026-06-01T00:00:00Z")
    assert binds_of(world.decide()) == {"poor-0": "n1"}


def test_tasks_go_by_priority_then_index_ss09():
    world = Cluster().node("n1", cpu="2").group("g", min_member=2)
    world.pod("g-10", "g", cpu="1").pod("g-9", "g", cpu="1").pod("g-11", "g", cpu="1", priority=5)
    assert sorted(binds_of(world.decide())) == ["g-11", "g-9"]


# --- queues ----------------------------------------------------------------------------------


def two_queues(**second):
    world = Cluster(queue=False).node("n1", cpu="8", memory="64Gi")
    return world.queue("a", weight=1).queue("b", **({"weight": 3} | second))


def test_queues_get_resources_by_weight_pl05():
    world = two_queues().gang("x", tasks=8, min_member=1, queue="a")
    world.gang("y", tasks=8, min_member=1, queue="b")
    placed = binds_of(world.decide())
    assert sum(name.startswith("x") for name in placed) == 2
    assert sum(name.startswith("y") for name in placed) == 6


def test_a_queue_cannot_exceed_its_capability_pl05():
    world = two_queues(capability={"cpu": "3"}).gang("y", tasks=8, min_member=1, queue="b")
    assert len(binds_of(world.decide())) == 3


def test_what_is_guaranteed_to_one_queue_is_not_given_to_another_pl05():
    world = two_queues(guarantee={"resource": {"cpu": "5"}})
    world.gang("x", tasks=8, min_member=1, queue="a")
    assert len(binds_of(world.decide())) == 3


def test_a_closed_queue_takes_nothing_in_and_gives_nothing_out():
    world = Cluster(queue=False).node("n1").queue("default", state="Closed")
    world.gang("g", tasks=1).group("p", phase="Pending", minResources={"cpu": "1"})
    plan = world.decide()
    assert (plan.binds, phase_in(plan, "p")) == ((), None) or phase_in(plan, "p") == "Pending"
    assert {e.job: e.gate for e in plan.explanations} == {"ns/g": "quota", "ns/p": "enqueue"}


def test_a_job_of_an_unknown_queue_is_left_alone_and_others_go_on():
    world = Cluster().node("n1").gang("g", tasks=1, queue="nowhere").gang("h", tasks=1)
    plan = world.decide()
    assert list(binds_of(plan)) == ["h-0"]
    assert conditions(plan, "g")["Unschedulable"] == (
        "QueueNotFound",
        "spec.queue: there is no queue 'nowhere'",
    )
    world.publish(plan)
    assert world.decide().podgroups == ()
    assert phase_in(world.queue("nowhere").decide(), "g") == "Inqueue"


# --- enqueue ---------------------------------------------------------------------------------


def test_jobs_enter_while_minima_fit_into_the_enlarged_cluster_pl10():
    world = Cluster().node("n1", cpu="10")
    for number in range(4):
        world.group(f"g{number}", phase="Pending", minResources={"cpu": "4"})
    plan = world.decide()
    entered = [g.key for g in plan.podgroups if g.phase == "Inqueue"]
    assert entered == ["ns/g0", "ns/g1"]  # 10 x 1.2 = 12, but the queue's share is 10 (PL05)


def test_a_refused_job_does_not_block_those_behind_it_a01():
    world = Cluster().node("n1", cpu="4")
    world.group("big", phase="Pending", minResources={"cpu": "40"})
    world.group("small", phase="Pending", minResources={"cpu": "1"}, created="2027-01-01T00:00:00Z")
    plan = world.decide()
    assert phase_in(plan, "small") == "Inqueue"
    message = next(e.message for e in plan.explanations if e.job == "ns/big")
    assert message == "resource in cluster is overused: overused cpu"


def test_without_the_action_enqueue_pending_jobs_are_promoted_a02():
    world = Cluster(ALLOCATE_ONLY).node("n1").gang("g", tasks=1, phase="Pending")
    plan = world.decide()
    assert list(binds_of(plan)) == ["g-0"]
    assert phase_in(plan, "g") == "Inqueue"


def test_with_the_action_enqueue_pending_jobs_wait_for_it_a02():
    world = Cluster().node("n1", cpu="1").gang("g", tasks=1, phase="Pending")
    world.group("g", phase="Pending", minResources={"cpu": "9"})
    assert world.decide().binds == ()


# --- predicates ------------------------------------------------------------------------------


def only_n2(**pod):
    world = Cluster().node("n1", cpu="4").node("n2", cpu="4", labels={"disk": "ssd", "n": "7"})
    return world.group("g").pod("p", "g", cpu="1", **pod)


def affinity(key, operator, *values):
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, id="selector"),
        pytest.param({"affinity": affinity("disk", "In", "ssd", "nvme")}, id="In"),
        pytest.param({"affinity": affinity("disk", "Exists")}, id="Exists"),
        pytest.param({"affinity": affinity("n", "Gt", "6")}, id="Gt"),
        pytest.param({"affinity": affinity("n", "Lt", "8")}, id="Lt"),
    ],
)
def test_selectors_admit_matching_nodes_only_pl07(pod):
    assert binds_of(only_n2(**pod).decide()) == {"p": "n2"}


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_negative_selectors_admit_nodes_without_the_label_pl07(operator):
    values = ["ssd"] if operator == "NotIn" else []
    assert binds_of(only_n2(affinity=affinity("disk", operator, *values)).decide()) == {"p": "n1"}


def test_untolerated_taints_and_cordons_keep_pods_away_pl07():
    taint = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
    world = Cluster().node("n1", taints=[taint]).node("n2", unschedulable=True)
    world.group("g").pod("p", "g", cpu="1")
    plan = world.decide()
    assert plan.explanations[0].reasons == {
        "node(s) had untolerated taint(s)": 1,
        "node(s) were unschedulable": 1,
    }
    world.pod("p", "g", cpu="1", tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert binds_of(world.decide()) == {"p": "n1"}


def test_a_node_takes_no_more_pods_than_it_says_pl07():
    world = Cluster().node("n1", pods="2").gang("g", tasks=3, min_member=1, cpu="100m")
    assert len(binds_of(world.decide())) == 2


def test_a_host_port_is_taken_once_per_node_pl07():
    port = [{"containerPort": 80, "hostPort": 8080}]
    world = Cluster().node("n1").node("n2").gang("g", tasks=3, min_member=1, ports=port)
    assert sorted(binds_of(world.decide()).values()) == ["n1", "n2"]
    world.step()
    world.gang("h", tasks=1, ports=port)
    assert world.decide().binds == ()


def test_an_overcommitted_node_takes_nobody_t07():
    world = Cluster().node("n1", cpu="1").pod("old", cpu="2", node="n1", scheduler="other")
    world.group("g").pod("p", "g", memory="1Gi")
    assert world.decide().binds == ()


# --- scores ----------------------------------------------------------------------------------


def test_least_requested_spreads_and_binpack_fills_pl08_pl09():
    spread = Cluster().node("n1").node("n2").gang("g", tasks=2)
    assert sorted(binds_of(spread.decide()).values()) == ["n1", "n2"]
    fill = Cluster(ALLOCATE_ONLY + "- plugins: [{name: binpack}]\n")
    fill.node("n1").node("n2").pod("old", cpu="1", node="n2").gang("g", tasks=2)
    assert sorted(binds_of(fill.decide()).values()) == ["n2", "n2"]


def test_preferred_affinity_wins_over_spreading_pl08():
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    world = only_n2(affinity={"nodeAffinity": wish}).pod("old", cpu="3", node="n2")
    assert binds_of(world.decide()) == {"p": "n2"}


def test_a_taint_to_be_avoided_is_avoided_pl08():
    taint = {"key": "k", "effect": "PreferNoSchedule"}
    world = Cluster().node("n1", taints=[taint]).node("n2").pod("old", cpu="1", node="n2")
    world.gang("g", tasks=1)
    assert binds_of(world.decide()) == {"g-0": "n2"}


def test_the_seed_turns_ties():
    world = Cluster().node("n1").node("n2").gang("g", tasks=1)
    assert [binds_of(world.decide(seed=seed))["g-0"] for seed in (0, 1, 2)] == ["n1", "n2", "n1"]


def test_a_nominated_node_comes_first_a03():
    world = Cluster().node("n1").node("n2").pod("old", cpu="6", node="n2")
    world.group("g").pod("p", "g", cpu="1", status={"nominatedNodeName": "n2"})
    assert binds_of(world.decide()) == {"p": "n2"}


# --- backfill --------------------------------------------------------------------------------


def test_best_effort_pods_go_to_nodes_without_room_a04():
    world = Cluster().node("n1", cpu="1").pod("old", cpu="1", node="n1").gang("g", tasks=2, cpu="")
    assert sorted(binds_of(world.decide())) == ["g-0", "g-1"]


def test_best_effort_tasks_count_towards_their_gang_t02():
    world = Cluster().node("n1", cpu="1").group("g", min_member=2)
    world.pod("work", "g", cpu="1").pod("sidekick", "g")
    assert sorted(binds_of(world.decide())) == ["sidekick", "work"]


# --- statuses --------------------------------------------------------------------------------


def test_the_condition_says_how_many_are_missing_and_why_d01():
    world = Cluster(ALLOCATE_ONLY).node("n1", cpu="1").node("n2", cpu="1").gang("g", tasks=3)
    reason, message = conditions(world.decide(), "g")["Unschedulable"]
    assert reason == "NotEnoughResources"
    assert message == (
        "1/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; "
        "Pending: 1 Unschedulable, 2 Schedulable. "
        "Origin reason is g-2: 0/2 nodes are unavailable: 2 Insufficient cpu. "
        "(needs 1 cpu, 0 free on one node; place 1 in queue default)"
    )


def test_a_placed_gang_shows_scheduled_d01():
    world = Cluster().node("n1").gang("g", tasks=1)
    assert conditions(world.decide(), "g") == {
        "Scheduled": ("tasks in gang are ready to be scheduled", "")
    }


def test_pods_show_why_they_wait_so_that_autoscalers_act_d02():
    world = Cluster().node("n1", cpu="1").gang("g", tasks=2)
    said = {w.key: (w.condition.status, w.condition.reason) for w in world.decide().pods}
    assert said == {"ns/g-0": ("False", "Schedulable"), "ns/g-1": ("False", "Unschedulable")}


def test_the_explanation_names_the_short_resource_and_the_amount():
    world = Cluster().node("n1", cpu="1").node("n2", cpu="2").gang("g", tasks=1, cpu="3")
    explanation = world.decide().explanations[0]
    assert (explanation.gate, explanation.nodes) == ("predicate", 2)
    shortage = explanation.shortages[0]
    assert (shortage.resource, shortage.requested, shortage.largest_free) == ("cpu", 3000, 2000)


def test_the_explanation_tells_the_place_in_the_queue():
    world = Cluster().node("n1", cpu="1")
    for number in range(3):
        world.gang(f"g{number}", tasks=2)
    assert {e.job: e.position for e in world.decide().explanations} == {
        "ns/g0": 1,
        "ns/g1": 2,
        "ns/g2": 3,
    }


def test_a_queue_and_its_parents_show_what_they_hold_ss03():
    world = Cluster(queue=False).node("n1").queue("root").queue("p").queue("c", parent="p")
    world.group("g", queue="c").pod("a", "g", cpu="1500m", memory="1Gi", node="n1")
    held = {queue.name: dict(queue.allocated) for queue in world.decide().queues}
    amounts = {"cpu": "1500m", "memory": "1Gi", "pods": "1"}
    assert held == {"root": amounts, "p": amounts, "c": amounts}


def test_nothing_is_wanted_twice():
    world = Cluster().node("n1", cpu="1").gang("g", tasks=1).gang("h", tasks=2)
    world.step()
    world.step()
    assert world.decide().is_empty


def test_what_was_not_adopted_is_wanted_again():
    world = Cluster().node("n1", cpu="1").gang("h", tasks=2)
    assert world.decide().podgroups == world.decide().podgroups != ()


def test_settled_jobs_are_not_visited():
    world = Cluster().node("n1")
    for number in range(5):
        world.gang(f"g{number}", tasks=1, phase="Running")
        world.pod(f"g{number}-0", f"g{number}", cpu="1", node="n1")
    world.step()
    session = world.session()
    visited = (session.jobs, session.visited())
    session.close()
    assert visited == ([], [])


def test_a_task_that_runs_leaves_nothing_pending():
    world = Cluster().node("n1").gang("g", tasks=1)
    world.step()
    world.pod("g-0", "g", cpu="1", node="n1")
    assert phase_in(world.step(), "g") == "Running"
    assert not world.job("g").by_status[TaskStatus.PENDING]


def test_a_group_that_is_scheduled_no_longer_says_why_it_waited():
    world = Cluster().queue("default").node("n1", cpu="1").group("g", min_member=2)
    for name in ("g-0", "g-1"):
        world.pod(name, "g", cpu="1")
    plan = world.decide()
    assert "tasks in gang unschedulable" in conditions(plan, "g")["Unschedulable"][1]
    world.cluster_state.assume_statuses(plan)
    plan = world.node("n2", cpu="1").decide()
    (group,) = plan.podgroups
    (shown,) = (c for c in group.conditions if c.type == "Unschedulable")
    assert (shown.status, shown.message) == ("False", "")
    assert "Scheduled" in conditions(plan, "g")


def test_a_gang_that_lost_a_pod_says_that_the_others_run_below_its_minimum():
    world = Cluster().queue("default").node("n1", cpu="1").node("n2", cpu="0")
    world.group("g", min_member=2, phase="Running")
    world.pod("g-0", "g", cpu="1", node="n1").pod("g-1", "g", cpu="1")
    _, message = conditions(world.decide(), "g")["Unschedulable"]
    assert "1 pod runs below the minimum of 2" in message
