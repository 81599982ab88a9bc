"""What a job is made into: pods, PodGroup, the objects of its plugins."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from services.controller.job import sync
from services.controller.job.group import desired_group, group_body
from services.controller.job.podtemplate import PodBuilder, owner_references
from shared.api import keys, kinds
from shared.api.batch import Job, PartitionPolicy, TaskSpec
from shared.jobplugins.ssh import KeyPair, with_keys
from shared.jobs.defaults import defaulted
from tests.conformance.controller_jobs import job_as_recorded
from tests.conformance.report import expect

_KEYS = KeyPair(private="made by the adapter", public="likewise")
_BY_NAME = ("env", "volumeMounts", "volumes", "ports")


def check_pod(case: dict[str, Any]) -> None:
    """`createJobPod`: one pod of a template (J24, J31, J32)."""
    given = case["given"]
    spec = {k: v for k, v in given["job"].get("spec", {}).items() if k != "tasks"}
    plain = {**given["job"], "spec": spec}
    builder = PodBuilder(
        job_as_recorded(plain), _task(given), forwarding=given.get("jobForwarding", False)
    )
    pod = json.loads(builder.body(given["index"]))
    expect("pod", _canonical(pod), _canonical(case["actual"]["pod"]))


def _task(given: dict[str, Any]) -> TaskSpec:
    """The task of a case is named by its template; the schema would not let its sizes through."""
    stated = {
        k: v for k, v in given["taskSpec"].items() if k not in {"template", "partitionPolicy"}
    }
    stated = {"name": given["template"]["metadata"]["name"], "replicas": 1, **stated}
    task = msgspec.convert(stated, TaskSpec)
    partition = None
    if sizes := given["taskSpec"].get("partitionPolicy"):
        partition = PartitionPolicy(
            total_partitions=sizes.get("totalPartitions", 0),
            partition_size=sizes.get("partitionSize", 0),
            min_partitions=sizes.get("minPartitions", 0),
        )
    return msgspec.structs.replace(
        task,
        template=msgspec.Raw(json.dumps(given["template"]).encode()),
        partition_policy=partition,
    )


def check_expansion(case: dict[str, Any]) -> None:
    """`expandJob`: everything that a new job is made into (J27 to J32, JP1 to JP8).

    The part of Volcano that marks claims (J30) was not run when the cases were recorded.
    """
    job, actual = _admitted(case["job"]), case["actual"]
    group = group_body(job, desired_group(job, {}))
    expect("podGroup", {k: group[k] for k in ("metadata", "spec")}, actual["podGroup"])
    marks = {k: v for k, v in sync.marks(job).items() if not k.startswith(keys.VOLUME_MARK)}
    expect("controlledResources", marks, actual.get("controlledResources", {}))
    for kind, field in (
        ("Service", "services"),
        ("ConfigMap", "configMaps"),
        ("NetworkPolicy", "networkPolicies"),
    ):
        recorded = [{k: v for k, v in o.items() if k != "status"} for o in actual.get(field, ())]
        expect(field, _by_name(_companions(job, kind)), _by_name(recorded))
    recorded = [(o["secret"]["metadata"]["name"], o["dataKeys"]) for o in actual.get("secrets", ())]
    expect("secrets", list(_secrets(job)), recorded)
    made = [
        _canonical(json.loads(PodBuilder(job, task).body(index)))
        for task in job.spec.tasks
        for index in range(task.replicas)
    ]
    wanted = [_canonical(pod) for pod in actual["pods"]]
    expect(
        "names of pods",
        [p["metadata"]["name"] for p in made],
        [p["metadata"]["name"] for p in wanted],
    )
    for one, other in zip(made, wanted, strict=True):
        expect(f"pod {other['metadata']['name']}", one, other)


def _admitted(plain: dict[str, Any]) -> Job:
    """Recorded behind admission, which adds the plugins that others imply (JP9)."""
    given = job_as_recorded(plain)
    job = defaulted(given, scheduler_name="volcano")
    asked = msgspec.structs.replace(job.spec, plugins=given.spec.plugins, queue=given.spec.queue)
    return msgspec.structs.replace(job, spec=asked)


def _companions(job: Job, kind: str) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {
                "name": companion.name,
                "namespace": job.metadata.namespace,
                "ownerReferences": owner_references(job),
            },
            **companion.body,
        }
        for companion in sync.companions(job)
        if companion.kind.kind == kind
    ]


def _secrets(job: Job) -> Iterator[tuple[str, list[str]]]:
    for companion in sync.companions(job):
        if companion.kind is kinds.SECRET:
            yield companion.name, sorted(with_keys(companion.body, _KEYS)["data"])


def _by_name(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(objects, key=lambda found: found["metadata"]["name"])


def _canonical(pod: dict[str, Any]) -> dict[str, Any]:
    """Names of volumes for claims are made up (J30); some lists have no order; empty is absent."""
    spec = pod.get("spec") or {}
    metadata = {field: value for field, value in pod["metadata"].items() if value}
    text = json.dumps({"metadata": metadata, **({"spec": spec} if spec else {})})
    claims = [v["name"] for v in spec.get("volumes") or () if "persistentVolumeClaim" in v]
    for index, name in enumerate(claims):
        text = text.replace(f'"{name}"', f'"volume-{index}"')
    found = json.loads(text)
    for owner in _owners_of_lists(found.get("spec", {})):
        for field in _BY_NAME:
            if field in owner:
                owner[field] = sorted(
                    owner[field], key=lambda item: json.dumps(item, sort_keys=True)
                )
    return found  # type: ignore[no-any-return]


def _owners_of_lists(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()
