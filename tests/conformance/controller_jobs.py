"""The life of a job: answers to requests, moves of its phases, what its gang needs.

Jobs are taken as the Go tests build them: without the defaults of the schema, incomplete.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from services.controller.job.facts import PodView
from services.controller.job.minresources import min_resources, pod_usage
from services.controller.job.plan import execute
from services.controller.job.policies import PolicyTables
from services.controller.job.requests import JobRequest
from shared.api import keys
from shared.api.batch import Action, Job, JobEvent, JobSpec, TaskSpec
from shared.jobs.templates import read_template
from tests.conformance.report import expect

_NOW_S = 0.0
_OF_THE_MOMENT = {"lastTransitionTime", "reason", "message"}


def job_as_recorded(plain: dict[str, Any]) -> Job:
    """Return the job with nothing filled in that the case leaves out."""
    spec = {"maxRetry": 0, **plain.get("spec", {})}
    job = msgspec.json.decode(json.dumps({**plain, "spec": spec}), type=Job)
    bare = msgspec.structs.replace(job.spec, queue=spec.get("queue", ""))
    return msgspec.structs.replace(job, spec=bare)


def check_policies(case: dict[str, Any]) -> None:
    """`applyPolicies`: the action that answers a request (J10, J11)."""
    given, job = case["request"], job_as_recorded(case["job"])
    request = JobRequest(
        event=JobEvent(given["event"]) if given.get("event") else JobEvent.OUT_OF_SYNC,
        job_uid=given.get("jobUid") or job.metadata.uid,
        version=given.get("jobVersion", 0),
        task=given.get("taskName", ""),
        pod=given.get("podName", ""),
        exit_code=given.get("exitCode", 0),
        action=Action(given["action"]) if given.get("action") else None,
    )
    found = PolicyTables(job).action(request)
    if "expect" in case:
        expect("action", found.action.value, case["expect"]["action"])
    expect("action", found.action.value, case["actual"]["action"])
    expect("delay", found.delay_s, case["actual"].get("delaySeconds", 0))


def check_move(case: dict[str, Any]) -> None:
    """`state.Execute`: status and deletions after an action (J16 to J21, J37).

    Volcano marks each pod before it deletes it; a kill of a whole job needs no marks here (J21), so
    only deletions are compared.
    """
    given, actual = case["given"], case["actual"]
    step = execute(
        job_as_recorded(given["job"]), _views(given), Action(case["action"]), None, now=_NOW_S
    )
    wanted = actual.get("status", actual.get("storedStatus"))
    expect("status", _comparable(json.loads(msgspec.json.encode(step.status)), wanted), wanted)
    deleted = [f"delete pods {_name_of(given, pod)}" for pod in step.to_delete]
    expect("deletions", sorted(deleted), [c for c in actual["kubeCalls"] if c[:6] == "delete"])


def _views(given: Mapping[str, Any]) -> list[PodView]:
    return [
        PodView(
            name=name,
            uid=pod["metadata"].get("uid", ""),
            task=pod["metadata"].get("annotations", {}).get(keys.TASK_SPEC, ""),
            phase=pod["status"]["phase"],
            deleting="deletionTimestamp" in pod["metadata"],
        )
        for pods in given.get("pods", {}).values()
        for name, pod in pods.items()
    ]


def _name_of(given: Mapping[str, Any], view: PodView) -> str:
    """A case keys its pods by one name and may call them by another."""
    named = {name: pod for pods in given["pods"].values() for name, pod in pods.items()}
    return str(named[view.name]["metadata"]["name"])


def _comparable(status: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what a case does not record: times, reasons and what was not counted in that pass."""
    plain = {k: v for k, v in status.items() if k != "runningDuration"}
    if "taskStatusCount" not in wanted:
        plain.pop("taskStatusCount", None)
    for part in (plain.get("state", {}), *plain.get("conditions", ())):
        for name in _OF_THE_MOMENT:
            part.pop(name, None)
    return {k: v for k, v in plain.items() if v}


def check_min_resources(case: dict[str, Any]) -> None:
    """`calcPGMinResources`: of a job whose tasks have no priorities (J28)."""
    spec = job_as_recorded(case["job"]).spec
    expect("minResources", _min_resources(spec, {}), case["actual"].get("minResources", {}))


def check_min_resources_by_priority(case: dict[str, Any]) -> None:
    """`TasksPriority.CalcPGMinResources`: tasks of higher priority first (J28)."""
    spec = JobSpec(tasks=tuple(_tasks(case["tasks"])), min_available=case["jobMinMember"])
    values = {entry["task"]["name"]: entry["priority"] for entry in case["tasks"]}
    expect("minResources", _min_resources(spec, values), case["actual"].get("minResources", {}))


def _tasks(entries: list[dict[str, Any]]) -> Iterator[TaskSpec]:
    for entry in entries:
        template = msgspec.Raw(json.dumps(entry["task"]["template"]).encode())
        yield msgspec.convert({**entry["task"], "template": template}, TaskSpec)


def _min_resources(spec: JobSpec, priority_of_task: Mapping[str, int]) -> dict[str, str]:
    usage = {task.name: pod_usage(read_template(task).spec) for task in spec.tasks}
    return min_resources(
        spec, usage, priority_of_task, {task.name: task.name for task in spec.tasks}
    )
