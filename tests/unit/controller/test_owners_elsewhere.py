"""Who writes in one namespace moves nothing in another: owner references reach no further.

Kubernetes checks nothing of an owner reference when it is written. A tenant who learns a uid (some
are in events) may give an object of theirs any owner at all.
"""

import json
from typing import Any

import msgspec
import pytest

from services.controller.adapters.informers import Informers
from shared.api import kinds
from shared.api.meta import ObjectMeta
from tests.support.structs import job
from tests.unit.controller.reconcilers import Process, Stage, job_spec
from tests.unit.controller.test_informers import asked, held, only_pod
from tests.unit.controller.test_stores import informers, meta, names, owner, put
from tests.unit.controller.world import UID, task


@pytest.fixture
def replica() -> Informers:
    made = Informers(scheduler_names=["volcano"])
    made.written(kinds.JOB, msgspec.json.encode(job(task("a", 2))))
    made.jobs["ns/train"].acquire()
    made.written(kinds.POD, json.dumps(only_pod("real", 5)).encode())
    return made


def elsewhere(body: dict[str, Any]) -> bytes:
    body["metadata"]["namespace"] = "tenant"
    return json.dumps(body).encode()


def test_a_pod_of_another_namespace_neither_fails_a_job_nor_hides_a_pod_of_it(
    replica: Informers,
) -> None:
    replica.written(kinds.POD, elsewhere(only_pod("forged", 9, phase="Failed")))
    assert held(replica) == {"train-a-0": ("real", "Running")}
    assert ("PodFailed", "forged") not in asked(replica)


def test_a_forged_pod_that_came_before_the_job_does_not_become_its_own() -> None:
    replica = Informers(scheduler_names=["volcano"])
    replica.written(kinds.POD, elsewhere(only_pod("forged", 9, phase="Failed")))
    replica.written(kinds.JOB, msgspec.json.encode(job(task("a", 2))))
    assert held(replica) == {}


def test_a_pod_group_of_another_namespace_is_not_the_jobs(replica: Informers) -> None:
    ref = owner("Job", "train", UID)
    group = {
        "metadata": {
            **meta(f"train-{UID}", namespace="tenant", ownerReferences=[ref]),
            "namespace": "tenant",
        },
        "status": {"phase": "Running"},
    }
    touched = replica.written(kinds.PODGROUP, json.dumps(group).encode())
    assert replica.jobs["ns/train"].group is None
    assert "ns/train" not in touched.of(kinds.JOB)


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [("CronJob", "batch.volcano.sh/v1alpha1"), ("JobFlow", "flow.volcano.sh/v1alpha1")],
)
def test_jobs_of_another_namespace_belong_to_no_cron_job_and_no_flow_here(
    kind: str, api_version: str
) -> None:
    held_here = informers()
    ref = owner(kind, "x", "uid-x", api_version)
    put(held_here, kinds.JOB, **{**meta("j", ownerReferences=[ref]), "namespace": "tenant"})
    assert held_here.jobs_of(ObjectMeta(namespace="ns", uid="uid-x")) == []
    assert names(held_here.jobs_of(ObjectMeta(namespace="tenant", uid="uid-x"))) == ["j"]


def test_a_flow_takes_templates_of_its_own_namespace_only() -> None:
    """The mark on a job that says which template it came from counts in its namespace alone."""
    held_here = informers()
    label = {"volcano.sh/createdByJobTemplate": "ns.t"}
    put(held_here, kinds.JOB, **{**meta("j", labels=label), "namespace": "tenant"})
    assert held_here.jobs_from("ns/t") == []


async def test_a_command_reaches_jobs_of_its_own_namespace_only() -> None:
    stage = Stage()
    process = Process(stage)
    command = {
        "apiVersion": kinds.COMMAND.api_version,
        "kind": "Command",
        "metadata": {"name": "c", "namespace": "tenant", "uid": "c", "resourceVersion": "1"},
        "action": "AbortJob",
        "target": {"apiVersion": kinds.JOB.api_version, "kind": "Job", "name": "train"},
    }
    process.informers.written(kinds.JOB, msgspec.json.encode(job(task("a", 1))))
    process.informers.written(kinds.COMMAND, json.dumps(command).encode())
    record = process.informers.jobs["ns/train"]
    assert process.informers.facts_of(record).commands == ()


async def test_a_flow_waits_for_a_template_that_another_namespace_has() -> None:
    stage = Stage()
    process = Process(stage)
    stage.flow("f", {"t": []})
    process.relist()
    template = {"metadata": {**meta("t"), "namespace": "tenant"}, "spec": job_spec()}
    process.informers.written(kinds.JOBTEMPLATE, json.dumps(template).encode())
    await process.look("jobflows")
    assert stage.items(kinds.JOB) == []
    stage.template("t")
    process.relist()
    await process.look("jobflows")
    assert len(stage.items(kinds.JOB)) == 1, "its own namespace has one by now"
