"""The real API server takes our CRDs and enforces what they say (C01 to C09).

The CRDs are those that the fixture `control_plane` applied from k8s/crds/.
"""

import copy

import msgspec
import pytest

from shared.api import kinds
from shared.api.crds import CRDS, Crd
from tests.support.api import Api, ApiError
from tests.support.world import group, queue

pytestmark = pytest.mark.asyncio(loop_scope="session")
each_crd = pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd.kind.kind)

TEMPLATE = {
    "metadata": {"labels": {"app": "x"}, "creationTimestamp": None},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 2}}}],
        "aFieldOfTomorrow": {"deep": [1, None]},
    },
}


def sparse_job(**spec: object) -> dict:
    tasks = [{"name": "w", "replicas": 1, "template": TEMPLATE}]
    return other(kinds.JOB, "j", **{"tasks": tasks, **spec})


def other(kind: kinds.Kind, name: str, **spec: object) -> dict:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@each_crd
async def test_a_crd_is_established_without_complaint_about_its_schema(api: Api, crd: Crd) -> None:
    name = f"{crd.kind.plural}.{crd.kind.group}"
    status = (await api.get("customresourcedefinitions", name=name))["status"]
    conditions = {c["type"]: (c["status"], c.get("message")) for c in status["conditions"]}
    assert conditions["Established"][0] == "True"
    assert "NonStructuralSchema" not in conditions
    assert status["acceptedNames"].get("shortNames", []) == list(crd.short_names)


async def test_the_server_fills_in_volcanos_defaults(api: Api, namespace: str) -> None:
    made = (await api.create("jobs", sparse_job(networkTopology={}), namespace))["spec"]
    assert made["queue"] == "default"
    assert made["maxRetry"] == 3
    assert made["networkTopology"]["mode"] == "hard"

    stored = await api.create("podgroups", group(minMember=1, subGroupPolicy=[{}]), namespace)
    assert stored["spec"]["queue"] == "default"
    assert stored["spec"]["subGroupPolicy"] == [{"minSubGroups": 0, "subGroupSize": 1}]

    made = (await api.create("queues", queue(f"{namespace}-defaults")))["spec"]
    assert made == {"weight": 1, "dequeueStrategy": "traverse"}


async def test_what_the_server_filled_in_is_what_our_types_assume(api: Api, namespace: str) -> None:
    stored = await api.create("jobs", sparse_job(), namespace)
    view = kinds.decode(kinds.JOB, msgspec.json.encode(stored))
    bare = kinds.decode(kinds.JOB, msgspec.json.encode(sparse_job()))
    assert msgspec.structs.replace(view.spec, tasks=()) == msgspec.structs.replace(
        bare.spec, tasks=()
    )


async def test_a_pod_template_is_stored_verbatim(api: Api, namespace: str) -> None:
    await api.create("jobs", sparse_job(), namespace)
    stored = await api.get("jobs", namespace, "j")
    assert stored["spec"]["tasks"][0]["template"] == TEMPLATE


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": -1}, "spec.minAvailable"),
        ({"minAvailable": "three"}, "spec.minAvailable"),
        ({"maxRetry": -1}, "spec.maxRetry"),
        ({"minSuccess": 0}, "spec.minSuccess"),
        ({"tasks": []}, "spec.tasks"),
        ({"tasks": [{"name": "Not_A_Label"}]}, "spec.tasks[0].name"),
        ({"tasks": [{"replicas": -1}]}, "spec.tasks[0].replicas"),
        ({"tasks": [{"partitionPolicy": {}}]}, "spec.tasks[0].partitionPolicy.totalPartitions"),
        ({"policies": [{"event": "PodDied"}]}, "spec.policies[0].event"),
        ({"volumes": [{}]}, "spec.volumes[0].mountPath"),
        ({"volumes": [{"mountPath": "/a:b"}]}, "spec.volumes[0].mountPath"),
        ({"queue": "Not A Queue"}, "spec.queue"),
        ({"schedulerName": "s" * 64}, "spec.schedulerName"),
        ({"plugins": {"svc": "yes"}}, "spec.plugins.svc"),
    ],
    ids=str,
)
async def test_a_malformed_job_is_refused_by_the_name_of_its_field(
    api: Api, namespace: str, spec: dict, field: str
) -> None:
    with pytest.raises(ApiError, match="422") as caught:
        await api.create("jobs", sparse_job(**spec), namespace)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"weight": 65536}, "spec.weight"),
        ({"priority": -1}, "spec.priority"),
        ({"dequeueStrategy": "lifo"}, "spec.dequeueStrategy"),
        ({"capability": {"cpu": "a lot"}}, "spec.capability.cpu"),
        ({"capability": {"cpu": 0.5}}, "spec.capability.cpu"),
        ({"reclaimable": "no"}, "spec.reclaimable"),
    ],
    ids=str,
)
async def test_a_malformed_queue_is_refused_by_the_name_of_its_field(
    api: Api, namespace: str, spec: dict, field: str
) -> None:
    with pytest.raises(ApiError, match="422") as caught:
        await api.create("queues", queue(f"{namespace}-bad", **spec))
    assert field in str(caught.value)


async def test_numbers_are_quantities_too(api: Api, namespace: str) -> None:
    made = await api.create("queues", queue(f"{namespace}-sum", capability={"cpu": 2, "x/y": "3"}))
    assert made["spec"]["capability"] == {"cpu": 2, "x/y": "3"}


async def test_a_command_names_its_target_and_needs_no_uid(api: Api, namespace: str) -> None:
    target = {"apiVersion": kinds.JOB.api_version, "kind": "Job", "name": "j", "uid": "1-2"}
    command = {
        "apiVersion": kinds.COMMAND.api_version,
        "kind": "Command",
        "metadata": {"name": "c"},
        "action": "AbortJob",
        "target": target,
    }
    lame = copy.deepcopy(command)
    lame["target"] = {key: value for key, value in target.items() if key != "name"}
    with pytest.raises(ApiError, match=r"target\.name"):
        await api.create("commands", lame, namespace)
    assert (await api.create("commands", command, namespace))["target"] == target
    short = {
        **command,
        "metadata": {"name": "by-name"},
        "target": {key: value for key, value in target.items() if key != "uid"},
    }
    await api.create("commands", short, namespace)


async def test_a_pod_groups_status_is_written_through_the_object(api: Api, namespace: str) -> None:
    """C03: there is no status subresource, and tools write the status with a plain update."""
    await api.create("podgroups", group(minMember=1), namespace)
    with pytest.raises(ApiError, match="404"):
        await api.patch("podgroups", namespace, "g", {"status": {"phase": "Running"}}, "status")
    await api.patch("podgroups", namespace, "g", {"status": {"phase": "Running"}})
    assert (await api.get("podgroups", namespace, "g"))["status"]["phase"] == "Running"
    with pytest.raises(ApiError, match=r"status\.phase"):
        await api.patch("podgroups", namespace, "g", {"status": {"phase": "Asleep"}})


@pytest.mark.parametrize(("plural", "name"), [("jobs", "j"), ("queues", "")])
async def test_a_status_is_written_apart_where_volcano_has_it_so(
    api: Api, namespace: str, plural: str, name: str
) -> None:
    body = sparse_job() if plural == "jobs" else queue(f"{namespace}-apart")
    name = name or body["metadata"]["name"]
    await api.create(plural, body, namespace)
    await api.patch(plural, namespace, name, {"status": {"pending": 1}})
    assert "pending" not in (await api.get(plural, namespace, name)).get("status", {})
    await api.patch(plural, namespace, name, {"status": {"pending": 1}}, "status")
    assert (await api.get(plural, namespace, name))["status"]["pending"] == 1


async def test_the_server_fills_in_the_defaults_of_a_cron_job_c02a(
    api: Api, namespace: str
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": sparse_job()["spec"]}
    body = other(kinds.CRONJOB, "c", schedule="@daily", jobTemplate=template)
    made = (await api.create("cronjobs", body, namespace))["spec"]
    assert made["concurrencyPolicy"] == "Allow"
    assert made["suspend"] is False
    assert made["successfulJobsHistoryLimit"] == 3
    assert made["failedJobsHistoryLimit"] == 1
    assert made["jobTemplate"]["metadata"] == {"labels": {"a": "b"}}
    assert made["jobTemplate"]["spec"]["queue"] == "default"
    assert made["jobTemplate"]["spec"]["tasks"][0]["template"] == TEMPLATE


TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (kinds.CRONJOB, {"jobTemplate": {}}, "spec.schedule"),
        (kinds.CRONJOB, {"schedule": "@daily"}, "spec.jobTemplate"),
        (
            kinds.CRONJOB,
            {"schedule": "@daily", "jobTemplate": {}, "concurrencyPolicy": "Queue"},
            "spec.concurrencyPolicy",
        ),
        (
            kinds.CRONJOB,
            {"schedule": "@daily", "jobTemplate": {}, "failedJobsHistoryLimit": -1},
            "spec.failedJobsHistoryLimit",
        ),
        (
            kinds.CRONJOB,
            {"schedule": "@daily", "jobTemplate": {"spec": {"tasks": []}}},
            "spec.jobTemplate.spec.tasks",
        ),
        (kinds.JOBFLOW, {"flows": [{"name": ""}]}, "spec.flows[0].name"),
        (kinds.JOBFLOW, {"jobRetainPolicy": "keep"}, "spec.jobRetainPolicy"),
        (
            kinds.JOBFLOW,
            {"flows": [{"name": "a", "dependsOn": {"probe": {"tcpSocketList": [{}]}}}]},
            "spec.flows[0].dependsOn.probe.tcpSocketList[0].port",
        ),
        (kinds.JOBTEMPLATE, {"minAvailable": -1}, "spec.minAvailable"),
        (kinds.HYPERNODE, {"members": [{"type": "Node"}]}, "spec.tier"),
        (kinds.HYPERNODE, {"tier": 1, "members": []}, "spec.members"),
        (
            kinds.HYPERNODE,
            {"tier": 1, "members": [{"type": "Node", "selector": {}}]},
            "spec.members[0].selector",
        ),
        (kinds.JOBTEMPLATE, {"networkTopology": TIERS}, "spec.networkTopology: Invalid value"),
        (
            kinds.JOBTEMPLATE,
            {
                "tasks": [
                    {
                        "partitionPolicy": {
                            "totalPartitions": 1,
                            "partitionSize": 1,
                            "networkTopology": TIERS,
                        }
                    }
                ]
            },
            "spec.tasks[0].partitionPolicy.networkTopology: Invalid value",
        ),
        (kinds.PODGROUP, {"networkTopology": TIERS}, "spec.networkTopology: Invalid value"),
        (
            kinds.PODGROUP,
            {"subGroupPolicy": [{"name": "a", "networkTopology": TIERS}]},
            "spec.subGroupPolicy[0].networkTopology: Invalid value",
        ),
        (
            kinds.NUMATOPOLOGY,
            {"cpuDetail": {"0": {"numa": -1}}},
            "spec.cpuDetail.0.numa",
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, kinds.Kind) else str(value),
)
async def test_a_malformed_object_is_refused_by_the_name_of_its_field(
    api: Api, namespace: str, kind: kinds.Kind, spec: dict, field: str
) -> None:
    body = other(kind, f"{namespace}-bad", **spec)
    with pytest.raises(ApiError, match="422") as caught:
        await api.request("POST", kind.path(namespace), body)
    assert field in str(caught.value)


async def test_a_cron_job_leaves_room_in_its_name_for_those_of_its_jobs_w60(
    api: Api, namespace: str
) -> None:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {}}}
    await api.create("cronjobs", other(kinds.CRONJOB, "c" * 52, **spec), namespace)
    with pytest.raises(ApiError, match="cronJob name must be no more than 52 characters"):
        await api.create("cronjobs", other(kinds.CRONJOB, "c" * 53, **spec), namespace)


@pytest.mark.parametrize(
    "kind", [kinds.CRONJOB, kinds.JOBFLOW, kinds.JOBTEMPLATE], ids=lambda kind: kind.kind
)
async def test_a_status_of_the_other_kinds_is_written_apart(
    api: Api, namespace: str, kind: kinds.Kind
) -> None:
    spec = {"schedule": "@daily", "jobTemplate": {}} if kind is kinds.CRONJOB else {}
    body = other(kind, "apart", **spec)
    status = {
        kinds.CRONJOB.token: {"active": [{"name": "j"}]},
        kinds.JOBFLOW.token: {"state": {"phase": "Running"}},
        kinds.JOBTEMPLATE.token: {"jobDependsOnList": ["ns.j"]},
    }[kind.token]
    await api.create(kind.plural, {**body, "status": status}, namespace)
    assert "status" not in await api.get(kind.plural, namespace, "apart")
    await api.patch(kind.plural, namespace, "apart", {"status": status}, "status")
    assert (await api.get(kind.plural, namespace, "apart"))["status"] == status
