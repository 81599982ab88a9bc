"""What the plugins for sharing decide (PL04, PL06, PL11 to PL13, PL16, PL21, PL23)."""

import datetime as dt
import itertools

import numpy as np
import pytest

from pumice.plugins import NodeGroups
from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from services.scheduler.config import BadConfig
from services.scheduler.policy.hierarchical_shares import Tree
from services.scheduler.policy.plugins.nodegroup import admits, score
from services.scheduler.policy.plugins.tdm import is_open
from services.scheduler.policy.states.usage import NodeUsage, UsageTable
from shared.api import kinds

ALL = 'actions: "enqueue, allocate, backfill"\n'
RECLAIM = 'actions: "reclaim"\n'
CAPACITY = "tiers:\n- plugins: [{name: gang, enableReclaimable: false}, {name: capacity}]\n"
TREE = CAPACITY.replace("{name: capacity}", "{name: capacity, enableHierarchy: true}")


def plain(name, **arguments):
    listed = "".join(f"\n      {key}: {value}" for key, value in arguments.items())
    more = f"\n    arguments:{listed}" if arguments else ""
    return (
        f"{ALL}tiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: {name}{more}\n"
    )


# --- capacity --------------------------------------------------------------------------------


def full_queue(tiers=CAPACITY, **queue):
    """One node, full with a queue's pods; another queue deserves half of it."""
    world = Cluster(RECLAIM + tiers, queue=False).node("n1", cpu="4")
    world.queue("root").queue("rich", **queue).queue("poor", deserved={"cpu": "2"})
    world.gang("rich", tasks=4, min_member=1, queue="rich", node="n1")
    return world.gang("poor", tasks=1, queue="poor")


def test_a_queue_takes_back_what_it_deserves_pl06():
    assert list(evictions_of(full_queue(deserved={"cpu": "2"}).decide()).values()) == ["poor-0"]


def test_a_queue_within_what_it_deserves_keeps_its_pods_pl06():
    assert evictions_of(full_queue(deserved={"cpu": "4"}).decide()) == {}


def test_what_is_guaranteed_is_not_taken_pl06():
    guarantee = {"resource": {"cpu": "4"}}
    world = full_queue(deserved={"memory": "1Gi"}, guarantee=guarantee)
    assert evictions_of(world.decide()) == {}


def test_a_queue_that_deserves_nothing_gives_first_pl06():
    assert len(evictions_of(full_queue().decide())) == 1


def test_a_queue_beyond_what_it_deserves_still_takes_what_is_free_pl06():
    world = Cluster(ALL + CAPACITY, queue=False).node("n1", cpu="4")
    world.queue("q", deserved={"cpu": "1"}).gang("g", tasks=4, queue="q")
    assert len(binds_of(world.decide())) == 4


def test_a_queue_that_deserves_nothing_has_a_share_of_one_pl06():
    world = full_queue(deserved={"cpu": "4"}).queue("none").gang("n", tasks=1, queue="none")
    session = world.session()
    ranks = {name: session.hooks.queue_order(session.queue(name)) for name in ("rich", "none")}
    assert ranks["rich"][0][1:] == (1.0, False)
    assert ranks["none"][0][1:] == (1.0, True)
    session.close()


@pytest.mark.parametrize(("limit", "placed"), [("3", 3), ("9", 4)])
def test_limits_hold_on_every_level_pl06(limit, placed):
    world = Cluster(ALL + TREE, queue=False).node("n1", cpu="4")
    world.queue("root").queue("parent", capability={"cpu": limit}).queue("leaf", parent="parent")
    world.gang("g", tasks=5, min_member=1, queue="leaf")
    assert len(binds_of(world.decide())) == placed


@pytest.mark.parametrize(
    "queues",
    [
        {"leaf": ""},
        {"root": "", "leaf": "nobody"},
        {"root": "", "leaf": "other", "other": "leaf"},
        {"root": "", "leaf": "", "below": "leaf"},
    ],
    ids=["no root", "unknown parent", "ring", "jobs above a leaf"],
)
def test_nothing_is_decided_in_a_tree_that_is_not_sound_pl06(queues):
    world = Cluster(ALL + TREE, queue=False).node("n1")
    for name, parent in queues.items():
        world.queue(name, parent=parent) if parent else world.queue(name)
    world.gang("g", tasks=1, queue="leaf", phase="Pending", minResources={"cpu": "1"})
    assert phase_in(world.decide(), "g") in {None, "Pending"}
    assert binds_of(world.decide()) == {}


def test_an_ancestor_takes_back_for_a_queue_that_has_enough_pl06():
    level = "{name: capacity, enableHierarchy: true, arguments: {ancestorReclaimLevel: 1}}"
    for tiers, evicted in ((TREE, 0), (CAPACITY.replace("{name: capacity}", level), 1)):
        world = Cluster(RECLAIM + tiers, queue=False).node("n1", cpu="4").queue("root")
        world.queue("here", deserved={"cpu": "4"}).queue("there", deserved={"cpu": "1"})
        world.queue("preemptor", parent="here", deserved={"memory": "1Gi"})
        world.queue("giver", parent="there", deserved={"cpu": "1"})
        world.gang("g", tasks=4, min_member=1, queue="giver", node="n1")
        world.gang("t", tasks=1, queue="preemptor")
        assert len(evictions_of(world.decide())) == evicted


# --- drf with a hierarchy --------------------------------------------------------------------


def test_branches_share_by_weight_and_unused_parts_go_to_siblings_pl04():
    tree = Tree(np.array([10, 10, 0], dtype=np.int64))
    ask = np.array([10, 10, 0], dtype=np.int64)
    tree.admit(("root", "a"), [1, 1], "a1", ask)
    tree.admit(("root", "b"), [1, 3], "b1", ask)
    tree.hold(("root", "a"), "a1", np.array([2, 0, 0]))
    tree.hold(("root", "b"), "b1", np.array([0, 3, 0]))
    assert tree.compare(("root", "b"), ("root", "a")) < 0  # 0.3 / 3 is less than 0.2 / 1
    tree.hold(("root", "b"), "b1", np.array([0, 6, 0]))
    assert tree.compare(("root", "a"), ("root", "b")) < 0


def test_shares_kept_up_equal_those_from_scratch_pl04():
    steps = list(itertools.product(range(3), range(1, 3)))
    total = np.array([9, 12, 5], dtype=np.int64)
    kept = Tree(total)
    held = {}
    paths = [("root", "a", "x"), ("root", "a", "y"), ("root", "b")]
    for number, path in enumerate(paths):
        kept.admit(path, [1, 2, 1], f"j{number}", np.array([4, 6, 2]))
    for number, amount in steps:
        more = np.array([amount, amount * number, 1], dtype=np.int64)
        kept.hold(paths[number], f"j{number}", more)
        held[number] = held.get(number, 0) + more
        fresh = Tree(total)
        for at, path in enumerate(paths):
            fresh.admit(path, [1, 2, 1], f"j{at}", np.array([4, 6, 2]))
            fresh.hold(path, f"j{at}", held.get(at, np.zeros(3, np.int64)))
        for left, right in itertools.permutations(paths, 2):
            assert kept.compare(left, right) == fresh.compare(left, right)


def test_a_path_of_two_thousand_levels_has_a_share_pl04():
    tree = Tree(np.array([10, 10, 0], dtype=np.int64))
    deep = ("root", *(f"level-{number}" for number in range(2_000)))
    tree.admit(deep, [], "deep", np.array([10, 10, 0]))
    tree.admit(("root", "b"), [], "b1", np.array([10, 10, 0]))
    tree.hold(deep, "deep", np.array([2, 0, 0]))
    assert tree.compare(("root", "b"), deep) < 0


def test_a_chain_of_two_thousand_queues_is_scheduled_by_pl06():
    world = Cluster(ALL + TREE, queue=False).node("n1", cpu="4").queue("root")
    parent = "root"
    for number in range(2_000):
        world.queue(f"q{number}", parent=parent)
        parent = f"q{number}"
    world.gang("g", tasks=2, queue=parent)
    assert binds_of(world.decide()) == {"g-0": "n1", "g-1": "n1"}


# --- sla and resourcequota -------------------------------------------------------------------


def test_a_job_whose_time_has_come_is_let_in_pl11():
    conf = ALL + "tiers:\n- plugins: [{name: sla}]\n- plugins: [{name: overcommit}]\n"
    world = Cluster(conf).node("n1", cpu="1")
    world.group("g", phase="Pending", minResources={"cpu": "9"}, created="1970-01-01T00:00:00Z")
    job = world.job("g")
    for waiting, vote in (("1h", -1), ("1s", 1)):
        job.annotations = {"volcano.sh/sla-waiting-time": waiting}
        session = world.session(now=60.0)
        assert session.hooks.job_enqueueable(job).vote == vote
        session.close()


@pytest.mark.parametrize(
    ("volcano", "queue", "phase"),
    [
        ("false", "owner", "Inqueue"),
        ("true", "owner", "Pending"),
        ("false", "borrower", "Pending"),
    ],
)
def test_a_large_group_keeps_no_more_from_others_than_its_queue_deserves_pl10(
    volcano, queue, phase
):
    """It would start on the whole cluster only; a second one of its queue waits behind it."""
    conf = f'volcanoEvictions: {volcano}\nactions: "enqueue"\n'
    world = Cluster(f"{conf}tiers:\n- plugins: [{{name: overcommit}}]\n", queue=False)
    world.node("n1", cpu="16")
    world.queue("borrower", deserved={"cpu": "4"}).queue("owner", deserved={"cpu": "12"})
    world.group("large", queue="borrower", phase="Inqueue", minResources={"cpu": "16"})
    world.group("next", queue=queue, phase="Pending", minResources={"cpu": "8"})
    assert phase_in(world.decide(), "next") == phase


@pytest.mark.parametrize(
    ("hard", "used", "admitted"),
    [
        ({"cpu": "2"}, {}, 1),
        ({"cpu": "4"}, {}, 2),
        ({"cpu": "4"}, {"cpu": "500m"}, 1),
        ({"requests.cpu": "1"}, {}, 2),
    ],
)
def test_jobs_enter_within_the_quota_of_their_namespace_pl12(hard, used, admitted):
    conf = 'actions: "enqueue"\ntiers:\n- plugins: [{name: resourcequota}]\n'
    world = Cluster(conf).node("n1")
    meta = {"name": "quota", "namespace": "ns", "uid": "q"}
    world.put(kinds.RESOURCEQUOTA, {"metadata": meta, "status": {"hard": hard, "used": used}})
    for name in ("a", "b"):
        world.group(name, phase="Pending", minResources={"cpu": "2"})
    plan = world.decide()
    assert sum(phase_in(plan, name) == "Inqueue" for name in ("a", "b")) == admitted
    world.delete(kinds.RESOURCEQUOTA, "ns/quota", "q")
    plan = world.decide()
    assert [phase_in(plan, name) for name in ("a", "b")] == ["Inqueue", "Inqueue"]


# --- nodegroup -------------------------------------------------------------------------------


def grouped(limits="", **affinity):
    terms = {f"{key}DuringSchedulingIgnoredDuringExecution": v for key, v in affinity.items()}
    world = Cluster(plain("nodegroup"), queue=False)
    for name in ("a", "b"):
        world.node(f"{name}1", labels={"volcano.sh/nodegroup-name": name}).node("bare")
    annotations = {"volcano.sh/nodegroup-resource-limits": limits} if limits else {}
    spec = {"affinity": {"nodeGroupAffinity": terms}} if affinity else {}
    return world.put(
        kinds.QUEUE,
        {
            "metadata": {"name": "default", "uid": "q", "annotations": annotations},
            "spec": spec,
            "status": {"state": "Open"},
        },
    )


def test_a_queue_keeps_to_its_groups_pl13():
    world = grouped(required=["b"]).gang("g", tasks=3)
    assert set(binds_of(world.decide()).values()) == {"b1"}


def test_a_queue_without_affinity_stays_off_groups_pl13():
    assert binds_of(grouped().gang("g", tasks=1).decide()) == {}


def test_a_queue_may_use_so_much_of_a_group_pl13():
    world = grouped('{"b": {"cpu": "2"}}', required=["a", "b"], preferred=["b"])
    world.gang("g", tasks=5, min_member=1)
    assert sorted(binds_of(world.decide()).values()) == ["a1", "a1", "a1", "b1", "b1"]


def test_limits_that_cannot_be_read_refuse_all_nodes_pl13():
    world = grouped("many", required=["b"]).gang("g", tasks=1)
    plan = world.decide()
    assert binds_of(plan) == {}
    assert "node group resource limit invalid" in plan.explanations[0].message


def test_wishes_come_after_requirements_and_dislikes_before_both_pl13():
    affinity = NodeGroups(required=("r",), preferred=("p", "q"), never=("p",), rather_not=("q",))
    assert [admits(affinity, group) for group in "rpqx"] == [True, False, True, False]
    scores = [score(affinity, group, in_order=True) for group in "rpqx"]
    assert scores == [100.0, 50.0, -1.0, 0.0]


# --- tdm -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "clock", "expected"),
    [
        ("08:00-18:00", 12, True),
        ("08:00-18:00", 18, True),
        ("08:00-18:00", 7, False),
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5, False),
        ("0:00-0:00", 3, True),
        ("8-18", 12, False),
        ("25:00-26:00", 12, False),
    ],
)
def test_zones_are_open_at_their_hours_pl16(hours, clock, expected):
    assert is_open(hours, dt.datetime(2024, 10, 4, clock, tzinfo=dt.UTC)) is expected


def lent(hours, *, agreed=False, node="", time_zone="UTC"):
    arguments = {"tdm.revocable-zone.z": hours, "tdm.time-zone": time_zone}
    conf = plain("tdm", **arguments).replace("backfill", "backfill, shuffle")
    world = Cluster(conf).node("lent", labels={"volcano.sh/revocable-zone": "z"})
    world.group("g", min_member=4)
    for number in range(4):
        annotations = {"volcano.sh/revocable-zone": "*"} if agreed else {}
        world.pod(f"g-{number}", "g", cpu="1", node=node, metadata={"annotations": annotations})
    return world


def test_lent_nodes_take_pods_that_agreed_while_they_are_lent_pl16():
    assert binds_of(lent("0:00-0:00").decide()) == {}
    assert len(binds_of(lent("0:00-0:00", agreed=True).decide())) == 4
    assert binds_of(lent("5:00-6:00", agreed=True).decide()) == {}


def test_the_hours_of_a_zone_are_those_of_the_time_zone_that_the_user_names_pl16():
    for time_zone, placed in (("''", 0), ("UTC", 0), ("Asia/Tokyo", 4), ("America/New_York", 0)):
        world = lent("8:00-18:00", agreed=True, time_zone=time_zone)
        assert len(binds_of(world.decide())) == placed, time_zone


@pytest.mark.parametrize(("day", "placed"), [("2024-07-01", 4), ("2024-12-01", 0)])
def test_hours_follow_the_clock_into_summer_time_pl16(day, placed):
    world = lent("8:00-18:00", agreed=True, time_zone="Europe/Berlin")
    half_past_six = dt.datetime.fromisoformat(f"{day}T06:30:00+00:00").timestamp()
    assert len(binds_of(world.decide(now=half_past_six))) == placed


def test_a_time_zone_that_there_is_not_is_refused_by_name_pl16():
    with pytest.raises(BadConfig, match=r"tdm\.time-zone: unknown time zone 'Berlin'"):
        lent("8:00-18:00", time_zone="Berlin")


def test_pods_leave_lent_nodes_within_their_budget_pl16():
    world = lent("5:00-6:00", node="lent")
    assert len(evictions_of(world.decide())) == 1
    assert evictions_of(world.decide()) == {}  # once per period
    world = lent("5:00-6:00", node="lent")
    world.job("g").annotations = {"volcano.sh/jdb-max-unavailable": "50%"}
    assert len(evictions_of(world.decide())) == 2


# --- usage and resource-strategy-fit -----------------------------------------------------------


def test_loaded_nodes_are_spared_and_old_samples_say_nothing_pl21():
    world = Cluster(plain("usage")).node("busy").node("idle").gang("g", tasks=1)
    world.cluster_state.store(UsageTable).put("busy", NodeUsage(90.0, 10.0, 0.0))
    world.cluster_state.store(UsageTable).put("idle", NodeUsage(20.0, 10.0, 0.0))
    assert binds_of(world.decide()) == {"g-0": "idle"}
    world.node("idle", cpu="0")
    assert binds_of(world.decide()) == {}
    world.cluster_state.store(UsageTable).put("busy", NodeUsage(90.0, 10.0, -301.0))
    assert binds_of(world.decide()) == {"g-0": "busy"}


def test_pods_of_this_round_count_as_load_pl21():
    world = Cluster(plain("usage")).node("a").node("b").gang("g", tasks=4, cpu="2")
    for name in ("a", "b"):
        world.cluster_state.store(UsageTable).put(name, NodeUsage(0.0, 0.0, 0.0))
    assert sorted(binds_of(world.decide()).values()) == ["a", "a", "b", "b"]


def test_a_pod_may_state_its_own_strategy_pl23():
    for kind, node in (("MostAllocated", "used"), ("LeastAllocated", "free")):
        world = Cluster(plain("resource-strategy-fit")).node("used").node("free")
        world.pod("old", node="used", cpu="4", scheduler="other")
        annotations = {
            "volcano.sh/resource-strategy-scoring-type": kind,
            "volcano.sh/resource-strategy-weight": '{"cpu": 1}',
        }
        world.gang("g", tasks=1, metadata={"annotations": annotations})
        assert binds_of(world.decide()) == {"g-0": node}


def test_pods_stay_off_scarce_resources_that_they_do_not_need_pl23():
    arguments = {
        "resourceStrategyFitWeight": 0,
        "sra": "{enable: true, resources: example.com/gpu, weight: 1}",
    }
    world = Cluster(plain("resource-strategy-fit", **arguments))
    world.node("a", **{"example.com/gpu": "4"}).node("b").gang("g", tasks=1)
    assert binds_of(world.decide()) == {"g-0": "b"}


def test_cpu_is_kept_for_the_scarce_resources_of_a_node_pl23():
    proportional = (
        "{enable: true, resources: example.com/gpu, "
        "resourceProportion: {example.com/gpu.cpu: 4, example.com/gpu.memory: 1}}"
    )
    conf = plain("resource-strategy-fit", proportional=proportional)
    world = Cluster(conf).node("a", cpu="10", **{"example.com/gpu": "2"})
    world.gang("g", tasks=5, min_member=1)
    assert len(binds_of(world.decide())) == 2


def test_a_branch_takes_back_from_one_that_holds_more_for_its_weight_pl04():
    conf = (
        "tiers:\n- plugins: [{name: gang, enableReclaimable: false}]\n"
        "- plugins: [{name: drf, enableHierarchy: true}]\n"
    )
    for weight, evicted in ((1, 1), (9, 0)):
        world = Cluster(RECLAIM + conf, queue=False).node("n1", cpu="4")
        for name, own in (("rich", weight), ("poor", 1)):
            annotations = {
                "volcano.sh/hierarchy": f"root/{name}",
                "volcano.sh/hierarchy-weights": f"1/{own}",
            }
            meta = {"name": name, "uid": name, "annotations": annotations}
            world.put(kinds.QUEUE, {"metadata": meta, "spec": {}, "status": {"state": "Open"}})
        world.gang("rich", tasks=4, min_member=1, queue="rich", node="n1")
        world.gang("poor", tasks=2, min_member=1, queue="poor")
        assert len(evictions_of(world.decide())) == evicted
