"""The reservation of a group that does not start is returned after the timeout."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure, run_actions
from services.scheduler.engine.jobs.reservation_timeouts import ReservationTimeouts
from services.scheduler.engine.session.activation import refused_jobs
from services.scheduler.policy.actions.enqueue import inqueue_timeout_s
from shared.api import kinds

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: PLUGIN}]
"""
CONF = 'actions: "enqueue, allocate"' + TIERS
HALF = {"cpu": "6"}


def crowded(plugin: str) -> Cluster:
    """A queue that a group without pods has reserved most of, and one that waits behind it."""
    world = Cluster(CONF.replace("PLUGIN", plugin), queue=False).node("n1", cpu="8")
    world.queue("default", capability={"cpu": "8"}, deserved={"cpu": "8"})
    world.group("gone", min_member=2, minResources=HALF)
    return world.group("next", min_member=2, phase="Pending", minResources=HALF)


@pytest.mark.parametrize("plugin", ["overcommit", "proportion", "capacity"])
def test_a_group_without_pods_gives_back_what_it_reserved(plugin):
    world, reservation_timeouts = crowded(plugin), ReservationTimeouts()
    looks = ((0, 300, "Pending"), (299, 300, "Pending"), (900, 0, "Pending"), (901, 300, "Inqueue"))
    for now, timeout_s, phase in looks:
        reservation_timeouts.review(world.cluster_state.jobs, now=now, timeout_s=timeout_s)
        assert phase_in(world.decide(), "next") == phase, now


def test_the_lease_begins_anew_when_the_pods_have_come_meanwhile():
    world, reservation_timeouts = crowded("overcommit"), ReservationTimeouts()
    assert reservation_timeouts.review(world.cluster_state.jobs, now=0, timeout_s=10) == []
    world.pod("gone-0", "gone", cpu="3").pod("gone-1", "gone", cpu="3")
    assert reservation_timeouts.review(world.cluster_state.jobs, now=9, timeout_s=10) == []
    world.delete(kinds.POD, "ns/gone-0", "uid-ns/gone-0")
    assert reservation_timeouts.review(world.cluster_state.jobs, now=11, timeout_s=10) == []
    assert reservation_timeouts.review(world.cluster_state.jobs, now=21, timeout_s=10) == [
        "ns/gone"
    ]
    assert reservation_timeouts.review(world.cluster_state.jobs, now=22, timeout_s=10) == []


def test_what_was_returned_counts_again_as_soon_as_the_pods_are_there():
    world, reservation_timeouts = crowded("overcommit"), ReservationTimeouts()
    reservation_timeouts.review(world.cluster_state.jobs, now=0, timeout_s=10)
    reservation_timeouts.review(world.cluster_state.jobs, now=10, timeout_s=10)
    assert world.job("gone").reservation_expired
    world.pod("gone-0", "gone", cpu="3").pod("gone-1", "gone", cpu="3")
    reservation_timeouts.review(world.cluster_state.jobs, now=11, timeout_s=10)
    assert not world.job("gone").reservation_expired
    assert phase_in(world.decide(), "next") == "Pending"


GPUS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""


def too_wide() -> Cluster:
    """Two nodes of one GPU; a pod that wants two waits, and a group that wants one behind it."""
    gpu = "nvidia.com/gpu"
    world = Cluster(GPUS)
    for name in ("n1", "n2"):
        world.node(name, cpu="8", **{"nvidia.com/gpu": "1"})
    world.group("wide", min_member=1, minResources={"cpu": "1", gpu: "2"})
    world.pod("wide-0", "wide", cpu="1", requests={gpu: "2"})
    return world.group("small", phase="Pending", min_member=1, minResources={"cpu": "1", gpu: "1"})


def test_a_group_that_no_node_takes_gives_back_what_it_reserved_and_is_told_so():
    world, timeouts = too_wide(), ReservationTimeouts()
    for now, phase in ((0, "Pending"), (299, "Pending"), (300, "Inqueue")):
        timeouts.review(world.cluster_state.jobs, now=now, timeout_s=300)
        plan = world.decide()
        assert phase_in(plan, "small") == phase, now
    said = {e.job: e.message + e.details for e in plan.explanations}
    assert "it never fits as it is" in said["ns/wide"]
    assert "it no longer reserves resources" in said["ns/wide"]


def test_an_unschedulable_group_gives_back_what_it_reserved():
    """Nobody looks at it while nothing changes: its time runs all the same."""
    world, timeouts = too_wide(), ReservationTimeouts()
    jobs = world.cluster_state.jobs
    assert timeouts.review(jobs, now=0, timeout_s=300) == []
    session = world.session()
    run_actions(session, world.config)
    found = refused_jobs(session, at_enqueue=False, at_allocate=True)
    session.close()
    assert [jobs.add_unschedulable(*each, now=0.0) for each in found] == [True]
    assert timeouts.review(jobs, now=299, timeout_s=300) == []
    assert timeouts.review(jobs, now=300, timeout_s=300) == ["ns/wide"]
    assert phase_in(world.decide(), "small") == "Inqueue"


def test_a_group_whose_reservation_was_returned_starts_once_there_is_room():
    world, timeouts = too_wide(), ReservationTimeouts()
    for now in (0, 300):
        timeouts.review(world.cluster_state.jobs, now=now, timeout_s=300)
    world.node("n3", cpu="8", **{"nvidia.com/gpu": "2"})
    assert binds_of(world.decide()) == {"wide-0": "n3"}


def test_another_group_of_the_same_name_has_a_lease_of_its_own():
    world, reservation_timeouts = crowded("overcommit"), ReservationTimeouts()
    reservation_timeouts.review(world.cluster_state.jobs, now=0, timeout_s=10)
    world.group("gone", min_member=2, minResources=HALF, uid="another")
    assert reservation_timeouts.review(world.cluster_state.jobs, now=10, timeout_s=10) == []
    assert reservation_timeouts.review(world.cluster_state.jobs, now=20, timeout_s=10) == [
        "ns/gone"
    ]


def test_a_lapsed_group_is_told_why_it_holds_nothing():
    world, reservation_timeouts = crowded("overcommit"), ReservationTimeouts()
    reservation_timeouts.review(world.cluster_state.jobs, now=0, timeout_s=10)
    reservation_timeouts.review(world.cluster_state.jobs, now=10, timeout_s=10)
    said = {e.job: e.message for e in world.decide().explanations}
    assert said["ns/gone"].startswith("Not enough valid tasks for gang-scheduling")
    assert said["ns/gone"].endswith("it no longer reserves resources")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, 300.0), ("0s", 0.0), (0, 0.0), ("90s", 90.0), ("5m", 300.0), (7, 7)],
)
def test_the_timeout_is_a_duration(value, wanted):
    assert inqueue_timeout_s({} if value is None else {"inqueueTimeout": value}) == wanted


@pytest.mark.parametrize("value", ["soon", "-5s", "-1"])
def test_a_timeout_that_is_none_is_refused_by_name(value):
    conf = CONF.replace("PLUGIN", "drf")
    conf += f'configurations: [{{name: enqueue, arguments: {{inqueueTimeout: "{value}"}}}}]\n'
    with pytest.raises(BadConfig, match=r"action enqueue: inqueueTimeout: .* is no duration"):
        configure(conf)


def test_what_waits_for_another_scheduler_takes_no_share_and_reserves_for_a_while_only():
    """Its pods are not ours before they have a node (CA01), so that its group gets none here."""
    world = Cluster(CONF.replace("PLUGIN", "overcommit}, {name: predicates}, {name: proportion"))
    world.node("n", cpu="4").queue("a").queue("b")
    world.group("theirs", queue="b", min_member=4, minResources={"cpu": "4"})
    world.group("ours", queue="a", min_member=4, phase="Pending", minResources={"cpu": "4"})
    for number in range(4):
        world.pod(f"theirs-{number}", "theirs", cpu="1", scheduler="second")
        world.pod(f"ours-{number}", "ours", cpu="1")
    assert not binds_of(world.decide())
    timeouts = ReservationTimeouts()
    for now in (0, 10):
        timeouts.review(world.cluster_state.jobs, now=now, timeout_s=10)
    assert binds_of(world.decide()) == {f"ours-{number}": "n" for number in range(4)}
