"""Volcano's own recorded decisions, where the corpus is at hand (reference material, not ours).

The cases are examples of the rules J10, J11, J15 to J21, J27 to J32 and JP1 to JP8.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.job import sync
from services.controller.job.counts import count
from services.controller.job.defaults import defaulted
from services.controller.job.facts import PodView
from services.controller.job.group import group_body, read_template
from services.controller.job.kills import still
from services.controller.job.minresources import min_resources, pod_usage
from services.controller.job.plan import execute
from services.controller.job.podtemplate import PodForge, owner_references
from services.controller.job.policies import answer
from services.controller.job.requests import Request
from services.controller.jobplugins.ssh import KeyPair, with_keys
from shared.api import kinds
from shared.api.batch import Action, Job, JobEvent, JobPhase, JobSpec, TaskSpec

CORPUS = Path(__file__).parents[4] / "shared" / "conformance" / "controller" / "job"
CASES = {path.stem: path for path in sorted(CORPUS.glob("*.json"))}

KEYS = KeyPair(private="made by the adapter", public="likewise")

COUNTED_AFRESH = {"TestPendingState_Execute-08"}
"""Volcano leaves the counts as they were while the PodGroup waits; ours are always fresh (J23)."""

BEYOND_THE_SCHEMA = {"TestPartitionPolicyEdgeCases-01", "TestPartitionPolicyEdgeCases-02"}
"""A partition of no pods, an index below zero: neither can reach us, the CRD refuses them."""


def _cases(function: str) -> list[str]:
    return [n for n, p in CASES.items() if json.loads(p.read_bytes())["function"] == function]


def _load(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(CASES[name].read_bytes())
    return case


def _job(plain: dict[str, Any]) -> Job:
    """The job as the Go tests build it: without the defaults of the CRD."""
    spec = {"maxRetry": 0, **plain.get("spec", {})}
    job = msgspec.json.decode(json.dumps({**plain, "spec": spec}), type=Job)
    bare = msgspec.structs.replace(job.spec, queue=spec.get("queue", ""))
    return msgspec.structs.replace(job, spec=bare)


def _without_task_counts(status: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in status.items() if k not in {"runningDuration", "taskStatusCount"}}


@pytest.mark.parametrize("name", _cases("applyPolicies"))
def test_a_request_is_answered_as_volcano_answers_it(name: str) -> None:
    case = _load(name)
    given = case["request"]
    asked = Request(
        event=JobEvent(given["event"]) if given.get("event") else JobEvent.OUT_OF_SYNC,
        job_uid=given.get("jobUid", ""),
        version=given.get("jobVersion", 0),
        task=given.get("taskName", ""),
        exit_code=given.get("exitCode", 0),
        action=Action(given["action"]) if given.get("action") else None,
    )
    found = answer(_job(case["job"]), asked)
    assert found.action == case["actual"]["action"]
    assert found.delay_s == case["actual"]["delaySeconds"]


@pytest.mark.parametrize("name", _cases("state.Execute"))
def test_an_action_moves_a_job_as_in_volcano(name: str) -> None:
    case = _load(name)
    given = case["given"]
    job = _job(given["job"])
    pods = [
        PodView(name=pod_name, uid=pod["metadata"].get("uid", ""), phase=pod["status"]["phase"])
        for pods in given.get("pods", {}).values()
        for pod_name, pod in pods.items()
    ]
    step = execute(job, pods, Action(case["action"]), None, now=0.0)
    status = _without_task_counts(json.loads(msgspec.json.encode(step.status)))
    for part in (status.get("state", {}), *status.get("conditions", ())):
        part.pop("lastTransitionTime", None)
        part.pop("reason", None)
        part.pop("message", None)
    expected = _without_task_counts(case["actual"]["status"])
    if name in COUNTED_AFRESH:
        status, expected = status["state"], expected["state"]
    assert status == expected
    killed = [call.split()[-1] for call in case["actual"]["kubeCalls"] if "delete" in call]
    if step.move.enters or step.move.do.value == "kill":
        assert [pod.name for pod in step.doomed] == killed


@pytest.mark.parametrize("name", _cases("calcPGMinResources"))
def test_min_resources_of_a_job_are_volcanos(name: str) -> None:
    case = _load(name)
    job = _job(case["job"])
    assert _min_resources(job.spec, {}) == case["actual"]["minResources"]


@pytest.mark.parametrize("name", _cases("TasksPriority.CalcPGMinResources"))
def test_min_resources_follow_the_priority_of_tasks(name: str) -> None:
    case = _load(name)
    tasks = [msgspec.convert(t["task"], TaskSpec) for t in _raw_templates(case["tasks"])]
    spec = JobSpec(tasks=tuple(tasks), min_available=case["jobMinMember"])
    values = {t["task"]["name"]: t["priority"] for t in case["tasks"]}
    assert _min_resources(spec, values) == case["actual"]["minResources"]


def _raw_templates(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in tasks:
        template = msgspec.Raw(json.dumps(entry["task"]["template"]).encode())
        yield {**entry, "task": {**entry["task"], "template": template}}


def _min_resources(spec: JobSpec, priority_of_task: dict[str, int]) -> dict[str, str]:
    usage = {task.name: pod_usage(read_template(task).spec) for task in spec.tasks}
    classes = {task.name: task.name for task in spec.tasks}
    return min_resources(spec, usage, priority_of_task, classes)


@pytest.mark.parametrize("name", [n for n in _cases("createJobPod") if n not in BEYOND_THE_SCHEMA])
def test_a_pod_is_made_of_its_template_as_in_volcano(name: str) -> None:
    case = _load(name)
    given = case["given"]
    template = json.dumps(given["template"]).encode()
    plain = {"name": given["template"]["metadata"]["name"], **given["taskSpec"]}
    plain.pop("template", None)
    task = msgspec.convert(_lenient(plain), TaskSpec)
    task = msgspec.structs.replace(task, template=msgspec.Raw(template))
    spec = {k: v for k, v in given["job"].get("spec", {}).items() if k != "tasks"}
    plain_job = {**given["job"], "spec": spec}
    forge = PodForge(_job(plain_job), task, forwarding=given["jobForwarding"])
    pod = json.loads(forge.body(given["index"]))
    made = {"metadata": pod["metadata"], **({"spec": pod["spec"]} if pod["spec"] else {})}
    assert made == case["actual"]["pod"]


def _lenient(task: dict[str, Any]) -> dict[str, Any]:
    """Some upstream tables have no partitions, against the CRD; the bound is not what they test."""
    policy = task.get("partitionPolicy")
    if policy and policy.get("totalPartitions", 0) < 1:
        return {**task, "partitionPolicy": {**policy, "totalPartitions": 1}}
    return task


def _expandable() -> list[str]:
    return _cases("expandJob")


@pytest.mark.parametrize("name", _expandable())
def test_a_job_becomes_the_objects_that_volcano_makes(name: str) -> None:
    case = _load(name)
    given = _job(case["job"])
    job = defaulted(given, scheduler_name="volcano")
    # Recorded behind admission: what a plugin implies is not in there (JP9).
    asked = msgspec.structs.replace(job.spec, plugins=given.spec.plugins)
    job = msgspec.structs.replace(job, spec=asked)
    actual = case["actual"]
    group = group_body(job, {})
    assert {k: group[k] for k in ("metadata", "spec")} == actual["podGroup"]
    assert sync.marks(job) == actual["controlledResources"]
    for kind, field in (
        ("Service", "services"),
        ("ConfigMap", "configMaps"),
        ("NetworkPolicy", "networkPolicies"),
    ):
        made = [
            {
                "metadata": {
                    "name": c.name,
                    "namespace": job.metadata.namespace,
                    "ownerReferences": owner_references(job),
                },
                **c.body,
            }
            for c in sync.companions(job)
            if c.kind.kind == kind
        ]
        expected = [{k: v for k, v in o.items() if k != "status"} for o in actual.get(field, [])]
        assert made == expected
    assert [
        {"name": c.name, "keys": sorted(with_keys(c.body, KEYS)["data"])}
        for c in sync.companions(job)
        if c.kind is kinds.SECRET
    ] == [
        {"name": o["secret"]["metadata"]["name"], "keys": o["dataKeys"]}
        for o in actual.get("secrets", [])
    ]
    pods = [
        json.loads(PodForge(job, task).body(index))
        for task in job.spec.tasks
        for index in range(task.replicas)
    ]
    assert [_comparable(p, case["job"]) for p in pods] == [
        _comparable(p, case["job"]) for p in actual["pods"]
    ]


def _comparable(pod: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """Lists by name; the names of volumes for claims are made up (J30)."""
    text = json.dumps({"metadata": pod["metadata"], "spec": pod["spec"]})
    for index, volume in enumerate(v for v in pod["spec"].get("volumes", ()) if "pers" in str(v)):
        text = text.replace(volume["name"], f"made-up-{index}")
    return json.loads(text)  # type: ignore[no-any-return]


def test_nothing_is_left_to_kill_in_a_job_without_pods() -> None:
    job = _job({"metadata": {"name": "j"}, "status": {"state": {"phase": JobPhase.ABORTING}}})
    assert still(job, {}) == ()
    assert count(()).terminating == 0
