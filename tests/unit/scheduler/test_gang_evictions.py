"""gangpreempt and gangreclaim: bundles go together, for a gang that finds one place (A08, A09)."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure, run_actions
from services.scheduler.policy.actions.gang_evictions import GangOptions
from shared.api import kinds

PLUGINS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: nodeorder}
  - {name: network-topology-aware}
"""
CAPACITY = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: capacity}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
"""⚠ In a later tier capacity would not be asked who may go: the first that names some decides."""


def world(action: str = "gangpreempt", plugins: str = PLUGINS, **arguments) -> Cluster:
    volcano = arguments.pop("volcano", False)
    conf = f'actions: "allocate, {action}"{plugins}volcanoEvictions: {volcano}\n'
    if arguments:
        conf += f"configurations: [{{name: {action}, arguments: {arguments}}}]\n"
    cluster = Cluster(conf.replace("True", "true").replace("False", "false"))
    for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    return cluster


def running(cluster: Cluster, name: str, nodes: list[str], **group) -> Cluster:
    """Add a job of which a pod with 1 CPU runs on each of these nodes."""
    group = {"min_member": 1, "priorityClassName": "low", **group}
    pod = {key: group.pop(key) for key in ("metadata", "cpu") if key in group}
    cluster.group(name, phase="Running", **group)
    for number, node in enumerate(nodes):
        cluster.pod(f"{name}-{number}", name, node=node, **{"cpu": "1", **pod})
    return cluster


def asks(cluster: Cluster, tasks: int, cpu: str, group: dict) -> Cluster:
    """Add the gang that needs room."""
    cluster.group("high", **{"min_member": tasks, "priorityClassName": "high", **group})
    for number in range(tasks):
        cluster.pod(f"high-{number}", "high", cpu=cpu)
    return cluster


def gone(cluster: Cluster) -> list[str]:
    return sorted(e.pod.partition("/")[2] for e in cluster.decide().evictions)


# --- what goes (A08) -----------------------------------------------------------------------------


def test_surplus_goes_as_one_bundle_and_the_gang_stays_a08():
    cluster = running(world(volcano=True).node("n1", cpu="4"), "low", ["n1"] * 4, min_member=2)
    asks(cluster, 1, "1", {})
    # ⚠ both that can be spared, though one would do: bundles are not cut
    assert gone(cluster) == ["low-0", "low-1"]


def test_a_whole_gang_ends_only_when_its_surplus_does_not_suffice_a08():
    cluster = running(world(volcano=True).node("n1", cpu="4"), "low", ["n1"] * 4, min_member=2)
    asks(cluster, 3, "1", {})
    assert gone(cluster) == ["low-0", "low-1", "low-2", "low-3"]


def test_without_allow_whole_bundle_gangs_are_left_alone_k07():
    cluster = running(
        world(allowWholeBundle=False).node("n1", cpu="4"), "low", ["n1"] * 4, min_member=2
    )
    assert gone(asks(cluster, 3, "1", {})) == []
    assert gone(asks(cluster, 2, "1", {"min_member": 2}).delete(kinds.POD, "ns/high-2")) == [
        "low-0",
        "low-1",
    ]


def test_surplus_of_a_more_important_job_goes_before_a_less_important_gang_a08():
    cluster = world().node("n1", cpu="4")
    running(cluster, "low", ["n1"] * 2, min_member=2)
    running(cluster, "mid", ["n1"] * 2, min_member=1, priorityClassName="mid")
    assert gone(asks(cluster, 1, "1", {})) == ["mid-0"]


def test_of_two_gangs_the_less_important_one_ends_a08():
    cluster = world().node("n1", cpu="4")
    running(cluster, "low", ["n1"] * 2, min_member=2)
    running(cluster, "mid", ["n1"] * 2, min_member=2, priorityClassName="mid")
    assert gone(asks(cluster, 2, "1", {})) == ["low-0", "low-1"]


def test_a_job_below_its_minimum_has_nothing_to_lose_a08():
    cluster = running(
        world(allowWholeBundle=False).node("n1", cpu="2"), "low", ["n1"] * 2, min_member=5
    )
    for number in range(2, 5):
        cluster.pod(f"low-{number}", "low", cpu="9")
    assert gone(asks(cluster, 2, "1", {})) == ["low-0", "low-1"]


def test_the_minimum_of_a_role_is_no_surplus_a08():
    cluster = world(allowWholeBundle=False).node("n1", cpu="3")
    cluster.group(
        "low", min_member=2, phase="Running", priorityClassName="low", minTaskMember={"ps": 1}
    )
    cluster.pod("low-0", "low", cpu="1", node="n1", role="ps")
    cluster.pod("low-1", "low", cpu="1", node="n1", role="w")
    cluster.pod("low-2", "low", cpu="1", node="n1", role="w")
    assert gone(asks(cluster, 1, "1", {})) == ["low-1"]


def test_role_minima_do_not_count_when_they_exceed_the_minimum_of_the_job_t03():
    cluster = world(allowWholeBundle=False).node("n1", cpu="2")
    cluster.group(
        "low",
        min_member=1,
        phase="Running",
        priorityClassName="low",
        minTaskMember={"ps": 1, "w": 1},
    )
    cluster.pod("low-0", "low", cpu="1", node="n1", role="ps")
    cluster.pod("low-1", "low", cpu="1", node="n1", role="w")
    assert gone(asks(cluster, 1, "1", {})) == ["low-0"]


def policy(**more):
    return [
        {"name": "part", "subGroupSize": 2, "matchLabelKeys": ["part"], "minSubGroups": 1, **more}
    ]


def test_a_subgroup_above_the_minimum_of_its_policy_goes_as_one_a08():
    cluster = world(allowWholeBundle=False).node("n1", cpu="4")
    cluster.group(
        "low", min_member=1, phase="Running", priorityClassName="low", subGroupPolicy=policy()
    )
    for number in range(4):
        labels = {"part": str(number % 2)}
        cluster.pod(f"low-{number}", "low", cpu="1", node="n1", metadata={"labels": labels})
    # one of the two subgroups may break, and then lose all it has
    assert gone(asks(cluster, 2, "1", {})) == ["low-0", "low-2"]


def test_only_jobs_of_lower_priority_and_the_same_queue_are_taken_from_a08():
    cluster = world().node("n1", cpu="2").queue("other")
    running(cluster, "equal", ["n1"], min_member=0, priorityClassName="high")
    running(cluster, "foreign", ["n1"], min_member=0, queue="other")
    assert gone(asks(cluster, 1, "1", {})) == []


@pytest.mark.parametrize(
    ("said", "goes"), [("", True), ("true", True), ("false", False)], ids=["silent", "yes", "no"]
)
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_podgroup_that_says_nothing_may_be_taken_from_a08(said, goes, where):
    """⚠ Unlike `Preemptable` of T05, whose default is false."""
    cluster = running(world().node("n1", cpu="1"), "low", ["n1"], min_member=0)
    if said:
        meta = {"name": "low", "namespace": "ns", "uid": "uid-ns/low"}
        cluster.put(
            kinds.PODGROUP,
            {
                "metadata": {**meta, where: {"volcano.sh/preemptable": said}},
                "spec": {"minMember": 0, "queue": "default", "priorityClassName": "low"},
                "status": {"phase": "Running"},
            },
        )
    assert gone(asks(cluster, 1, "1", {})) == (["low-0"] if goes else [])


def test_a_gang_is_cleared_for_as_a_whole_or_not_at_all_a08():
    cluster = running(world().node("n1", cpu="3"), "low", ["n1"] * 3, min_member=0)
    plan = asks(cluster, 4, "1", {}).decide()
    assert (plan.evictions, plan.nominations, plan.binds) == ((), (), ())


def test_room_in_sum_is_not_room_for_a_task_a08():
    cluster = world().node("n1", cpu="1").node("n2", cpu="1")
    running(cluster, "low", ["n1", "n2"], min_member=0)
    assert gone(asks(cluster, 1, "2", {})) == []


def test_everybody_in_the_gang_is_nominated_once_somebody_went_ss11():
    cluster = running(world().node("n1", cpu="3"), "low", ["n1"], min_member=0, cpu="3")
    cluster.node("n2", cpu="1")
    plan = asks(cluster, 3, "1", {}).decide()
    assert [e.pod for e in plan.evictions] == ["ns/low-0"]
    assert {e.reason for e in plan.evictions} == {"gangpreempt"}
    assert sorted(n.pod for n in plan.nominations) == ["ns/high-0", "ns/high-1", "ns/high-2"]
    # the free node first, then the cleared one
    assert sorted(n.node for n in plan.nominations) == ["n1", "n1", "n2"]


def test_a_running_job_asks_for_one_subgroup_at_a_time_a08():
    """⚠ It is starving only where gang has no say: its gang is whole (SS07)."""
    plugins = PLUGINS.replace("{name: gang}", "{name: gang, enableJobStarving: false}")
    cluster = world(plugins=plugins).node("n1", cpu="2").node("n2", cpu="2")
    running(cluster, "low", ["n1"] * 2, min_member=0)
    cluster.group(
        "high",
        min_member=2,
        phase="Running",
        priorityClassName="high",
        subGroupPolicy=policy(),
    )
    for number in range(6):
        labels = {"part": str(number // 2)}
        node = "n2" if number < 2 else ""
        cluster.pod(f"high-{number}", "high", cpu="1", node=node, metadata={"labels": labels})
    plan = cluster.decide()
    assert sorted(n.pod for n in plan.nominations) == ["ns/high-2", "ns/high-3"]


# --- where (A08) ---------------------------------------------------------------------------------


def racks(cluster: Cluster, racks_: dict[str, list[str]]) -> Cluster:
    for name, nodes in racks_.items():
        members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
        cluster.put(
            kinds.HYPERNODE,
            {"metadata": {"name": name, "uid": name}, "spec": {"tier": 1, "members": members}},
        )
        for node in nodes:
            cluster.node(node, cpu="2")
    return cluster


NEAR = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


def test_a_gang_with_a_topology_is_cleared_for_in_one_hypernode_a08():
    cluster = racks(world(), {"r1": ["a1", "a2"], "r2": ["b1", "b2"]})
    running(cluster, "low", ["a1", "b1", "b2"], min_member=0, cpu="2")
    running(cluster, "top", ["a2"], min_member=0, cpu="2", priorityClassName="high")
    asks(cluster, 2, "2", NEAR)
    session = cluster.session()
    try:
        run_actions(session, cluster.config)
        assert session.network.nominated == {"ns/high": "r2"}
        assert sorted(e.pod for e in session.evictions) == ["ns/low-1", "ns/low-2"]
    finally:
        session.close()


def test_no_more_hypernodes_are_looked_at_than_max_domains_k07():
    def cleared(most: int) -> list[str]:
        cluster = racks(world(maxDomains=most), {"r1": ["a1"], "r2": ["b1"]})
        running(cluster, "low", ["b1"], min_member=0, cpu="2")
        running(cluster, "top", ["a1"], min_member=0, cpu="2", priorityClassName="high")
        return gone(asks(cluster, 1, "2", NEAR))

    assert cleared(1) == []
    assert cleared(2) == ["low-0"]
    assert cleared(-1) == ["low-0"]  # ⚠ below 1 counts as the default of 8


@pytest.mark.parametrize("action", ["gangpreempt", "gangreclaim"])
@pytest.mark.parametrize(
    "stated", ["maxDomains: many", "allowWholeBundle: perhaps", "spareVictims: often"]
)
def test_a_bad_argument_is_refused_with_its_name_k07(action, stated):
    conf = f'actions: "{action}"\nconfigurations: [{{name: {action}, arguments: {{{stated}}}}}]\n'
    with pytest.raises(BadConfig, match=f"action {action}: {stated.partition(':')[0]}"):
        configure(conf)


def test_arguments_have_volcanos_defaults_k07():
    assert GangOptions.read({}) == GangOptions(domains=8, whole=True, spare=False)


# --- reclaim (A09) -------------------------------------------------------------------------------


def queues(cluster: Cluster, **deserved: str) -> Cluster:
    for name, cpu in deserved.items():
        cluster.queue(name, weight=1, deserved={"cpu": cpu}, reclaimable=True)
    return cluster


def test_a_gang_reclaims_what_another_queue_has_beyond_its_share_a09():
    cluster = queues(world("gangreclaim", CAPACITY).node("n1", cpu="4"), a="2", b="2")
    running(cluster, "low", ["n1"] * 4, min_member=1, queue="b")
    plan = asks(cluster, 2, "1", {"queue": "a"}).decide()
    # both are beyond; neither of those that b deserves
    assert sorted(e.pod for e in plan.evictions) == ["ns/low-0", "ns/low-1"]
    assert {e.reason for e in plan.evictions} == {"gangreclaim"}


def test_priority_protects_nobody_in_another_queue_a09():
    cluster = queues(world("gangreclaim", CAPACITY).node("n1", cpu="4"), a="2", b="2")
    running(cluster, "top", ["n1"] * 4, min_member=1, queue="b", priorityClassName="high")
    assert gone(asks(cluster, 1, "1", {"queue": "a", "priorityClassName": "low"})) == ["top-0"]


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has_a09():
    cluster = queues(world("gangreclaim", CAPACITY).node("n1", cpu="4"), a="2")
    cluster.queue("b", weight=1, deserved={"cpu": "2"}, reclaimable=False)
    running(cluster, "low", ["n1"] * 4, min_member=1, queue="b")
    assert gone(asks(cluster, 2, "1", {"queue": "a"})) == []


def test_a_queue_may_not_reclaim_more_than_it_deserves_a09():
    cluster = queues(world("gangreclaim", CAPACITY).node("n1", cpu="4"), a="1", b="1")
    running(cluster, "low", ["n1"] * 4, min_member=1, queue="b")
    assert gone(asks(cluster, 2, "1", {"queue": "a"})) == []


def test_only_running_tasks_are_reclaimed_but_bound_ones_preempted_too_a09():
    def bound(action: str) -> list[str]:
        cluster = queues(world(action, CAPACITY).node("n1", cpu="1"), a="1", b="0")
        other = "b" if action == "gangreclaim" else "a"
        cluster.group("low", min_member=0, phase="Running", queue=other, priorityClassName="low")
        cluster.pod("low-0", "low", cpu="1", node="n1", phase="Pending")
        return gone(asks(cluster, 1, "1", {"queue": "a"}))

    assert bound("gangpreempt") == ["low-0"]
    assert bound("gangreclaim") == []


# --- ours, and with spareVictims -----------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"volcano": True, "spareVictims": True}])
def test_a_bundle_is_cut_to_what_is_needed(how):
    cluster = world(**how).node("n1", cpu="4")
    running(cluster, "low", ["n1"] * 4, min_member=2)
    plan = asks(cluster, 1, "1", {}).decide()
    assert [e.pod for e in plan.evictions] == ["ns/low-0"]  # the least important
    assert [n.pod for n in plan.nominations] == ["ns/high-0"]


@pytest.mark.parametrize("spare", [False, True])
def test_nobody_goes_for_a_place_that_predicates_refuse(spare):
    cluster = world(volcano=not spare).node("n1", cpu="2")
    running(cluster, "low", ["n1"], min_member=0)
    running(cluster, "top", ["n1"], min_member=0, priorityClassName="high")
    port = [{"containerPort": 80, "hostPort": 80}]
    cluster.pod("top-0", "top", cpu="1", node="n1", ports=port)
    cluster.group("high", priorityClassName="high").pod("high-0", "high", cpu="1", ports=port)
    # ⚠ Volcano does not ask: another eviction could free the port (A08)
    assert gone(cluster) == ([] if spare else ["low-0"])


def test_what_was_cleared_is_taken_once_the_victims_are_gone():
    cluster = running(world().node("n1", cpu="2"), "low", ["n1"] * 2, min_member=0)
    asks(cluster, 2, "1", {})
    plan = cluster.step()
    assert cluster.step().evictions == ()
    for eviction in plan.evictions:
        cluster.delete(kinds.POD, eviction.pod, eviction.uid)
    assert binds_of(cluster.step()) == {"high-0": "n1", "high-1": "n1"}


@pytest.mark.parametrize("spare", [False, True], ids=["Volcano", "spare"])
def test_before_allocate_another_bundle_goes_while_the_first_is_leaving_a08(spare):
    """⚠ Room on its way is counted, but a place is looked for with a bundle in hand only."""
    conf = f'actions: "gangpreempt, allocate"{PLUGINS}'
    conf += f"volcanoEvictions: {not spare}\n"
    cluster = Cluster(conf).node("n1", cpu="2")
    for name, value in (("low", 10), ("high", 1000)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    running(cluster, "low", ["n1"], min_member=0)
    running(cluster, "more", ["n1"], min_member=0)
    asks(cluster, 1, "1", {})
    assert len(cluster.step().evictions) == 1
    assert len(cluster.step().evictions) == (0 if spare else 1)
