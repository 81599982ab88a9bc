"""What a restart of a part, and a resume, begin anew and what they leave (J16, J19, J21, J22)."""

from typing import Any

from shared.api.batch import JobPhase
from tests.unit.controller.world import Controller, running, task


def on(event: str, action: str) -> dict[str, Any]:
    return {"event": event, "action": action}


def test_only_the_failed_pod_is_replaced_by_restart_pod() -> None:
    cluster, controller = running(task("a", 2), policies=[on("PodFailed", "RestartPod")])
    other = cluster.pods["train-a-1"].metadata.uid
    failed = cluster.pods["train-a-0"].metadata.uid
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    status = controller.settle()
    assert (status.version, status.retry_count) == (0, 1)
    assert cluster.pods["train-a-1"].metadata.uid == other
    assert cluster.pods["train-a-0"].metadata.uid != failed


def test_a_task_is_replaced_whole_by_restart_task() -> None:
    cluster, controller = running(
        task("ps", 1), task("worker", 2, policies=[on("PodFailed", "RestartTask")])
    )
    before = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    cluster.change_pod("train-worker-0", "Failed", exit_code=1)
    status = controller.settle()
    after = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    assert before["train-ps-0"] == after["train-ps-0"]
    assert before["train-worker-0"] != after["train-worker-0"]
    assert before["train-worker-1"] != after["train-worker-1"]
    assert status.retry_count == 1


def test_only_the_partition_of_a_failed_pod_is_replaced_by_restart_partition() -> None:
    whole = {"totalPartitions": 2, "partitionSize": 2}
    restart = [on("PodFailed", "RestartPartition")]
    cluster, controller = running(
        task("a", 4, partitionPolicy=whole, policies=restart),
        task("b", 2, partitionPolicy={"totalPartitions": 1, "partitionSize": 2}),
    )
    before = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    cluster.change_pod("train-a-1", "Failed", exit_code=1)
    status = controller.settle()
    after = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    assert {n for n in before if before[n] != after[n]} == {"train-a-0", "train-a-1"}
    assert (status.version, status.retry_count) == (0, 1)


def test_a_restart_of_a_partition_that_is_not_there_does_nothing() -> None:
    cluster, controller = running(task("a", 2), policies=[on("PodFailed", "RestartPartition")])
    before = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    cluster.change_pod("train-a-1", "Failed", exit_code=1)
    status = controller.settle()
    assert (status.state.phase, status.version, status.retry_count) == (JobPhase.RUNNING, 0, 0)
    assert {name: pod.metadata.uid for name, pod in cluster.pods.items()} == before


def test_a_resumed_job_goes_on_where_it_was_stopped_j19() -> None:
    """What succeeded stays, there or gone; what failed or was stopped is made again."""
    cluster, controller = running(task("a", 4), minAvailable=1)
    cluster.change_pod("train-a-0", "Succeeded")
    cluster.change_pod("train-a-1", "Succeeded")
    cluster.change_pod("train-a-2", "Failed", exit_code=1)
    controller.settle()
    del cluster.pods["train-a-1"]
    controller.settle()
    before = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    cluster.command("AbortJob")
    assert controller.settle().state.phase == JobPhase.ABORTED
    assert sorted(cluster.pods) == ["train-a-0", "train-a-2"]
    cluster.command("ResumeJob", "again")
    Controller(cluster).settle()
    after = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    assert sorted(after) == ["train-a-0", "train-a-2", "train-a-3"]
    assert after["train-a-0"] == before["train-a-0"]
    assert after["train-a-2"] != before["train-a-2"]
    assert cluster.job.status.succeeded == 2
    successor = Controller(cluster)
    for name in ("train-a-2", "train-a-3"):
        cluster.change_pod(name, "Succeeded")
    status = successor.settle()
    assert (status.state.phase, status.succeeded) == (JobPhase.COMPLETED, 4)


def test_a_restart_after_a_resume_begins_from_nothing_j19_j21() -> None:
    cluster, controller = running(task("a", 2), minAvailable=1, maxRetry=9)
    cluster.change_pod("train-a-0", "Succeeded")
    controller.settle()
    for name, action in (("stop", "AbortJob"), ("go", "ResumeJob"), ("anew", "RestartJob")):
        before = {pod.metadata.uid for pod in cluster.pods.values()}
        cluster.command(action, name)
        controller.settle()
        cluster.run_all()
        controller.settle()
    assert {pod.status.phase for pod in cluster.pods.values()} == {"Running"}
    assert not before & {pod.metadata.uid for pod in cluster.pods.values()}


def test_a_job_that_begins_again_has_all_that_its_plugins_make_j22() -> None:
    cluster, controller = running(task("a", 1), plugins={"svc": []})
    made = set(cluster.companions)
    cluster.companions.clear()
    controller.settle()
    assert cluster.companions == set(), "nobody watches them"
    cluster.command("RestartJob")
    controller.settle()
    assert cluster.companions == made
