"""Network topology and subgroups (PL17, A02, T06, SS02, SS12)."""

import numpy as np
import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import conclude, run_actions
from services.scheduler.engine.jobs.subjobs import match_values, subjob_id
from services.scheduler.engine.nodes.hypernodes import TOP
from services.scheduler.policy import network_scores as scores
from shared.api import kinds
from shared.api.scheduling import SubGroupPolicy

CONF = """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: network-topology-aware}]
"""
HARD = {"mode": "hard", "highestTierAllowed": 1}
BY_TASK = {"name": "part", "subGroupSize": 2, "matchLabelKeys": ["part"]}


def hypernode(world, name, tier, *members, kind="Node", tier_name=""):
    selectors = [{"type": kind, "selector": {"exactMatch": {"name": m}}} for m in members]
    return world.put(
        kinds.HYPERNODE,
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"tier": tier, "tierName": tier_name, "members": selectors},
        },
    )


def two_racks(cpu="2", conf=CONF):
    """Racks s0 and s1 of two nodes each, below the spine s2."""
    world = Cluster(conf)
    for rack in ("s0", "s1"):
        for number in (1, 2):
            world.node(f"{rack}-n{number}", cpu=cpu)
        hypernode(world, rack, 1, f"{rack}-n1", f"{rack}-n2", tier_name="rack")
    return hypernode(world, "s2", 2, "s0", "s1", kind="HyperNode", tier_name="spine")


def add_job(world, tasks, *, cpu="1", name="g", min_member=None, **group):
    world.group(name, min_member=tasks if min_member is None else min_member, **group)
    for number in range(tasks):
        world.pod(f"{name}-{number}", name, cpu=cpu, metadata={"labels": {"part": f"{number % 2}"}})
    return world


def racks(plan):
    return sorted({node.split("-")[0] for node in binds_of(plan).values()})


# --- within a tier ---------------------------------------------------------------------------


def test_a_hard_topology_keeps_a_gang_within_one_hypernode_a02():
    plan = add_job(two_racks(), 4, networkTopology=HARD).decide()
    assert len(binds_of(plan)) == 4
    assert len(racks(plan)) == 1


def test_a_gang_that_fits_in_no_hypernode_of_the_tier_is_not_placed_a02():
    world = add_job(two_racks(), 6, networkTopology=HARD)
    assert binds_of(world.decide()) == {}
    world.group("g", min_member=6, networkTopology={"mode": "hard", "highestTierAllowed": 2})
    assert racks(world.decide()) == ["s0", "s1"]


def test_a_job_that_fits_in_no_hypernode_is_told_so():
    plan = add_job(two_racks(), 6, networkTopology=HARD).decide()
    explanation = plan.explanations[0]
    assert explanation.gate == "topology"
    assert explanation.message.startswith("no HyperNode of tier 1 or lower has room for the job")
    assert add_job(two_racks(), 4, networkTopology=HARD).decide().explanations == ()


def test_a_soft_topology_takes_the_lowest_tier_that_has_room_ss02():
    soft = {"mode": "soft"}
    assert len(racks(add_job(two_racks(), 4, networkTopology=soft).decide())) == 1
    assert racks(add_job(two_racks(), 6, networkTopology=soft).decide()) == ["s0", "s1"]


@pytest.mark.parametrize(("tier", "placed"), [("rack", 0), ("spine", 6), ("unknown", 6)])
def test_the_name_of_a_tier_stands_for_it_ss02(tier, placed):
    """A name that no HyperNode has limits nothing, as upstream."""
    topology = {"mode": "hard", "highestTierName": tier}
    assert len(binds_of(add_job(two_racks(), 6, networkTopology=topology).decide())) == placed


def test_the_fuller_hypernode_wins_pl17():
    world = two_racks().pod("old", cpu="1", node="s1-n1")
    world.group("other", min_member=1).pod("other-0", "other", cpu="1", node="s1-n1")
    assert racks(add_job(world, 2, networkTopology=HARD).decide()) == ["s1"]


def test_tasks_join_the_hypernode_where_the_rest_of_their_job_runs_ss12():
    """After a restart too: the place is read off the running tasks."""
    world = add_job(two_racks(), 3, min_member=1, networkTopology=HARD)
    world.pod("g-0", "g", cpu="1", node="s1-n2", metadata={"labels": {"part": "0"}})
    assert racks(world.decide()) == ["s1"]


def test_a_job_waits_while_the_hypernodes_are_no_tree_t10():
    world = add_job(two_racks(), 2, networkTopology=HARD)
    hypernode(world, "rival", 2, "s0", kind="HyperNode")
    plan = world.decide()
    assert plan.binds == ()
    assert plan.explanations[0].gate == "topology"
    world.delete(kinds.HYPERNODE, "rival")
    assert len(binds_of(world.decide())) == 2


def test_a_hypernode_by_pattern_takes_in_nodes_that_come_later():
    world = Cluster(CONF).put(
        kinds.HYPERNODE,
        {
            "metadata": {"name": "late", "uid": "uid-late"},
            "spec": {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "^late-"}}}],
            },
        },
    )
    add_job(world.node("early-1"), 2, networkTopology=HARD)
    assert world.decide().binds == ()
    assert racks(world.node("late-1").decide()) == ["late"]


def test_what_a_try_placed_is_taken_back_to_the_bit():
    world = add_job(two_racks(), 6, networkTopology=HARD)
    session = world.session()
    before = world.cluster_state.nodes.ledger.used.copy()
    try:
        run_actions(session, world.config)
        assert (world.cluster_state.nodes.ledger.used == before).all()
    finally:
        session.close()
    assert world.cluster_state.audit() == []


@pytest.mark.parametrize(("topology", "victims"), [(HARD, 0), (None, 1)], ids=["near", "anywhere"])
def test_preempt_evicts_for_no_job_with_a_topology_a05(topology, victims):
    conf = CONF.replace('"allocate"', '"allocate, preempt"')
    world = two_racks(cpu="1", conf=conf)
    for node in ("s0-n1", "s0-n2", "s1-n1", "s1-n2"):
        world.group(f"old-{node}", min_member=0)
        world.pod(f"old-{node}-0", f"old-{node}", cpu="1", node=node)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high", "uid": "u"}, "value": 10})
    more = {"networkTopology": topology} if topology else {}
    world.group("g", priorityClassName="high", **more).pod("g-0", "g", cpu="1", priority=10)
    assert len(world.decide().evictions) == victims


@pytest.mark.parametrize(
    ("nominated", "honoured"),
    [("s1-n2", True), ("s0-n1", False), ("", False)],
    ids=["within", "elsewhere", "nowhere"],
)
def test_a_subgroup_goes_to_the_nodes_that_were_cleared_for_it_a08(nominated, honoured):
    """A nomination that cannot be honoured wholly is none."""
    world = two_racks().group("g", min_member=2, networkTopology=HARD)
    for number in range(2):
        world.pod(f"g-{number}", "g", cpu="1", status={"nominatedNodeName": nominated})
    session = world.session()
    try:
        session.network.nominated["ns/g"] = "s1"
        run_actions(session, world.config)
        binds = binds_of(conclude(session))
        assert session.network.nominated == {}
    finally:
        session.close()
    assert len({node.split("-")[0] for node in binds.values()}) == 1
    assert (list(binds.values()) == ["s1-n2", "s1-n2"]) is honoured


# --- subgroups -------------------------------------------------------------------------------


def test_each_subgroup_keeps_within_its_own_hypernode_t06():
    policy = {**BY_TASK, "subGroupSize": 3, "networkTopology": HARD}
    plan = add_job(two_racks(), 6, subGroupPolicy=[policy]).decide()
    binds = binds_of(plan)
    assert len(binds) == 6
    for part in (0, 1):
        own = {binds[f"g-{n}"].split("-")[0] for n in range(6) if n % 2 == part}
        assert len(own) == 1


def test_a_job_needs_as_many_subgroups_as_its_policy_says_pl01():
    policy = {**BY_TASK, "subGroupSize": 3, "networkTopology": HARD, "minSubGroups": 2}
    world = add_job(two_racks(), 6, min_member=3, subGroupPolicy=[policy])
    world.pod("old", cpu="2", node="s0-n1")
    assert binds_of(world.decide()) == {}
    policy["minSubGroups"] = 1
    world.group("g", min_member=3, subGroupPolicy=[policy])
    assert len(binds_of(world.decide())) == 3


def test_a_job_with_too_few_subgroups_is_not_valid_pl01():
    policy = {**BY_TASK, "minSubGroups": 3}
    plan = add_job(two_racks(), 4, subGroupPolicy=[policy]).decide()
    assert plan.binds == ()
    assert "subGroups" in plan.explanations[0].message


def test_subgroups_are_divided_anew_when_pods_come_and_go_t06():
    world = add_job(two_racks(), 2, subGroupPolicy=[BY_TASK])
    assert sorted(world.job("g").sub_jobs.by_id()) == ["ns/g/part-0", "ns/g/part-1"]
    world.delete(kinds.POD, "ns/g-1")
    assert sorted(world.job("g").sub_jobs.by_id()) == ["ns/g/part-0"]


def test_a_policy_without_keys_leaves_pods_in_the_default_subgroup_t06():
    policy = SubGroupPolicy(name="p")
    assert match_values(policy, {"a": "b"}) == []
    world = add_job(two_racks(), 2, subGroupPolicy=[{"name": "p"}])
    assert list(world.job("g").sub_jobs.by_id()) == ["ns/g"]


def test_long_label_values_are_hashed_into_the_id_of_a_subgroup_t06():
    assert subjob_id("ns/g", "p", ["x" * 64, "y" * 63]) == f"ns/g/p-{'x' * 64}-{'y' * 63}"
    hashed = subjob_id("ns/g", "p", ["x" * 64, "y" * 64])
    assert len(hashed) < 20
    assert hashed == subjob_id("ns/g", "p", ["x" * 64, "y" * 64])


# --- scores ----------------------------------------------------------------------------------


def test_pods_without_topology_fill_hypernodes_that_are_in_use_pl17():
    world = two_racks().pod("old", cpu="1", node="s1-n1")
    assert racks(world.gang("plain", tasks=2).decide()) == ["s1"]


def test_filling_hypernodes_with_plain_pods_can_be_switched_off_pl17():
    off = CONF.replace(
        "{name: network-topology-aware}",
        "{name: network-topology-aware, arguments: {hypernode.binpack.normal-pod.enable: false}}",
    )
    world = two_racks(conf=off).pod("old", cpu="1", node="s1-n1")
    assert racks(world.gang("plain", tasks=2).decide()) == ["s0"]


def test_an_overfull_hypernode_scores_nothing_pl17():
    asked = [
        scores.RequestedResource(1, 2, np.array([0, 3, 0]), np.array([4, 4, 0])),
        scores.RequestedResource(3, 4, np.array([4, 0, 0]), np.array([8, 8, 8])),
    ]
    assert scores.binpacked(asked, 3).tolist() == [(0.5 + 3) / 4, 0.0, 0.0]


def test_weights_of_tiers_fade_from_tier_one_pl17():
    assert scores.tier_weights([1, 2, 3], 0.5) == {1: 1.0, 2: 0.5, 3: 0.25}
    assert scores.tier_weights([1, 2], 0.0) == {1: 1.0, 2: 0.0}
    assert scores.tier_weights([1, 2**31], 0.5).keys() == {1, 2**31}


def test_eviction_looks_at_the_widest_hypernodes_first_and_at_few_pl17():
    levels = [["a", "b", "c"], ["d", "e"]]
    assert scores.cut_for_eviction(levels, 3) == [["d", "e"], ["c"]]
    assert scores.cut_for_eviction(levels, 9) == [["d", "e"], ["a", "b", "c"]]


def test_the_gradient_stays_within_the_widest_hypernode_that_a_job_may_span_pl17():
    world = two_racks()
    session = world.session()
    forest = session.network.forest
    session.close()
    anything = lambda _: True  # noqa: E731
    assert scores.gradient(forest, TOP, 2, "", anything) == [["s0", "s1"], ["s2"]]
    assert scores.gradient(forest, TOP, 1, "s1", anything) == [["s1"]]
    assert scores.gradient(forest, "s0", 2, "s1", anything) == [["s0"]]
    assert scores.gradient(forest, "s0", 1, "s1", anything) == []
    assert scores.gradient(forest, TOP, 0, "s1", anything) == []


def test_a_subgroup_that_failed_is_not_looked_at_again_in_the_session_a02():
    """The other one is placed, task by task beyond its size."""
    policy = {**BY_TASK, "subGroupSize": 2, "networkTopology": HARD}
    world = two_racks().group("g", min_member=2, subGroupPolicy=[policy])
    for number, (part, cpu) in enumerate([("0", "3"), ("0", "3"), ("1", "1"), ("1", "1")]):
        world.pod(f"g-{number}", "g", cpu=cpu, metadata={"labels": {"part": part}})
    assert sorted(binds_of(world.decide())) == ["g-2", "g-3"]


AUTOSCALED = CONF.replace(
    "{name: gang}", "{name: gang}, {name: autoscaling, arguments: {autoscaling.by: pods}}"
)


def test_a_gang_that_no_hypernode_takes_waits_for_nodes_and_is_shown_to_autoscalers_whole():
    plan = add_job(two_racks(conf=AUTOSCALED), 5, networkTopology=HARD).decide()
    assert [each.condition.reason for each in plan.pods] == ["Unschedulable"] * 5


def test_a_gang_whose_hypernodes_form_no_tree_does_not_wait_for_nodes():
    world = hypernode(two_racks(conf=AUTOSCALED), "s3", 2, "s0", kind="HyperNode")
    plan = add_job(world, 5, networkTopology=HARD).decide()
    assert {each.condition.reason for each in plan.pods} == {"NotWaitingForNodes"}
