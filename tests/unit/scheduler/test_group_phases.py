"""The phase of a PodGroup follows from its tasks (SS04)."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from services.scheduler.engine.status.statuses import phase_of


@pytest.mark.parametrize(
    ("minimum", "pods", "phase", "expected"),
    [
        pytest.param(1, {"a": "Running"}, "Inqueue", "Running", id="enough run"),
        pytest.param(2, {"a": "Running"}, "Running", "Pending", id="below its minimum"),
        pytest.param(2, {"a": "Running"}, "Inqueue", "Inqueue", id="inqueue stays"),
        pytest.param(2, {"a": "Succeeded", "b": "Failed"}, "Running", "Completed", id="all over"),
        pytest.param(2, {"a": "Running", "b": "Succeeded"}, "Running", "Running", id="one is over"),
        pytest.param(0, {}, "Inqueue", "Completed", id="nothing asked, nothing there"),
    ],
)
def test_the_phase_follows_from_the_tasks_ss04(minimum, pods, phase, expected):
    world = Cluster().node("n1").group("g", min_member=minimum, phase=phase)
    for name, state in pods.items():
        world.pod(name, "g", cpu="1", node="n1", phase=state)
    assert phase_of(world.job("g"), unschedulable=False) == expected


def test_a_group_is_not_completed_while_a_pod_of_it_waits():
    """volcano#5871: pods come one after the other, and the next one has no node."""
    world = Cluster().node("n1", cpu="0").group("serial", phase="Running")
    world.pod("first", "serial", cpu="1", node="n1", phase="Succeeded")
    world.pod("second", "serial", cpu="1")
    plan = world.decide()
    assert phase_in(plan, "serial") == "Inqueue"
    (status,) = plan.podgroups
    assert "insufficient cpu" in "".join(each.message for each in status.conditions)
    assert [pod.key for pod in plan.pods] == ["ns/second"]
    assert binds_of(world.node("n1", cpu="1").decide()) == {"second": "n1"}


def test_a_leaving_task_still_counts_for_the_phase_ss04():
    world = Cluster().node("n1").group("g").pod("a", "g", cpu="1", node="n1", deleting=True)
    assert phase_of(world.job("g"), unschedulable=False) == "Running"


def test_a_running_group_that_cannot_be_completed_is_unknown_ss04():
    world = Cluster().node("n1", cpu="1").group("g", min_member=2, phase="Running")
    world.pod("a", "g", cpu="1", node="n1").pod("b", "g", cpu="1")
    assert phase_in(world.decide(), "g") == "Unknown"
