"""Objects through the real webhook path: defaulted, refused with field and reason, let through."""

import asyncio
import secrets

import pytest

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from shared.api import keys
from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api, ApiError, path
from tests.support.wait import until
from tests.support.world import pod, queue

pytestmark = pytest.mark.asyncio(loop_scope="session")

BATCH = "batch.volcano.sh/v1alpha1"
LEAST = "volcano.sh/jdb-min-available"
EXTRA = {
    "cronjobs": "/apis/batch.volcano.sh/v1alpha1",
    "jobflows": "/apis/flow.volcano.sh/v1alpha1",
    "hypernodes": "/apis/topology.volcano.sh/v1alpha1",
}


def small(**extra) -> dict:
    return world.task("w", 1, cpu="100m", memory="16Mi", **extra)


def bare(name: str, **spec) -> dict:
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [{"replicas": 2, "template": small()["template"]}], **spec},
    }


async def test_a_bare_job_is_stored_with_its_defaults_w10_w11_w12_w13(
    door: Door, api: Api, space: str
) -> None:
    await door.refuses("jobs", bare("first", queue="nope"), space, words="no queue 'nope'")
    made = await api.create("jobs", bare("j", plugins={"pytorch": []}), space)
    spec = made["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"]) == ("default", "volcano", 3)
    assert spec["minAvailable"] == 2
    assert (spec["tasks"][0]["name"], spec["tasks"][0]["minAvailable"]) == ("default0", 2)
    assert set(spec["plugins"]) == {"pytorch", "svc"}


BAD = {
    "unknown-plugin": (
        world.job("j", small(), plugins={"big_plugin": []}),
        ("spec.plugins.big_plugin: unable to find job plugin: big_plugin",),
    ),
    "circle": (
        world.job(
            "j",
            {**small(dependsOn={"name": ["b"]}), "name": "a"},
            {**small(dependsOn={"name": ["a"]}), "name": "b"},
        ),
        ("spec.tasks[0].dependsOn.name", "doesn't form a directed acyclic graph(DAG)"),
    ),
    "duplicate-names": (
        world.job("j", small(), small()),
        ("spec.tasks[1].name: duplicated task name w",),
    ),
    "two-faults": (
        world.job("j", small(), min_available=5, policies=[{"action": "Dance", "event": "*"}]),
        ("spec.minAvailable: 5 is more", "spec.policies[0].action: invalid policy action 'Dance'"),
    ),
    "no-image": (
        world.job("j", {**small(), "template": {"spec": {"containers": [{"name": "a"}]}}}),
        ("spec.tasks[0].template.spec.containers[0].image", "Required value"),
    ),
    "root-queue": (
        world.job("j", small(), queue="root"),
        ("spec.queue: can not submit job to root queue",),
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_job_is_refused_with_path_and_reason_w20_w21_w22_w23_w24_w25(
    case: str, door: Door, space: str
) -> None:
    body, words = BAD[case]
    said = await door.refuses("jobs", body, space, words="validatejob.volcano.sh")
    assert all(word in said for word in words), said


SCHEMA = {
    "negative-replicas": ({"replicas": -1}, "spec.tasks[0].replicas"),
    "an-event-that-there-is-not": (
        {"replicas": 1, "policies": [{"event": "Boom", "action": "AbortJob"}]},
        "spec.tasks[0].policies[0].event",
    ),
    "partitions": (
        {"replicas": 1, "partitionPolicy": {"totalPartitions": 0, "partitionSize": 1}},
        "spec.tasks[0].partitionPolicy.totalPartitions",
    ),
}


@pytest.mark.parametrize("case", SCHEMA)
async def test_what_a_schema_can_say_needs_no_webhook_w20(case: str, api: Api, space: str) -> None:
    fields, path = SCHEMA[case]
    body = bare("j")
    body["spec"]["tasks"] = [{"name": "a", "template": small()["template"], **fields}]
    said = await Door(api, None, "nobody").said("jobs", body, space)
    assert path in said
    assert "admission webhook" not in said


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_an_object_that_is_too_large_is_refused_with_the_bound(
    door: Door, space: str
) -> None:
    body = bare("j")
    body["metadata"]["annotations"] = {"a": "x" * 300_000}
    assert "Too long: may not be more than 262144 bytes" in await door.said("jobs", body, space)
    body["metadata"]["annotations"] = {}
    body["spec"]["plugins"] = {"env": ["x" * 4_000_000]}
    assert "limit is 3145728" in await door.said("jobs", body, space)


async def test_a_job_can_be_scaled_and_not_otherwise_changed_w26(
    door: Door, api: Api, space: str
) -> None:
    await api.create("jobs", world.job("j", small()), space)
    await api.patch("jobs", space, "j", {"spec": {"minAvailable": 0}})
    change = {"spec": {"queue": "other", "minAvailable": 1}}
    with pytest.raises(Exception, match=r"spec\.queue: cannot be changed: job updates may not"):
        await api.patch("jobs", space, "j", change)
    await api.patch("jobs", space, "j", {"metadata": {"labels": {"a": "b"}}})


async def test_a_queue_fits_into_the_tree_and_goes_last_w50_w51_w53_w54(
    door: Door, api: Api, space: str
) -> None:
    parent, child = f"{space}-parent", f"{space}-child"
    made = await api.create("queues", queue(parent, capability={"cpu": 4}))
    assert made["spec"]["reclaimable"] is True
    big = queue(child, parent=parent, capability={"cpu": 8})
    said = await door.refuses("queues", big, words="validatequeue.volcano.sh")
    assert f"queue {child} capability[cpu]=8 exceeds its ancestor's capability=4" in said
    await api.create("queues", queue(child, parent=parent, capability={"cpu": 2}))
    with pytest.raises(
        Exception, match=f"can not be deleted because it has 1 child queues: {child}"
    ):
        await api.delete("queues", "", parent)
    refused = await door.said("jobs", world.job("j", small(), queue=parent), space)
    assert "can only submit job to leaf queue" in refused
    with pytest.raises(Exception, match="`default` queue can not be deleted"):
        await api.delete("queues", "", "default")
    await api.delete("queues", "", child)
    await api.delete("queues", "", parent)


async def test_a_collection_of_queues_is_deleted_but_for_those_with_children_w54(
    door: Door, api: Api, space: str
) -> None:
    """Such a request names nobody; the hook has to look at each object. They go by their names."""
    labels = {"of": space}
    for name, parent in (("1", "root"), ("2", f"{space}-1")):
        body = queue(f"{space}-{name}", parent=parent)
        body["metadata"]["labels"] = labels
        await api.create("queues", body)
    leaf = queue(f"{space}-leaf")
    leaf["metadata"]["labels"] = {"of": f"{space}-leaf"}
    await api.create("queues", leaf)
    all_of = {"params": {"labelSelector": f"of={space}-leaf"}}
    await api.request("DELETE", path("queues"), **all_of)
    selected = {"params": {"labelSelector": f"of={space}"}}
    with pytest.raises(ApiError, match=f"it has 1 child queues: {space}-2"):
        await api.request("DELETE", path("queues"), **selected)
    left = {found["metadata"]["name"] for found in await api.items("queues")}
    assert f"{space}-leaf" not in left
    assert f"{space}-1" in left


async def test_a_job_may_follow_its_queue_at_once_w24(door: Door, api: Api, space: str) -> None:
    """Nothing is refused for what a list of a moment ago did not show."""
    for number in range(5):
        name = f"{space}-{number}"
        await api.create("queues", queue(name))
        assert await door.said("jobs", world.job(f"j{number}", small(), queue=name), space) == ""


async def test_a_group_goes_into_the_queue_of_its_namespace_w40(
    door: Door, api: Api, space: str
) -> None:
    team = f"{space}-team"
    await api.create("queues", queue(team))
    annotations = {"annotations": {"scheduling.volcano.sh/queue-name": team}}
    await api.patch("namespaces", "", space, {"metadata": annotations})
    await door.refuses("queues", queue("q", parent="q"), words="cannot use itself as parent")
    assert (await api.create("podgroups", world.group(), space))["spec"]["queue"] == team
    lost = world.group("h", queue="nope")
    assert "spec.queue: unable to find queue" in await door.said("podgroups", lost, space)


async def accounts_ready(plane: ControlPlane, space: str) -> None:
    """Wait until pods can be created in a new namespace."""
    async with admin.connect(plane.url, plane.pki) as client:

        async def probe() -> bool:
            return not await client.accounts_ready(space)

        await until(probe, deadline_s=30)


async def test_pods_come_by_only_with_something_to_read_w32(
    door: Door, api: Api, plane: ControlPlane, space: str
) -> None:
    await accounts_ready(plane, space)
    bad = pod("p", annotations={LEAST: "0"})
    said = await door.refuses("pods", bad, space, words="validatepod.volcano.sh")
    assert "it must be a positive integer" in said
    before = await door.calls("/pods/validate")
    assert await door.said("pods", pod("q"), space) == ""
    assert await door.calls("/pods/validate") == before
    assert await door.said("pods", pod("r", annotations={LEAST: "50%"}), space) == ""
    assert await door.calls("/pods/validate") == before + 1


async def test_a_pod_that_asks_for_it_gets_the_gate_of_its_queue_w31(
    door: Door, api: Api, plane: ControlPlane, space: str
) -> None:
    await accounts_ready(plane, space)
    asks = {keys.QUEUE_GATE: "true"}
    other = {"name": "example.com/wait"}
    made = [
        await api.create("pods", pod("plain", annotations=asks), space),
        await api.create("pods", pod("more", annotations=asks, schedulingGates=[other]), space),
        await api.create("pods", pod("none"), space),
    ]
    ours = {"name": keys.QUEUE_GATE}
    gates = [pod["spec"].get("schedulingGates") for pod in made]
    assert gates == [[ours], [other, ours], None]


@pytest.mark.parametrize(
    ("plural", "body", "words"),
    [
        (
            "cronjobs",
            {"schedule": "61 * * * *", "jobTemplate": {"spec": bare("x")["spec"]}},
            "spec.schedule: schedule is not a valid cron expression: minute: end of range (61)",
        ),
        (
            "jobflows",
            {"flows": [{"name": "a", "dependsOn": {"targets": ["a"]}}]},
            "spec.flows: jobflow Flow is not DAG",
        ),
        (
            "hypernodes",
            {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}],
            },
            "spec.members[0].selector.regexMatch.pattern",
        ),
    ],
)
async def test_flows_schedules_and_hypernodes_are_judged_too_w60(
    plural: str, body: dict, words: str, *, door: Door, space: str
) -> None:
    place = f"{EXTRA[plural]}/{plural}"
    if plural != "hypernodes":
        place = f"{EXTRA[plural]}/namespaces/{space}/{plural}"
    kinds = {"cronjobs": "CronJob", "jobflows": "JobFlow", "hypernodes": "HyperNode"}
    whole = {
        "apiVersion": EXTRA[plural].removeprefix("/apis/"),
        "kind": kinds[plural],
        "metadata": {"name": f"x-{secrets.token_hex(3)}"},
        "spec": body,
    }
    await door.refuses("queues", queue("q", parent="q"), words="cannot use itself as parent")
    with pytest.raises(Exception, match="admission webhook") as refusal:
        await door.api.request("POST", place, whole)
    assert words in str(refusal.value)


async def test_the_systems_namespace_is_let_alone_w01(door: Door, api: Api, space: str) -> None:
    bad = world.job(f"j-{space}", small(), plugins={"nope": []})
    await door.refuses("jobs", bad, space, words="unable to find job plugin: nope")
    assert await door.said("jobs", bad, "kube-system") == ""
    await api.delete("jobs", "kube-system", bad["metadata"]["name"])


async def test_many_jobs_at_once_are_judged_by_few_lists(door: Door, api: Api, space: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        made = [
            tasks.create_task(door.said("jobs", world.job(f"j{n}", small()), space))
            for n in range(60)
        ]
    assert [task.result() for task in made] == [""] * 60
