"""A pod that has succeeded never runs again, whatever becomes of it, unless it is restarted."""

import msgspec
import pytest

from services.controller.job.completed_indexes import recorded, with_marks
from shared.api.batch import Job, JobPhase
from tests.support.structs import job
from tests.unit.controller.world import Cluster, Controller, running, task


def lose(cluster: Cluster, *names: str) -> None:
    """Let pods vanish, as with their node."""
    for name in names:
        del cluster.pods[name]


def test_a_pod_that_has_succeeded_is_not_made_again_when_it_is_lost() -> None:
    cluster, controller = running(task("a", 3))
    cluster.change_pod("train-a-1", "Succeeded")
    controller.settle()
    lose(cluster, "train-a-1")
    status = controller.settle()
    assert sorted(cluster.pods) == ["train-a-0", "train-a-2"]
    assert (status.running, status.succeeded) == (2, 1)
    assert status.task_status_count["a"].phase == {"Running": 2, "Succeeded": 1}
    for name in list(cluster.pods):
        cluster.change_pod(name, "Succeeded")
    done = controller.settle()
    assert done.state.phase == JobPhase.COMPLETED
    assert done.succeeded == 3
    assert done.controlled_resources == {"succeeded-a": "1"}, "the others speak for themselves"


def test_a_new_process_knows_what_had_succeeded_before_it() -> None:
    cluster, controller = running(task("a", 4))
    for index in (0, 1, 3):
        cluster.change_pod(f"train-a-{index}", "Succeeded")
    assert controller.settle().controlled_resources == {"succeeded-a": "0-1,3"}
    lose(cluster, "train-a-0", "train-a-3")
    status = Controller(cluster).settle()
    assert sorted(cluster.pods) == ["train-a-1", "train-a-2"]
    assert (status.running, status.succeeded, status.retry_count) == (1, 3, 0)


def test_what_is_lost_before_it_is_written_down_is_remembered() -> None:
    cluster, controller = running(task("a", 2))
    cluster.change_pod("train-a-0", "Succeeded")
    controller.hear()
    lose(cluster, "train-a-0")
    status = controller.settle()
    assert sorted(cluster.pods) == ["train-a-1"]
    assert status.controlled_resources == {"succeeded-a": "0"}


def test_the_loss_of_a_finished_pod_is_no_eviction_j08() -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    cluster, controller = running(task("a", 2), policies=policies)
    cluster.change_pod("train-a-0", "Succeeded")
    controller.settle()
    lose(cluster, "train-a-0")
    assert controller.settle().retry_count == 0
    lose(cluster, "train-a-1")
    assert controller.settle().retry_count == 1


def test_a_pod_that_failed_is_made_again_when_it_is_lost() -> None:
    """A pod of a lost node is declared failed before it goes."""
    cluster, controller = running(task("a", 2))
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    controller.settle()
    lose(cluster, "train-a-0")
    controller.settle()
    assert sorted(cluster.pods) == ["train-a-0", "train-a-1"]


@pytest.mark.parametrize(
    ("action", "again"),
    [("RestartJob", [0, 1, 2]), ("RestartTask", [0, 1, 2]), ("RestartPod", [0, 2])],
)
def test_a_restart_strikes_out_what_it_restarts(action: str, again: list[int]) -> None:
    policies = [{"event": "PodFailed", "action": action}]
    cluster, controller = running(task("a", 3, policies=policies), task("b", 1))
    cluster.change_pod("train-b-0", "Succeeded")
    cluster.change_pod("train-a-1", "Succeeded")
    controller.settle()
    lose(cluster, "train-a-1", "train-b-0")
    controller.settle()
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    controller.settle()
    made = {name for name in cluster.pods if name.startswith("train-a")}
    assert made == {f"train-a-{index}" for index in again}
    assert ("train-b-0" in cluster.pods) is (action == "RestartJob")


def test_a_task_is_complete_when_the_lost_had_succeeded_j07() -> None:
    policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    cluster, controller = running(task("a", 2, policies=policies), task("b", 1))
    cluster.change_pod("train-a-0", "Succeeded")
    controller.settle()
    lose(cluster, "train-a-0")
    controller.settle()
    cluster.change_pod("train-a-1", "Succeeded")
    assert controller.settle().state.phase == JobPhase.COMPLETED


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("0-2,5", {0, 1, 2, 5}), ("7", set()), ("x,1", {1}), ("4-99999999999", {4, 5})],
)
def test_what_is_written_down_is_read_again_and_nonsense_is_not(
    text: str, indexes: set[int]
) -> None:
    said = job(task("a", 6))
    cluster = Cluster(said, group_phase=None)
    cluster.job = with_resources(cluster, {"succeeded-a": text})
    assert recorded(cluster.job) == {"a": indexes}
    again = with_marks({"plugin-svc": "svc"}, cluster.job, recorded(cluster.job), None)
    assert recorded(with_resources(cluster, again)).get("a", set()) == indexes


def with_resources(cluster: Cluster, resources: dict[str, str]) -> Job:

    status = msgspec.structs.replace(cluster.job.status, controlled_resources=resources)
    return msgspec.structs.replace(cluster.job, status=status)


@pytest.mark.parametrize("new_process", [False, True])
def test_what_a_job_has_come_to_stays_when_its_pods_are_cleared_away(new_process: bool) -> None:
    cluster, controller = running(task("a", 4))
    for name in list(cluster.pods):
        cluster.change_pod(name, "Failed" if name.endswith("3") else "Succeeded")
    done = controller.settle()
    assert (done.state.phase, done.succeeded, done.failed) == (JobPhase.FAILED, 3, 1)
    lose(cluster, "train-a-0", "train-a-1", "train-a-3")
    if new_process:
        controller = Controller(cluster)
    status = controller.settle()
    assert (status.succeeded, status.failed) == (3, 1)
    assert status.task_status_count["a"].phase == {"Failed": 1, "Succeeded": 3}
    assert list(cluster.pods) == ["train-a-2"]
