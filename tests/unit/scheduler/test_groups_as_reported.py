"""Gangs that users of Volcano have reported as stuck or misjudged, with the right decisions."""

from pumice.testing import Cluster, binds_of
from shared.api import kinds


def test_a_role_that_replaces_another_one_is_placed_by_the_minimum_of_now():
    """Reported as volcano#4802: the minimum of the role that had gone was remembered."""
    world = Cluster().queue("default").node("n1", cpu="9")
    world.group("serving", min_member=4, minTaskMember={"prefill": 2, "decode": 2})
    for number in range(2):
        world.pod(f"prefill-{number}", "serving", cpu="1", role="prefill", node="n1")
        world.pod(f"decode-{number}", "serving", cpu="1", role="decode", node="n1")
    world.cluster_state.assume_statuses(world.decide())
    for number in range(2):
        world.delete(kinds.POD, f"ns/prefill-{number}")
    world.group("serving", min_member=2, phase="Running", minTaskMember={"decode": 2})
    world.cluster_state.assume_statuses(world.decide())
    world.group("serving", min_member=4, phase="Running", minTaskMember={"decode": 2, "router": 2})
    for number in range(2):
        world.pod(f"router-{number}", "serving", cpu="1", role="router")
    assert set(binds_of(world.decide())) == {"router-0", "router-1"}


def test_pods_without_a_role_that_ask_for_different_things_are_placed_each_where_it_fits():
    """Reported as kuberay#1752: what one could not use was not tried for the others."""
    world = Cluster().queue("default")
    world.node("cpus", cpu="8", labels={"role": "cpu"})
    world.node("gpus", cpu="2", labels={"role": "gpu"})
    world.group("mixed", min_member=3)
    world.pod("head", "mixed", cpu="1", nodeSelector={"role": "cpu"})
    world.pod("gpu", "mixed", cpu="1", nodeSelector={"role": "gpu"})
    world.pod("big", "mixed", cpu="6", nodeSelector={"role": "cpu"})
    assert binds_of(world.decide()) == {"head": "cpus", "gpu": "gpus", "big": "cpus"}


def test_a_gang_whose_last_pod_was_not_made_says_so_and_not_that_resources_lack():
    """Reported as mpi-operator#608: the launcher is made when the workers are ready."""
    world = Cluster().queue("default").node("n1", cpu="9").group("mpi", min_member=3)
    world.pod("worker-0", "mpi", cpu="1").pod("worker-1", "mpi", cpu="1")
    plan = world.decide()
    assert binds_of(plan) == {}
    (why,) = plan.explanations
    assert why.gate == "gang"
    assert why.message == "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
