"""Courses of jobs that users of Volcano have reported as wrong, with the right ends.

On the embedded API server; see `test_jobs_die` for the stage.
"""

from typing import Any

import pytest

from shared.api import kinds
from tests.unit.controller.test_jobs_die import JobStage, Successors
from tests.unit.controller.test_jobs_that_wait import POD, begin


class Course:
    """A job on its stage, until it runs."""

    def __init__(self) -> None:
        self.stage = JobStage()
        self.successors = Successors(self.stage, dies_at=0)

    async def start(self, *tasks: dict[str, Any], **spec: Any) -> None:
        self.stage.create(kinds.JOB, "j", {"tasks": list(tasks), "minAvailable": 1, **spec})
        await begin(self.successors)

    async def go_on(self) -> None:
        await begin(self.successors)

    def uids(self) -> dict[str, str]:
        pods = self.stage.items(kinds.POD)
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.stage.job()["status"]
        return found

    @property
    def phase(self) -> str:
        found: str = self.status()["state"]["phase"]
        return found


def task(name: str, replicas: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": POD, **more}


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    assert before.keys() == after.keys()
    return sorted(name for name, uid in after.items() if before[name] != uid)


async def test_a_task_is_restarted_once_for_an_eviction_and_the_other_task_is_left_alone() -> None:
    """Reported as volcano#4814: the restart's own deletions counted as evictions."""
    course = Course()
    policy = {"event": "PodEvicted", "action": "RestartTask"}
    await course.start(task("a", 2, policies=[policy]), task("b", 2), maxRetry=3)
    before = course.uids()
    course.stage.ask("DELETE", kinds.POD, "j-a-0", {"gracePeriodSeconds": 0})
    await course.go_on()
    assert changed(before, course.uids()) == ["j-a-0", "j-a-1"]
    assert (course.phase, course.status()["retryCount"]) == ("Running", 1)


async def test_a_pod_is_restarted_in_the_podgroup_that_it_was_in() -> None:
    """Reported as volcano#5385: the PodGroup was deleted with a restart of one pod."""
    course = Course()
    policy = {"event": "PodFailed", "action": "RestartPod"}
    await course.start(task("w", 2), policies=[policy], minAvailable=2, maxRetry=5)
    before = course.uids()
    (group,) = course.stage.items(kinds.PODGROUP)
    course.stage.report("j-w-1", "Failed")
    await course.go_on()
    assert changed(before, course.uids()) == ["j-w-1"]
    assert [g["metadata"]["uid"] for g in course.stage.items(kinds.PODGROUP)] == [
        group["metadata"]["uid"]
    ]
    assert (course.phase, course.status()["retryCount"]) == ("Running", 1)


async def test_a_job_that_is_made_smaller_is_not_evicted_by_its_owner() -> None:
    """Reported as volcano#4072: the policy on evictions ended the whole job."""
    course = Course()
    policies = [{"event": event, "action": "TerminateJob"} for event in ("PodEvicted", "PodFailed")]
    await course.start(task("head", 1), task("w", 3, minAvailable=1), policies=policies)
    before = course.uids()
    smaller = [task("head", 1), task("w", 1, minAvailable=1)]
    course.stage.ask("PATCH", kinds.JOB, "j", {"spec": {"tasks": smaller}})
    await course.go_on()
    left = course.uids()
    assert set(left) == {"j-head-0", "j-w-0"}
    assert changed({name: before[name] for name in left}, left) == []
    assert course.phase == "Running"


@pytest.mark.parametrize("action", ["RestartPod", "RestartTask"])
async def test_a_pod_that_hangs_is_made_anew_after_the_timeout_and_no_other(action: str) -> None:
    """Reported as volcano#4743: only RestartJob worked, which restarts what is well."""
    course = Course()
    hanging = {"event": "PodPending", "action": action, "timeout": "10s"}
    course.stage.create(
        kinds.JOB,
        "j",
        {"tasks": [task("good", 1), task("stuck", 1, policies=[hanging])], "minAvailable": 2},
    )
    await course.successors.settle()
    (group,) = course.stage.names(kinds.PODGROUP)
    course.stage.ask("PATCH", kinds.PODGROUP, group, {"status": {"phase": "Inqueue"}})
    await course.successors.settle()
    course.stage.report("j-good-0", "Running")
    await course.successors.settle()
    before = course.uids()
    await course.stage.clock.advance(11.0)
    await course.successors.settle()
    assert changed(before, course.uids()) == ["j-stuck-0"]
    assert course.status()["retryCount"] == 1
    again = course.uids()
    await course.stage.clock.advance(11.0)
    await course.successors.settle()
    assert changed(again, course.uids()) == ["j-stuck-0"]
    course.stage.report("j-stuck-0", "Running")
    await course.go_on()
    assert course.phase == "Running"


async def test_a_task_that_has_succeeded_is_not_run_again_when_its_pod_is_gone() -> None:
    """Reported as volcano#3296: the node of a finished pod went, and the pod ran once more."""
    course = Course()
    await course.start(task("short", 1), task("long", 1), minAvailable=2)
    course.stage.report("j-short-0", "Succeeded")
    await course.successors.settle()
    course.stage.ask("DELETE", kinds.POD, "j-short-0", {"gracePeriodSeconds": 0})
    await course.go_on()
    assert list(course.uids()) == ["j-long-0"]
    course.stage.report("j-long-0", "Succeeded")
    await course.go_on()
    assert course.phase == "Completed"


async def test_a_role_without_replicas_keeps_no_other_from_running() -> None:
    """Reported as volcano#2171 and volcano#4271."""
    course = Course()
    await course.start(
        task("master", 1, minAvailable=0), task("worker", 0, minAvailable=0), plugins={"mpi": []}
    )
    assert list(course.uids()) == ["j-master-0"]
    assert course.phase == "Running"


async def test_a_job_keeps_its_pods_while_its_queue_is_deleted_and_made_again() -> None:
    """Reported as volcano#5960."""
    course = Course()
    await course.start(task("w", 1))
    before = course.uids()
    course.stage.ask("DELETE", kinds.QUEUE, "default")
    await course.go_on()
    course.stage.create(kinds.QUEUE, "default", {"parent": "root"})
    course.stage.ask("PATCH", kinds.QUEUE, "default", {"status": {"state": "Open"}}, "status")
    await course.go_on()
    assert (course.phase, course.uids()) == ("Running", before)
