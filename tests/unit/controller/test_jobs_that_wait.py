"""Jobs whose pods the API server does not take at present go on, and say what they wait for.

Names that an earlier job of the same name still has, and quotas that are used up, on the embedded
API server; see `test_jobs_die` for the stage.
"""

import json
import re
from typing import Any

import pytest

from pumice.embedded.apiserver.replies import ApiReply
from pumice.embedded.apiserver.replies import ApiRequest as CoreRequest
from services.controller.adapters.store import Touched
from services.controller.job import reconciler
from services.controller.job.plan import Pass, advance
from shared.api import kinds
from tests.unit.controller.reconcilers import NAMESPACE
from tests.unit.controller.test_jobs_die import JobStage, Successors

POD = {"spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}}
FULL = "exceeded quota: team, requested: pods=1, used: pods={0}, limited: pods={0}"


class QuotaStage(JobStage):
    """A namespace in which so many pods may be."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 99
        self.refused = 0

    def handle(self, request: CoreRequest) -> ApiReply:
        is_pod = (request.method, request.path) == ("POST", kinds.POD.path(NAMESPACE))
        if not is_pod or len(self.items(kinds.POD)) < self.most:
            return super().handle(request)
        self.refused += 1
        message = f"pods is forbidden: {FULL.format(self.most)}"
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
        return ApiReply(status=403, body=json.dumps(body).encode())

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job()["status"]["state"]
        return found

    def events(self) -> str:
        return "\n".join(event["message"] for event in self.items(kinds.EVENT))


async def begin(successors: Successors, *, looks: int = 3) -> None:
    for _ in range(looks):
        await successors.settle()
        successors.stage.advance_jobs()
    await successors.settle()


def elastic(replicas: int, minimum: int, **more: Any) -> dict[str, Any]:
    return {
        "tasks": [{"name": "w", "replicas": replicas, "template": POD}],
        "minAvailable": minimum,
        **more,
    }


async def later(successors: Successors, seconds: float) -> None:
    await successors.stage.clock.advance(seconds)
    await begin(successors)


async def tries(successors: Successors, seconds: float) -> None:
    """Let time pass, and the process look once."""
    await successors.stage.clock.advance(seconds)
    successors.process.relist()
    await successors.process.look("jobs")


@pytest.mark.parametrize("all_die", [False, True])
async def test_a_job_above_its_minimum_runs_with_what_the_quota_allows(all_die: bool) -> None:
    stage = QuotaStage()
    stage.most = 5
    successors = Successors(stage, dies_at=9 if all_die else 0, all_die=all_die)
    stage.create(kinds.JOB, "j", elastic(8, 3))
    await begin(successors)
    status = stage.job()["status"]
    assert status["state"]["phase"] == "Running"
    assert status["running"] == 5
    assert status["state"]["reason"] == "QuotaExceeded"
    assert status["state"]["message"].startswith("3 pods wait for ResourceQuota team, requested")
    for _ in range(9):
        await later(successors, 20.0)
    assert stage.job()["status"]["running"] == 5, stage.state()
    assert stage.job()["status"].get("retryCount", 0) == 0
    assert stage.refused < 40, "it is tried with back-off, one pod of a task at a time"
    stage.most = 8
    await later(successors, 11.0)
    await later(successors, 1.0)
    assert stage.job()["status"]["running"] == 8
    assert "message" not in stage.state() or not stage.state()["message"]


async def test_a_pod_that_ends_has_the_rest_tried_at_once() -> None:
    stage = QuotaStage()
    stage.most = 2
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", elastic(3, 2))
    await begin(successors)
    assert stage.names(kinds.POD) == ["j-w-0", "j-w-1"]
    stage.most = 3
    stage.report("j-w-0", "Succeeded")
    await begin(successors)
    assert stage.names(kinds.POD) == ["j-w-0", "j-w-1", "j-w-2"]


async def test_a_job_whose_minimum_does_not_fit_waits_and_is_not_killed() -> None:
    stage = QuotaStage()
    stage.most = 1
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", elastic(3, 3))
    await begin(successors)
    for _ in range(40):
        await tries(successors, 15.0)
    assert stage.state()["phase"] == "Pending"
    assert stage.state()["message"].startswith("2 pods wait for ResourceQuota team")
    stage.most = 9
    await later(successors, 11.0)
    await later(successors, 1.0)
    assert stage.job()["status"]["running"] == 3


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
async def test_a_job_over_quota_is_looked_at_with_back_off_whatever_its_group_says(
    phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its group is not admitted, or a task that it depends on is not ready, none is tried."""
    looks = 0

    def counted(*args: Any, **more: Any) -> Pass:
        nonlocal looks
        looks += 1
        return advance(*args, **more)

    stage = QuotaStage()
    stage.most = 0
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", elastic(3, 3))
    await begin(successors)
    (group,) = stage.names(kinds.PODGROUP)
    stage.ask("PATCH", kinds.PODGROUP, group, {"status": {"phase": phase}})
    await later(successors, 20.0)
    monkeypatch.setattr(reconciler, "advance", counted)
    successors.process.relist()
    async with successors.process.running("jobs"):
        successors.process.controllers["jobs"].add(f"{NAMESPACE}/j")
        for _ in range(60):
            await stage.clock.advance(1.0)
    assert 1 <= looks <= 20


async def test_a_job_made_anew_waits_for_the_names_of_its_predecessor_ten_times() -> None:
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    again = elastic(3, 3, policies=[{"event": "PodEvicted", "action": "TerminateJob"}])
    stage.create(kinds.JOB, "j", {**again, "plugins": {"svc": []}})
    await begin(successors)
    for _ in range(10):
        for name in stage.names(kinds.POD):
            pod = {"metadata": {"finalizers": ["example.com/slow"]}}
            stage.ask("PATCH", kinds.POD, name, pod)
        stage.ask("DELETE", kinds.JOB, "j")
        stage.create(kinds.JOB, "j", {**again, "plugins": {"svc": []}})
        await begin(successors)
        for _ in range(20):
            await tries(successors, 10.0)
        state = stage.job()["status"]["state"]
        assert (state["phase"], state["reason"]) == ("Pending", "NamesInUse")
        assert state["message"].startswith("j-w-0, j-w-1, j-w-2 waits until the name is free: ")
        for name in stage.names(kinds.POD):
            stage.ask("PATCH", kinds.POD, name, {"metadata": {"finalizers": None}})
            if name in stage.names(kinds.POD):
                stage.ask("DELETE", kinds.POD, name, {"gracePeriodSeconds": 0})
        await later(successors, 11.0)
        status = stage.job()["status"]
        assert status["state"]["phase"] == "Running", status
        assert status["running"] == 3
        assert status.get("retryCount", 0) == 0
        assert not status["state"].get("message")


async def test_a_pod_of_somebody_else_is_no_reason_to_wait_for_ever() -> None:
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.POD, "j-w-0", POD["spec"])
    stage.create(kinds.JOB, "j", elastic(1, 1))
    await begin(successors)
    for _ in range(60):
        await tries(successors, 15.0)
    await successors.settle()
    assert stage.job()["status"]["state"]["phase"] in {"Terminating", "Terminated"}


async def test_a_pod_that_fails_while_it_is_evicted_is_evicted_for_policies() -> None:
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    policies = [
        {"event": "PodFailed", "action": "TerminateJob"},
        {"event": "PodEvicted", "action": "RestartJob"},
    ]
    stage.create(kinds.JOB, "j", elastic(2, 2, policies=policies, maxRetry=10))
    await begin(successors)
    stage.ask("PATCH", kinds.POD, "j-w-0", {"metadata": {"finalizers": ["example.com/slow"]}})
    stage.ask("DELETE", kinds.POD, "j-w-0", {"gracePeriodSeconds": 30})
    stage.report("j-w-0", "Failed")
    await successors.settle()
    assert stage.job()["status"]["state"]["phase"] != "Terminating"
    stage.ask("PATCH", kinds.POD, "j-w-0", {"metadata": {"finalizers": None}})
    if "j-w-0" in stage.names(kinds.POD):
        stage.ask("DELETE", kinds.POD, "j-w-0", {"gracePeriodSeconds": 0})
    await begin(successors)
    status = stage.job()["status"]
    assert (status["state"]["phase"], status["retryCount"]) == ("Running", 1)


async def test_a_job_runs_after_each_resume_and_a_failure_says_that_they_count() -> None:
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    stage.create(kinds.JOB, "j", elastic(1, 1, policies=policies))
    await begin(successors)
    for _ in range(4):
        stage.order("AbortJob")
        await successors.settle()
        assert stage.job()["status"]["state"]["phase"] == "Aborted"
        stage.order("ResumeJob")
        await begin(successors)
        assert stage.job()["status"]["state"]["phase"] == "Running"
    stage.report("j-w-0", "Failed")
    await begin(successors)
    state = stage.job()["status"]["state"]
    assert state["phase"] == "Failed"
    assert state["message"].startswith(
        "maxRetry 3 is used up: each restart and each resume is a try, this was number 5; "
        "the last one: PodFailed of pod j-w-0"
    )


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (
            {"minAvailable": 2},
            "1 succeeded and 1 failed: task w has 1, its minAvailable asks for 2",
        ),
        ({"minSuccess": 2}, "1 succeeded and 1 failed: minSuccess asks for 2"),
    ],
)
async def test_a_job_that_has_failed_says_why(more: dict[str, int], wanted: str) -> None:
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", {**elastic(2, 1), **more})
    await begin(successors)
    stage.report("j-w-0", "Succeeded")
    stage.report("j-w-1", "Failed")
    await begin(successors)
    state = stage.job()["status"]["state"]
    assert state["phase"] == "Failed"
    assert state["message"] == f"all pods have ended, {wanted}"


async def refused_service(*, tries_made: int) -> tuple[JobStage, Successors]:
    """Return a job whose Service the API server has refused so many times."""
    stage = JobStage()
    successors = Successors(stage, dies_at=0)
    successors.process.refused = {"POST services"}
    stage.create(kinds.JOB, "j", elastic(1, 1, plugins={"svc": []}))
    for _ in range(tries_made):
        await tries(successors, 5.0)
    return stage, successors


async def test_a_job_whose_object_is_refused_says_so_and_runs_when_it_is_taken() -> None:
    """Reported as volcano#4691: a name that no Service may have; only a log said why."""
    stage, successors = await refused_service(tries_made=3)
    state = stage.job()["status"]["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "Refused")
    assert "denied by the webhook of a test" in state["message"]
    successors.process.refused.clear()
    await begin(successors)
    assert stage.job()["status"]["state"]["phase"] == "Running"
    assert not stage.job()["status"]["state"].get("message")


async def test_a_job_that_is_refused_for_good_ends_with_the_reason() -> None:
    stage, _ = await refused_service(tries_made=20)
    state = stage.job()["status"]["state"]
    assert (state["phase"], state["reason"]) == ("Terminated", "Refused")
    assert state["message"].startswith("Job failed for retry limit reached, after 16 refusals: ")
    assert "denied by the webhook of a test" in state["message"]


class CountingQuotaStage(QuotaStage):
    """A namespace with a ResourceQuota, whose status says what is used, as its controller does."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.create(kinds.RESOURCEQUOTA, "team", {"hard": {"pods": str(most)}})
        self.count()

    def allow(self, most: int) -> None:
        self.most = most
        self.ask("PATCH", kinds.RESOURCEQUOTA, "team", {"spec": {"hard": {"pods": str(most)}}})
        self.count()

    def count(self) -> None:
        status = {
            "hard": {"pods": str(self.most)},
            "used": {"pods": str(len(self.items(kinds.POD)))},
        }
        self.ask("PATCH", kinds.RESOURCEQUOTA, "team", {"status": status}, "status")


async def held_back(stage: CountingQuotaStage) -> Successors:
    """Let a job of 3 pods wait for the quota until it asks seldom."""
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", elastic(3, 1))
    await begin(successors)
    stage.count()
    for _ in range(8):
        await tries(successors, 11.0)
    await stage.clock.advance(2.0)
    return successors


@pytest.mark.parametrize("change", ["more is allowed", "another pod ends", "it is deleted"])
async def test_a_change_of_the_quota_has_the_rest_tried_at_once(change: str) -> None:
    stage = CountingQuotaStage(2)
    stage.create(kinds.POD, "other", POD["spec"])
    successors = await held_back(stage)
    assert stage.names(kinds.POD) == ["j-w-0", "other"]
    async with successors.process.running("jobs"):
        if change == "another pod ends":
            stage.ask("DELETE", kinds.POD, "other", {"gracePeriodSeconds": 0})
            stage.count()
        elif change == "it is deleted":
            stage.most = 99
            stage.ask("DELETE", kinds.RESOURCEQUOTA, "team")
        else:
            stage.allow(3)
        successors.process.relist()
        await stage.clock.advance(0.5)
    assert "j-w-1" in stage.names(kinds.POD), "the next try was more than 5 s away"


@pytest.mark.parametrize("change", ["less room", "another namespace", "nothing"])
async def test_a_change_that_makes_no_room_has_nothing_tried(change: str) -> None:
    stage = CountingQuotaStage(1)
    successors = await held_back(stage)
    refused = stage.refused
    async with successors.process.running("jobs"):
        if change == "less room":
            stage.allow(0)
        elif change == "another namespace":
            successors.process.controllers["jobs"].enqueue(_touched("elsewhere/team"))
        successors.process.relist()
        await stage.clock.advance(0.5)
    assert stage.refused == refused


async def test_quotas_that_change_all_the_time_have_a_job_ask_once_a_second() -> None:
    stage = CountingQuotaStage(1)
    successors = await held_back(stage)
    refused = stage.refused
    async with successors.process.running("jobs"):
        for _ in range(50):
            successors.process.controllers["jobs"].enqueue(_touched(f"{NAMESPACE}/team"))
            await stage.clock.advance(0.1)
    assert 4 <= stage.refused - refused <= 6


class ObjectQuotaStage(CountingQuotaStage):
    """A namespace whose quota allows no object of a kind beside pods."""

    def __init__(self, kind: kinds.Kind) -> None:
        self.kind: kinds.Kind | None = None
        super().__init__(0)
        self.kind = kind

    def handle(self, request: CoreRequest) -> ApiReply:
        kind = self.kind
        if kind is None or self.most or request.method != "POST":
            return JobStage.handle(self, request)
        if request.path != kind.path(NAMESPACE):
            return JobStage.handle(self, request)
        self.refused += 1
        what = f"count/{kind.plural}"
        message = (
            f"{kind.plural} is forbidden: exceeded quota: team, requested: {what}=1, "
            f"used: {what}=0, limited: {what}=0"
        )
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
        return ApiReply(status=403, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    "kind", [kinds.PODGROUP, kinds.CONFIGMAP, kinds.SERVICE, kinds.SECRET], ids=lambda k: k.kind
)
async def test_a_job_says_which_object_waits_for_which_quota_and_goes_on_with_more_room(
    kind: kinds.Kind,
) -> None:
    stage = ObjectQuotaStage(kind)
    successors = Successors(stage, dies_at=0)
    stage.create(kinds.JOB, "j", elastic(2, 2, plugins={"svc": [], "ssh": []}))
    await begin(successors)
    for _ in range(6):
        await tries(successors, 11.0)
    state = stage.state()
    assert (state["phase"], state["reason"]) == ("Pending", "QuotaExceeded")
    assert re.match(
        f"{kind.kind} j-?\\S* waits for ResourceQuota team, requested", state["message"]
    )
    assert stage.refused < 40
    assert stage.names(kinds.POD) == []
    await stage.clock.advance(2.0)
    async with successors.process.running("jobs"):
        stage.allow(9)
        successors.process.relist()
        await stage.clock.advance(1.5)
    assert [item for item in stage.items(kind) if item["metadata"]["name"].startswith("j")]
    await later(successors, 1.0)
    await later(successors, 1.0)
    assert stage.job()["status"]["running"] == 2
    assert not stage.state().get("message")


def _touched(quota: str) -> Touched:
    touched = Touched()
    touched.add(kinds.RESOURCEQUOTA, quota)
    return touched
