"""No phase of a job is skipped, however much has happened between two looks (J15, J16, J26)."""

import pytest

from tests.unit.controller.world import Cluster, started, task


def phases(cluster: Cluster) -> list[str]:
    """Return the phases that the job has been in, in order of the last time each was entered."""
    return [condition.status for condition in cluster.job.status.conditions]


@pytest.mark.parametrize(
    ("action", "course"),
    [
        ("RestartJob", ["Running", "Restarting", "Pending"]),
        ("RestartTask", ["Running", "Restarting", "Pending"]),
        ("AbortJob", ["Pending", "Running", "Aborting", "Aborted"]),
        ("TerminateJob", ["Pending", "Running", "Terminating", "Terminated"]),
        ("CompleteJob", ["Pending", "Running", "Completing", "Completed"]),
    ],
)
def test_a_job_that_began_and_failed_between_two_looks_was_running(
    action: str, course: list[str]
) -> None:
    cluster, controller = started(task("a", 2), policies=[{"event": "PodFailed", "action": action}])
    cluster.run_all()
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    status = controller.settle()
    assert phases(cluster) == course
    assert status.retry_count == int(action.startswith("Restart"))


def test_an_order_to_a_job_that_has_just_begun_finds_it_running() -> None:
    cluster, controller = started(task("a", 1))
    cluster.run_all()
    cluster.command("AbortJob")
    controller.settle()
    assert phases(cluster) == ["Pending", "Running", "Aborting", "Aborted"]
    assert not cluster.commands


def test_a_job_that_has_not_begun_is_restarted_from_where_it_is() -> None:
    cluster, controller = started(
        task("a", 2), policies=[{"event": "PodFailed", "action": "RestartJob"}]
    )
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    controller.settle()
    assert phases(cluster) == ["Restarting", "Pending"]


def test_a_job_of_nothing_is_pending_before_it_runs() -> None:
    cluster, _ = started(task("a", 0))
    assert phases(cluster) == ["Pending", "Running"]
