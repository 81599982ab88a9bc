"""The objects beside the pods of a job, counted in requests: what changed, by one request each."""

from collections import Counter
from typing import Any

import pytest
from typing_extensions import override

from shared.api import kinds
from shared.kube.wire import Request
from tests.unit.controller.reconcilers import NAMESPACE, Process, job_spec
from tests.unit.controller.test_jobs_die import JobStage

BESIDE = ("services", "configmaps", "networkpolicies", "secrets", "persistentvolumeclaims")
PLUGINS = {"svc": [], "ssh": []}


class Counted(Process):
    """A process whose requests about objects beside pods are counted, reads among them."""

    def __init__(self, stage: JobStage) -> None:
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []
        self.all: list[str] = []
        """Every request, whatever it is about."""
        super().__init__(stage)

    @override
    async def exchange(self, request: Request) -> bytes:
        plural = request.path.partition(f"/namespaces/{NAMESPACE}/")[2].partition("/")[0]
        self.all.append(f"{request.method} {plural}")
        if plural in BESIDE:
            self.asked[request.method] += 1
            self.order.append(f"{request.method} {plural}")
        return await super().exchange(request)

    async def settle(self) -> None:
        """Look until all is as it should be."""
        for _ in range(4):
            self.relist()
            await self.look("jobs")
            await self.stage.clock.advance(1.0)

    def forget(self) -> None:
        """Count from here."""
        self.asked.clear()
        self.order.clear()
        self.all.clear()


async def started(plugins: dict[str, list[str]]) -> tuple[JobStage, Counted]:
    """Return a job that runs, and the process that made it."""
    stage = JobStage()
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    tasks = [{"name": "a", "replicas": 2, "template": template}]
    stage.create(kinds.JOB, "j", {"tasks": tasks, "plugins": plugins, "minAvailable": 1})
    process = Counted(stage)
    await process.settle()
    stage.advance_jobs()
    await process.settle()
    return stage, process


def scale(stage: JobStage, replicas: int, **spec: Any) -> None:
    """Let the user want more or fewer pods."""
    task = stage.job()["spec"]["tasks"][0]
    wanted = {"tasks": [{**task, "replicas": replicas}], **spec}
    stage.ask("PATCH", kinds.JOB, "j", {"spec": wanted})


def hosts(stage: JobStage) -> str:
    """Return the list of hosts that the pods see."""
    config: dict[str, Any] = stage.ask("GET", kinds.CONFIGMAP, "j-svc")
    return str(config["data"]["VC_A_HOSTS"])


async def test_what_a_new_job_needs_is_created_without_a_question() -> None:
    _, process = await started(PLUGINS)
    assert process.asked == {"POST": 4}, "a Service, a ConfigMap, a NetworkPolicy and a Secret"


async def test_the_hosts_of_a_scaled_job_cost_one_request() -> None:
    stage, process = await started(PLUGINS)
    process.forget()
    scale(stage, 5)
    await process.settle()
    assert hosts(stage) == ",".join(f"j-a-{n}.j" for n in range(5))
    assert process.order == ["PATCH configmaps"]
    process.forget()
    await process.settle()
    assert process.asked == {}


@pytest.mark.parametrize("replicas", [0, 1, 5])
async def test_the_hosts_of_a_scaled_job_are_the_first_that_is_written(replicas) -> None:
    stage, process = await started(PLUGINS)
    process.forget()
    scale(stage, replicas, minAvailable=0)
    await process.settle()
    assert process.all[0] == "PATCH configmaps", process.all
    assert len(process.all) > 1, "pods and PodGroup follow"


async def test_a_process_that_takes_a_job_over_reads_once_and_writes_what_differs() -> None:
    stage, before = await started(PLUGINS)
    assert before.asked["POST"] == 4
    scale(stage, 3)
    after = Counted(stage)
    await after.settle()
    assert hosts(stage) == "j-a-0.j,j-a-1.j,j-a-2.j"
    assert after.asked == {"GET": 3, "POST": 1, "PATCH": 1}, "a Secret is made blindly"
    after.forget()
    scale(stage, 4)
    await after.settle()
    assert after.order == ["PATCH configmaps"]


async def test_what_was_deleted_comes_back_when_the_hosts_change() -> None:
    stage, process = await started(PLUGINS)
    stage.ask("DELETE", kinds.CONFIGMAP, "j-svc")
    process.forget()
    scale(stage, 3)
    await process.settle()
    assert hosts(stage) == "j-a-0.j,j-a-1.j,j-a-2.j"
    assert process.order == ["PATCH configmaps", "POST configmaps"]


async def test_a_job_that_begins_again_gets_back_whatever_went_meanwhile() -> None:
    stage, process = await started(PLUGINS)
    secret = "j-ssh"
    for kind, name in ((kinds.SERVICE, "j"), (kinds.SECRET, secret)):
        stage.ask("DELETE", kind, name)
    stage.order("RestartJob")
    await process.settle()
    assert stage.names(kinds.SERVICE) == ["j"]
    assert stage.names(kinds.SECRET) == [secret]


async def test_no_secret_is_read_changed_or_deleted_whatever_becomes_of_a_job() -> None:
    """Only a create needs no right to others' Secrets, and roles know no names of objects to be."""
    stage, process = await started(PLUGINS)
    (secret,) = stage.names(kinds.SECRET)
    before = stage.ask("GET", kinds.SECRET, secret)
    asked = list(process.order)
    for action in ("RestartJob", "AbortJob", "ResumeJob", "CompleteJob"):
        taker = Counted(stage)
        stage.order(action)
        await taker.settle()
        stage.advance_jobs()
        await taker.settle()
        asked += taker.order
    assert {request for request in asked if "secrets" in request} == {"POST secrets"}
    assert stage.ask("GET", kinds.SECRET, secret) == before, (
        "its keys are those that pods have read"
    )


async def test_a_new_job_waits_for_the_end_of_a_secret_that_a_deleted_job_has_left() -> None:
    stage = beginning()
    old = stage.ask("GET", kinds.SECRET, "j-ssh")
    process = Counted(stage)
    await process.settle()
    stage.advance_jobs()
    process.relist()
    await process.look("jobs")
    stage.ask("DELETE", kinds.SECRET, "j-ssh")  # as the garbage collector does
    await process.settle()
    made = stage.ask("GET", kinds.SECRET, "j-ssh")
    assert made["metadata"]["uid"] != old["metadata"]["uid"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == stage.job()["metadata"]["uid"]


async def test_a_secret_of_the_user_in_the_way_holds_a_job_up_for_seconds_only() -> None:
    stage = beginning()
    process = Counted(stage)
    for _ in range(4):
        await process.settle()
        stage.advance_jobs()
    assert stage.names(kinds.POD) == ["j-a-0"]
    assert process.asked["GET"] == 0


def beginning() -> JobStage:
    """Return a new job with the plugin ssh, and a Secret of the name that it needs."""
    stage = JobStage()
    stage.create(kinds.SECRET, "j-ssh", {})
    stage.create(kinds.JOB, "j", job_spec(plugins={"ssh": []}, minAvailable=1))
    return stage


async def test_the_end_of_a_job_deletes_what_is_known_without_a_question() -> None:
    stage, process = await started(PLUGINS)
    process.forget()
    for name in ("j-a-0", "j-a-1"):
        stage.report(name, "Succeeded")
    await process.settle()
    assert process.asked["GET"] == 0
    assert process.asked["DELETE"] == process.asked.total() > 0
    assert stage.names(kinds.SERVICE) == []


@pytest.mark.parametrize("kind", [kinds.SERVICE, kinds.CONFIGMAP, kinds.NETWORKPOLICY])
async def test_another_owners_object_of_the_name_is_neither_changed_nor_deleted(
    kind: kinds.Kind,
) -> None:
    stage = JobStage()
    name = "j-svc" if kind is kinds.CONFIGMAP else "j"
    body = {"apiVersion": kind.api_version, "kind": kind.kind}
    meta = {"name": name, "namespace": NAMESPACE}
    content: dict[str, Any] = {"data": {"a": "b"}} if kind is kinds.CONFIGMAP else {"spec": {}}
    if kind is kinds.NETWORKPOLICY:
        content = {"spec": {"podSelector": {}}}
    if kind is kinds.SERVICE:
        content = {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    foreign = stage.ask("POST", kind, body={**body, "metadata": meta, **content})
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    tasks = [{"name": "a", "replicas": 1, "template": template}]
    stage.create(kinds.JOB, "j", {"tasks": tasks, "plugins": {"svc": []}, "minAvailable": 1})
    process = Counted(stage)
    await process.settle()
    stage.order("AbortJob")
    await process.settle()
    assert stage.ask("GET", kind, name) == foreign
