"""A job's whole course on the embedded API server: its process dies, or its writes are refused.

All that the controller does to a job is its own code here, down to the requests; scheduler and
kubelet are two lines each (`tests.unit.controller.reconcilers` has the stage).
"""

import json
from collections import Counter
from typing import Any

import pytest

from pumice.embedded.apiserver.replies import ApiReply
from pumice.embedded.apiserver.replies import ApiRequest as CoreRequest
from shared.api import kinds
from tests.unit.controller.reconcilers import NAMESPACE, Died, Process, Stage

pytestmark = pytest.mark.laws

ROUNDS = 30
"""Looks that a job may take to settle."""


class JobStage(Stage):
    """The world of one job: its scheduler, its kubelet, its user."""

    def __init__(self) -> None:
        super().__init__()
        self.pods_made: Counter[str] = Counter()
        self.create(kinds.QUEUE, "root", {})
        self.create(kinds.QUEUE, "default", {"parent": "root"})
        self.ask("PATCH", kinds.QUEUE, "default", {"status": {"state": "Open"}}, "status")

    def handle(self, request: CoreRequest) -> ApiReply:
        """Note which pods are made."""
        answer = super().handle(request)
        is_pod = (request.method, request.path) == ("POST", kinds.POD.path(NAMESPACE))
        if is_pod and answer.status < 300:
            self.pods_made[json.loads(answer.body)["metadata"]["name"]] += 1
        return answer

    def advance_jobs(self, *, most: int = 0) -> None:
        """Let groups into their queue, and pods that wait run."""
        del most
        for group in self.items(kinds.PODGROUP):
            if not group.get("status", {}).get("phase"):
                body = {"status": {"phase": "Inqueue"}}
                self.ask("PATCH", kinds.PODGROUP, group["metadata"]["name"], body)
        for pod in self.items(kinds.POD):
            if pod["status"]["phase"] == "Pending":
                self.report(pod["metadata"]["name"], "Running")

    def report(self, pod: str, phase: str) -> None:
        """Let the kubelet report a phase."""
        self.ask("PATCH", kinds.POD, pod, {"status": {"phase": phase}}, "status")

    def order(self, action: str) -> None:
        """Let the user order something."""
        job = self.job()
        target = {
            "apiVersion": kinds.JOB.api_version,
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        meta = {"name": action.lower(), "namespace": NAMESPACE}
        body = {
            "apiVersion": kinds.COMMAND.api_version,
            "kind": "Command",
            "metadata": meta,
            "action": action,
            "target": target,
        }
        self.ask("POST", kinds.COMMAND, body=body)

    def job(self) -> dict[str, Any]:
        """Return the job."""
        (job,) = self.items(kinds.JOB)
        return job

    def names(self, kind: kinds.Kind) -> list[str]:
        """Return the names of all objects of a kind."""
        return [item["metadata"]["name"] for item in self.items(kind)]


class Successors:
    """Processes one after the other; those after the first die only if all are to."""

    def __init__(self, stage: JobStage, *, dies_at: int, all_die: bool = False) -> None:
        self.stage = stage
        self.process = Process(stage, dies_at=dies_at)
        self._then = dies_at if all_die else 0

    async def settle(self) -> None:
        """Look until nothing is written any more."""
        for _ in range(ROUNDS):
            before = self.stage.writes.total()
            await self._look()
            await self.stage.clock.advance(1.0)  # counts wait for each other half a second
            await self._look()
            if self.stage.writes.total() == before:
                return
        raise AssertionError(f"never settles: {self.stage.job()['status']}")

    async def _look(self) -> None:
        self.process.relist()
        try:
            await self.process.look("jobs")
        except* Died:
            self.process = Process(self.stage, dies_at=self._then)


def whole_job(restart: str) -> dict[str, Any]:
    """Return a job that has something of everything made for it, and restarts by an action."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "tasks": [{"name": "a", "replicas": 2, "template": template}],
        "plugins": {"svc": []},
        "volumes": [{"mountPath": "/data", "volumeClaim": claim}],
        "policies": [{"event": "PodFailed", "action": restart}],
        "minAvailable": 1,
        "maxRetry": 5,
    }


async def course(stage: JobStage, successors: Successors, restart: str = "RestartJob") -> None:
    """Let a job be made, fail, be stopped when half is done, be resumed, and end."""

    async def begin() -> None:
        for _ in range(2):
            await successors.settle()
            stage.advance_jobs()
        await successors.settle()

    stage.create(kinds.JOB, "j", whole_job(restart))
    await begin()
    stage.report("j-a-0", "Failed")
    await successors.settle()
    await begin()
    stage.report("j-a-0", "Succeeded")
    await successors.settle()
    stage.order("AbortJob")
    await successors.settle()
    stage.order("ResumeJob")
    await begin()
    stage.report("j-a-1", "Succeeded")
    await successors.settle()


def summary(stage: JobStage) -> dict[str, Any]:
    """Return what must be the same however often a process died."""
    job = stage.job()
    status = job["status"]
    return {
        "phase": status["state"]["phase"],
        "retries": status["retryCount"],
        "succeeded": status["succeeded"],
        "went through": [c["status"] for c in status["conditions"]],
        "pods made": dict(stage.pods_made),
        "groups": stage.names(kinds.PODGROUP),
        "orders": stage.names(kinds.COMMAND),
        "claims": len(stage.names(kinds.PVC)),
        "claim": job["spec"]["volumes"][0]["volumeClaimName"] == stage.names(kinds.PVC)[0],
        "plugins": stage.names(kinds.CONFIGMAP),
    }


EXPECTED = {
    "phase": "Completed",
    "retries": 2,
    "succeeded": 2,
    "went through": ["Aborting", "Aborted", "Restarting", "Pending", "Running", "Completed"],
    "pods made": {"j-a-0": 2, "j-a-1": 3},
    "groups": [],
    "orders": [],
    "claims": 1,
    "claim": True,
    "plugins": [],
}


@pytest.mark.parametrize("dies_at", [0, *range(3, 56, 4)])
async def test_a_job_goes_its_course_whatever_write_its_process_dies_of(dies_at: int) -> None:
    stage = JobStage()
    await course(stage, Successors(stage, dies_at=dies_at))
    assert summary(stage) == EXPECTED


@pytest.mark.parametrize("dies_at", [8, 9, 10, 13])
@pytest.mark.parametrize("restart", ["RestartJob", "RestartTask"])
async def test_a_job_goes_its_course_when_no_process_lives_for_more_than_some_writes(
    restart: str, dies_at: int
) -> None:
    """Each begins with up to seven requests that make sure of what the job's plugins need."""
    stage = JobStage()
    await course(stage, Successors(stage, dies_at=dies_at, all_die=True), restart)
    assert summary(stage) == EXPECTED


async def test_a_job_whose_group_is_refused_is_pending_all_the_same_j13() -> None:
    stage = JobStage()
    stage.create(kinds.JOB, "j", whole_job("RestartJob"))
    process = Process(stage)
    process.refused.add("POST podgroups")
    for _ in range(3):
        process.relist()
        await process.look("jobs")
        await stage.clock.advance(1.0)
    assert process.denied
    assert stage.job()["status"]["state"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("request_", "reason", "words"),
    [
        ("POST pods", "FailedCreate", ("Error creating pods: ", " and 2 more")),
        ("POST podgroups", "PodGroupError", ("Failed to create PodGroup, err: ",)),
        ("POST persistentvolumeclaims", "PVCError", ("Failed to create PVC, err: ",)),
        ("POST configmaps", "PluginError", ("Execute plugin when job add failed, err: ",)),
        ("PATCH jobs/j", "PVCError", ("Failed to update job, err: ",)),
        ("PATCH jobs/j/status", "JobStatusError", ("Failed to initialize job status, err: ",)),
    ],
)
async def test_what_the_api_server_refuses_of_a_job_is_one_warning_j34(
    request_: str, reason: str, words: tuple[str, ...]
) -> None:
    stage = JobStage()
    spec = whole_job("RestartJob")
    spec["tasks"][0]["replicas"] = 5
    stage.create(kinds.JOB, "j", spec)
    process = Process(stage)
    process.refused.add(request_)
    async with process.running("events"):
        for _ in range(6):
            process.relist()
            await process.look("jobs")
            stage.advance_jobs()
            await stage.clock.advance(1.0)
    assert process.denied > 1
    (warning,) = (e for e in stage.items(kinds.EVENT) if e["type"] == "Warning")
    assert warning["reason"] == reason
    assert warning["source"]["component"] == "vc-controller-manager"
    assert [word for word in words if word not in warning["message"]] == []
    assert "denied by the webhook of a test" in warning["message"]
