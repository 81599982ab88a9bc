"""The life of a job, told as sentences on a cluster of one job (J15 to J27, J37, J39)."""

import json
from typing import Any

import msgspec
import pytest

from shared.api.batch import Job, JobPhase
from shared.api.scheduling import PodGroupPhase, PodGroupStatus, QueueState, QueueStatus
from tests.support.structs import job
from tests.unit.controller.world import Cluster, Controller, running, started, task


def on(event: str, action: str, **extra: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **extra}


def phases(cluster: Cluster) -> list[str]:
    return [c.status for c in cluster.job.status.conditions]


def phase(cluster: Cluster) -> JobPhase | None:
    return cluster.job.status.state.phase


def edit(cluster: Cluster, **spec: Any) -> None:
    """Let the user change the spec."""
    plain = json.loads(msgspec.json.encode(cluster.job))
    plain["spec"] |= spec
    plain["metadata"]["generation"] += 1
    plain["metadata"]["resourceVersion"] = cluster.rv()
    cluster.job = msgspec.json.decode(json.dumps(plain), type=Job)


def test_a_job_makes_its_group_and_waits_for_the_queue_before_it_makes_pods_j23() -> None:
    cluster, _ = started(task("a", 3), group_phase=PodGroupPhase.PENDING)
    assert phase(cluster) == JobPhase.PENDING
    assert cluster.group is not None
    assert cluster.group.spec.min_member == 3
    assert cluster.pods == {}


def test_a_job_that_says_it_is_pending_has_its_group_j22() -> None:
    cluster = Cluster(job(task("a", 3)), group_phase=PodGroupPhase.PENDING)
    Controller(cluster).settle()
    assert cluster.writes.index("CreateGroup") < cluster.writes.index("WriteJobStatus")


def test_a_job_that_met_trouble_says_it_is_pending_before_its_group_is_tried_again_j22() -> None:
    cluster = Cluster(job(task("a", 3)), group_phase=PodGroupPhase.PENDING)
    controller = Controller(cluster)
    controller.record.interrupted = True
    controller.settle()
    assert cluster.writes.index("WriteJobStatus") < cluster.writes.index("CreateGroup")


def test_an_absent_phase_of_the_group_counts_as_pending_j23() -> None:
    cluster, _ = started(task("a", 3), group_phase=None)
    assert cluster.pods == {}


def test_a_job_let_into_its_queue_makes_all_pods_of_all_tasks_j24() -> None:
    cluster, _ = started(task("ps", 1), task("worker", 2))
    assert sorted(cluster.pods) == ["train-ps-0", "train-worker-0", "train-worker-1"]
    assert cluster.job.status.pending == 3
    assert phase(cluster) == JobPhase.PENDING


def test_a_job_runs_when_min_available_pods_run_j16() -> None:
    cluster, controller = started(task("a", 3), minAvailable=2)
    cluster.change_pod("train-a-0", "Running")
    assert controller.settle().state.phase == JobPhase.PENDING
    cluster.change_pod("train-a-1", "Running")
    status = controller.settle()
    assert status.state.phase == JobPhase.RUNNING
    assert (status.running, status.pending, status.min_available) == (2, 1, 2)
    assert status.task_status_count["a"].phase == {"Running": 2, "Pending": 1}


@pytest.mark.parametrize(
    ("ends", "spec", "expected"),
    [
        pytest.param(["Succeeded"] * 2, {}, "Completed", id="all-succeed"),
        pytest.param(["Succeeded", "Failed"], {}, "Failed", id="one-fails"),
        pytest.param(["Succeeded", "Failed"], {"minAvailable": 1}, "Completed", id="enough"),
        pytest.param(["Failed", "Failed"], {"minAvailable": 1}, "Failed", id="none-left"),
        pytest.param(["Succeeded", "Running"], {"minSuccess": 1}, "Completed", id="min-success"),
        pytest.param(["Succeeded", "Failed"], {"minSuccess": 2}, "Failed", id="min-success-missed"),
        pytest.param(["Succeeded", "Running"], {}, "Running", id="one-still-runs"),
    ],
)
def test_how_pods_end_decides_how_the_job_ends_j17(
    ends: list[str], spec: dict[str, Any], expected: str
) -> None:
    cluster, controller = running(task("a", 2), **spec)
    for index, end in enumerate(ends):
        cluster.change_pod(f"train-a-{index}", end, exit_code=1 if end == "Failed" else 0)
    assert controller.settle().state.phase == expected


def test_a_finished_job_keeps_finished_pods_and_drops_the_rest_j20_j39() -> None:
    cluster, controller = running(task("a", 2), minSuccess=1, plugins={"svc": []})
    assert len(cluster.companions) == 3
    cluster.change_pod("train-a-0", "Succeeded")
    status = controller.settle()
    assert status.state.phase == JobPhase.COMPLETED
    assert sorted(cluster.pods) == ["train-a-0"]
    assert cluster.group is None
    assert cluster.companions == set()
    assert status.controlled_resources == {}


def test_a_completed_task_completes_the_job_and_kills_its_servers_j07() -> None:
    """The way the TensorFlow example ends: the workers succeed, the server never would."""
    cluster, controller = running(
        task("ps", 1),
        task("worker", 2, policies=[on("TaskCompleted", "CompleteJob")]),
        policies=[on("PodEvicted", "RestartJob")],
    )
    cluster.change_pod("train-worker-0", "Succeeded")
    assert controller.settle().state.phase == JobPhase.RUNNING
    cluster.change_pod("train-worker-1", "Succeeded")
    status = controller.settle()
    assert status.state.phase == JobPhase.COMPLETED
    assert sorted(cluster.pods) == ["train-worker-0", "train-worker-1"]
    assert phases(cluster) == ["Pending", "Running", "Completing", "Completed"]
    assert status.retry_count == 0


def test_an_evicted_pod_restarts_the_job_where_a_policy_says_so_j08() -> None:
    cluster, controller = running(task("a", 2), policies=[on("PodEvicted", "RestartJob")])
    before = {pod.metadata.uid for pod in cluster.pods.values()}
    del cluster.pods["train-a-1"]
    status = controller.settle()
    assert status.state.phase == JobPhase.PENDING
    assert (status.version, status.retry_count) == (1, 1)
    assert before.isdisjoint(pod.metadata.uid for pod in cluster.pods.values())
    assert {p.metadata.annotations["volcano.sh/job-version"] for p in cluster.pods.values()} == {
        "1"
    }
    cluster.run_all()
    assert controller.settle().state.phase == JobPhase.RUNNING


def test_an_evicted_pod_is_made_again_where_no_policy_speaks_j24() -> None:
    cluster, controller = running(task("a", 2))
    del cluster.pods["train-a-1"]
    status = controller.settle()
    assert sorted(cluster.pods) == ["train-a-0", "train-a-1"]
    assert status.retry_count == 0


def test_two_restarts_are_real_and_the_third_fails_the_job_j37() -> None:
    cluster, controller = running(
        task("a", 2), policies=[on("PodFailed", "RestartJob")], maxRetry=3
    )
    for retries in (1, 2):
        cluster.change_pod("train-a-0", "Failed", exit_code=1)
        assert controller.settle().retry_count == retries
        cluster.run_all()
        assert controller.settle().state.phase == JobPhase.RUNNING
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    status = controller.settle()
    assert status.state.phase == JobPhase.FAILED
    assert status.retry_count == 3
    assert sorted(cluster.pods) == ["train-a-0"], "what failed is kept for a look at it (J21)"


def test_pods_that_fail_together_cost_one_restart() -> None:
    cluster, controller = running(task("a", 3), policies=[on("PodFailed", "RestartJob")])
    for index in range(3):
        cluster.change_pod(f"train-a-{index}", "Failed", exit_code=1)
    assert controller.settle().retry_count == 1


def test_each_exit_code_of_pods_that_fail_together_is_answered() -> None:
    """The second code's policy is not swallowed by the first's, which asks for nothing (J11)."""
    cluster, controller = running(
        task("a", 2), policies=[{"exitCode": 137, "action": "AbortJob"}], minAvailable=1
    )
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    cluster.change_pod("train-a-1", "Failed", exit_code=137)
    assert controller.settle().state.phase == JobPhase.ABORTED


def test_containers_that_restart_too_often_fail_the_task_j07() -> None:
    cluster, controller = running(
        task("a", 2, maxRetry=4, policies=[on("TaskFailed", "TerminateJob")])
    )
    cluster.change_pod("train-a-0", "Running", restarts=3)
    assert controller.settle().state.phase == JobPhase.RUNNING
    cluster.change_pod("train-a-1", "Running", restarts=1)
    assert controller.settle().state.phase == JobPhase.TERMINATED


def test_a_job_is_suspended_and_resumed_by_commands_j19() -> None:
    cluster, controller = running(task("a", 2))
    cluster.command("AbortJob")
    status = controller.settle()
    assert status.state.phase == JobPhase.ABORTED
    assert cluster.pods == {}
    assert cluster.commands == {}
    cluster.command("ResumeJob", "again")
    status = controller.settle()
    assert status.state.phase == JobPhase.PENDING
    assert status.retry_count == 1
    assert len(cluster.pods) == 2
    assert "Restarting" in phases(cluster)


def test_only_a_job_that_was_killed_or_ended_says_how_long_it_ran_j21() -> None:
    cluster, controller = running(task("a", 1), policies=[on("PodFailed", "RestartJob")])
    assert cluster.job.status.running_duration == ""
    cluster.now += 100
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    assert controller.settle().running_duration == "", "it is pending again"
    cluster.run_all()
    cluster.now += 100
    cluster.change_pod("train-a-0", "Succeeded")
    assert controller.settle().running_duration == "3m20s"


def test_a_command_without_effect_is_deleted_too() -> None:
    cluster, controller = running(task("a", 1))
    cluster.command("ResumeJob")
    assert controller.settle().state.phase == JobPhase.RUNNING
    assert cluster.commands == {}


def test_a_command_that_nobody_knows_changes_nothing() -> None:
    cluster, controller = running(task("a", 1))
    cluster.command("DanceJob")
    assert controller.settle().state.phase == JobPhase.RUNNING
    assert cluster.commands == {}


def test_a_job_grows_and_shrinks_with_its_spec_j40() -> None:
    cluster, controller = running(
        task("a", 2), policies=[on("PodEvicted", "RestartJob")], minAvailable=1
    )
    edit(cluster, tasks=[task("a", 4)])
    controller.settle()
    assert len(cluster.pods) == 4
    edit(cluster, tasks=[task("a", 1)])
    status = controller.settle()
    assert sorted(cluster.pods) == ["train-a-0"]
    assert status.retry_count == 0, "a surplus pod's end is no eviction"
    assert cluster.group is not None
    assert cluster.group.spec.min_task_member == {"a": 1}


def test_a_task_waits_for_the_tasks_that_it_depends_on_j25() -> None:
    cluster, controller = started(
        task("master", 1), task("worker", 2, dependsOn={"name": ["master"]})
    )
    assert sorted(cluster.pods) == ["train-master-0"]
    cluster.change_pod("train-master-0", "Running")
    controller.settle()
    assert len(cluster.pods) == 3


def test_a_policy_with_a_timeout_waits_and_is_called_off_when_the_pod_runs_j12() -> None:
    cluster, controller = started(
        task("a", 1), policies=[on("PodPending", "TerminateJob", timeout="60s")]
    )
    assert phase(cluster) == JobPhase.PENDING
    cluster.run_all()
    controller.settle()
    cluster.now += 61
    assert controller.settle().state.phase == JobPhase.RUNNING


def test_a_policy_with_a_timeout_acts_when_it_is_due_also_in_a_new_process_j12() -> None:
    cluster, _ = started(task("a", 1), policies=[on("PodPending", "TerminateJob", timeout="60s")])
    cluster.now += 61
    successor = Controller(cluster)
    pending = successor.record.requests
    assert [r.event for r in pending.values()] == ["PodPending"]
    successor.settle()
    cluster.now += 61
    assert successor.settle().state.phase == JobPhase.TERMINATED


def test_a_group_of_unknown_phase_is_an_event_that_policies_answer_j09() -> None:
    cluster, controller = running(task("a", 2), policies=[on("Unknown", "AbortJob")])
    assert cluster.group is not None
    unknown = PodGroupStatus(phase=PodGroupPhase.UNKNOWN)
    cluster.group = msgspec.structs.replace(cluster.group, status=unknown)
    assert controller.settle().state.phase == JobPhase.ABORTED


def test_a_settled_job_is_left_alone() -> None:
    cluster, controller = running(task("a", 3), plugins={"svc": [], "env": []})
    before = list(cluster.writes)
    controller.settle()
    Controller(cluster).settle()
    assert cluster.writes == before, "a look without news writes nothing, in a new process neither"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"tasks": [task("a", 1), task("a", 1)]}, "spec.tasks[1].name"),
        ({"tasks": [task("a", 1)], "minAvailable": 2}, "spec.minAvailable"),
        ({"tasks": [task("a", 1, minAvailable=2)]}, "spec.tasks[0].minAvailable"),
        ({"tasks": [task("a", 1)], "plugins": {"nope": []}}, "spec.plugins.nope"),
        (
            {"tasks": [task("a", 1)], "plugins": {"svc": ["--disable-network-policy=perhaps"]}},
            "spec.plugins.svc",
        ),
        ({"tasks": [{"name": "a", "replicas": 1, "template": {}}]}, "template.spec.containers"),
        ({"tasks": [task("a", 1)], "policies": [on("PodFailed", "Dance")]}, "policies[0].action"),
        ({"tasks": [task("a", 1)], "policies": [on("PodRunning", "AbortJob")]}, "[0].event"),
        (
            {"tasks": [task("a", 1)], "policies": [{"exitCode": 0, "action": "AbortJob"}]},
            "exitCode",
        ),
        (
            {"tasks": [task("a", 1)], "policies": [on("PodFailed", "AbortJob", timeout="soon")]},
            "policies[0].timeout",
        ),
        ({"tasks": [task("a", 1, dependsOn={"name": ["b"]})]}, "dependsOn"),
        (
            {
                "tasks": [
                    task("a", 1, dependsOn={"name": ["b"]}),
                    task("b", 1, dependsOn={"name": ["a"]}),
                ]
            },
            "dependsOn",
        ),
    ],
)
def test_a_malformed_job_is_held_with_the_field_named_w20(spec: dict[str, Any], field: str) -> None:
    tasks = spec.pop("tasks")
    cluster, controller = started(*tasks, **spec)
    state = controller.settle().state
    assert (state.phase, state.reason) == (JobPhase.PENDING, "InvalidSpec")
    assert field in state.message
    assert [told.reason for told in cluster.told] == ["InvalidSpec"]
    assert cluster.pods == {}
    assert cluster.group is None
    edit(cluster, tasks=[task("a", 1)], minAvailable=1, plugins={}, policies=[])
    assert controller.settle().state.reason == ""
    assert len(cluster.pods) == 1


def test_a_job_of_an_unknown_or_closed_queue_waits_for_it_w24() -> None:
    cluster = Cluster(job(task("a", 1)), group_phase=PodGroupPhase.INQUEUE)
    queue, cluster.queue = cluster.queue, None
    controller = Controller(cluster)
    assert "no queue 'default'" in controller.settle().state.message
    assert queue is not None
    cluster.queue = msgspec.structs.replace(queue, status=QueueStatus(state=QueueState.CLOSED))
    assert "is Closed" in controller.settle().state.message
    cluster.queue = queue
    assert controller.settle().state.message == ""
    assert len(cluster.pods) == 1


def test_a_job_being_deleted_is_left_to_the_garbage_collector_j22() -> None:
    cluster, controller = running(task("a", 1))
    meta = msgspec.structs.replace(
        cluster.job.metadata,
        deletion_timestamp="2025-10-09T09:00:00Z",
        resource_version=cluster.rv(),
    )
    cluster.job = msgspec.structs.replace(cluster.job, metadata=meta)
    cluster.pods.clear()
    controller.settle()
    assert cluster.pods == {}


def test_a_job_without_a_minimum_does_not_run_before_a_pod_does():
    """volcano#5401."""
    cluster, controller = started(task("w", 4, minAvailable=0), minAvailable=0)
    assert cluster.job.status.state.phase is JobPhase.PENDING
    assert cluster.group.spec.min_member == 1
    cluster.change_pod("train-w-0", "Running")
    controller.settle()
    assert cluster.job.status.state.phase is JobPhase.RUNNING
