"""Jobs, queues and groups that cannot run: each says which field, and costs the others nothing."""

import re
import secrets
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.borders.conftest import (
    NODE_CPU,
    NODES,
    Borders,
    messages,
    phase_of,
    state_of,
)
from tests.support import world
from tests.support.api import ApiError
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

Json = dict[str, Any]
CONTAINER = "spec.tasks[0].template.spec.containers[0]"
HUGE_TEXT = 1_450_000
"""Letters of a text that is beyond the 1 MiB of a message even when it is compressed."""


def small(**extra: Any) -> Json:
    return world.task("w", 1, cpu="100m", memory="16Mi", **extra)


def template(**spec: Any) -> Json:
    """Return a job whose pod template is changed by `spec`."""
    task = small()
    task["template"]["spec"] |= spec
    return world.job("x", task)


def container(**fields: Any) -> Json:
    """Return a job whose container is changed by `fields`."""
    job = template()
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0] |= fields
    return job


def numa(**fields: Any) -> Json:
    job = container(**fields)
    job["spec"]["tasks"][0]["topologyPolicy"] = "single-numa-node"
    return job


def policy(**fields: Any) -> Json:
    return world.job("x", small(), policies=[{"action": "RestartJob", **fields}])


def named(name: str, job: Json) -> Json:
    job["metadata"]["name"] = name
    return job


BAD: dict[str, tuple[Json, tuple[str, ...]]] = {
    "two-tasks-of-one-name": (
        world.job("x", small(), small()),
        ("spec.tasks[1].name", "duplicated task name w"),
    ),
    "no-image": (container(image=""), (f"{CONTAINER}.image", "Required value")),
    "an-odd-restart-policy": (
        template(restartPolicy="Sometimes"),
        ("spec.tasks[0].template.spec.restartPolicy", 'Unsupported value: "Sometimes"'),
    ),
    "more-wanted-than-there-are": (
        world.job("x", small(), min_available=5),
        ("spec.minAvailable", "5", "replicas (1)"),
    ),
    "a-task-wants-more-than-it-has": (
        world.job("x", small(minAvailable=3)),
        ("spec.tasks[0].minAvailable", "3"),
    ),
    "an-unknown-plugin": (
        world.job("x", small(), plugins={"svcc": []}),
        ("spec.plugins.svcc", "env, hcclrank, mpi", "svc, tensorflow"),
    ),
    "a-plugin-without-its-task": (
        world.job("x", small(), plugins={"mpi": ["--master=boss"]}),
        ("spec.plugins.mpi", "boss", "--master"),
    ),
    "a-plugin-port": (
        world.job("x", small(), plugins={"tensorflow": ["--port=-1"]}),
        ("spec.plugins.tensorflow", "--port=-1", "above 0"),
    ),
    "a-plugin-argument": (
        world.job("x", small(), plugins={"svc": ["--disable-network-policy=perhaps"]}),
        ("spec.plugins.svc", "--disable-network-policy=perhaps", "neither true nor false"),
    ),
    "no-containers": (template(containers=[]), ("spec.tasks[0].template.spec.containers",)),
    "containers-are-a-text": (
        template(containers="main"),
        ("spec.tasks[0].template.spec.containers", "array", "str"),
    ),
    "a-container-is-a-text": (template(containers=["main"]), (CONTAINER, "object", "str")),
    "init-containers-are-an-object": (
        template(initContainers={"name": "a"}),
        ("spec.tasks[0].template.spec.initContainers", "array"),
    ),
    "a-container-without-a-name": (template(containers=[{"image": "a"}]), (CONTAINER, "name")),
    "environment-is-a-text": (
        {**container(env="A=1")},
        (f"{CONTAINER}.env", "array"),
    ),
    "mounts-are-a-text": (container(volumeMounts="/a"), (f"{CONTAINER}.volumeMounts", "array")),
    "resources-are-a-text": (container(resources="1"), (f"{CONTAINER}.resources", "object")),
    "resources-are-a-text-under-a-topology-policy": (
        numa(resources="1"),
        (f"{CONTAINER}.resources", "object"),
    ),
    "half-a-cpu-under-a-topology-policy": (
        numa(),
        (f"{CONTAINER}.resources.requests.cpu", "isn't an integer", "needs whole CPUs"),
    ),
    "no-quantity": (
        container(resources={"requests": {"cpu": "lots"}}),
        (f"{CONTAINER}.resources.requests.cpu", "'lots'", "500m"),
    ),
    "less-than-nothing": (
        container(resources={"limits": {"memory": "-1"}}),
        (f"{CONTAINER}.resources.limits.memory", "less than 0"),
    ),
    "tolerations-are-a-text": (
        template(tolerations="all"),
        ("spec.tasks[0].template.spec.tolerations", "array"),
    ),
    "event-and-exit-code": (policy(event="PodFailed", exitCode=3), ("spec.policies[0]", "exclude")),
    "neither-event-nor-exit-code": (policy(), ("spec.policies[0]", "needed")),
    "exit-code-0": (policy(exitCode=0), ("spec.policies[0].exitCode",)),
    "an-event-that-is-not-for-users": (
        policy(event="PodRunning"),
        ("spec.policies[0].event", "PodRunning", "PodFailed"),
    ),
    "a-timeout-that-is-none": (
        policy(event="PodFailed", timeout="soon"),
        ("spec.policies[0].timeout", "'soon'", "10m"),
    ),
    "an-unknown-dependency": (
        world.job("x", small(dependsOn={"name": ["nobody"]})),
        ("spec.tasks[0].dependsOn.name", "'nobody'"),
    ),
    "a-volume-without-a-claim": (
        world.job("x", small(), volumes=[{"mountPath": "/a"}]),
        ("spec.volumes[0]", "volumeClaim"),
    ),
    "n" * 64: (world.job("x", small()), ("metadata.name", "64", "63 at most")),
    "a.name.with.dots": (
        world.job("x", small(), plugins={"svc": []}),
        ("metadata.name", "svc", "dots"),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bad_jobs(borders: Borders) -> dict[str, str]:
    """All malformed jobs at once, beside each other; name of the case → name of the job."""
    return {case: await borders.submit(named(case, job)) for case, (job, _) in BAD.items()}


@pytest.mark.parametrize("case", BAD)
async def test_a_malformed_job_names_its_field(case: str, borders: Borders, bad_jobs) -> None:
    words = BAD[case][1]
    job = await borders.has("jobs", bad_jobs[case], lambda j: "message" in state_of(j))
    state = state_of(job)
    assert (state["phase"], state["reason"]) == ("Pending", "InvalidSpec"), state
    assert all(word in state["message"] for word in words), state["message"]
    assert state["message"].count(words[0]) == 1, state["message"]
    await borders.warnings(bad_jobs[case], lambda text: state["message"] in text)


async def test_malformed_jobs_are_left_alone_while_others_run(borders: Borders, bad_jobs) -> None:
    async def judged() -> bool:
        jobs = {
            j["metadata"]["name"]: j for j in await borders.api.items("jobs", borders.namespace)
        }
        return all("message" in state_of(jobs[name]) for name in bad_jobs.values())

    await until(judged, deadline_s=20, describe="all malformed jobs are judged")
    before = await versions(borders)
    await borders.a_good_job_runs()
    after = await versions(borders)
    assert {name: after[name] for name in bad_jobs.values()} == {
        name: before[name] for name in bad_jobs.values()
    }


async def versions(borders: Borders) -> dict[str, str]:
    """Return the resourceVersion of each job: it moves with every write."""
    jobs = await borders.api.items("jobs", borders.namespace)
    return {job["metadata"]["name"]: job["metadata"]["resourceVersion"] for job in jobs}


async def test_a_mended_job_runs(borders: Borders) -> None:
    name = await borders.submit(world.job("fresh", small(), min_available=5))
    await borders.has("jobs", name, lambda job: "replicas" in state_of(job).get("message", ""))
    await borders.api.patch("jobs", borders.namespace, name, {"spec": {"minAvailable": 1}})
    await borders.runs(name)
    job = await borders.has("jobs", name, lambda job: phase_of(job) == "Running")
    assert "message" not in state_of(job)


SERVER_REFUSES: dict[str, tuple[Json, str, str]] = {
    "an-odd-pull-policy": (
        container(imagePullPolicy="Perhaps"),
        "FailedCreate",
        "spec.containers[0].imagePullPolicy",
    ),
    "unknown-priority-class": (
        world.job("x", small(), priorityClassName="nosuch"),
        "FailedCreate",
        "no PriorityClass with name nosuch",
    ),
    "an-odd-dns-policy": (
        template(dnsPolicy="Sometimes"),
        "FailedCreate",
        'spec.dnsPolicy: Unsupported value: "Sometimes"',
    ),
    "an-odd-claim": (
        world.job(
            "x", small(), volumes=[{"mountPath": "/a", "volumeClaim": {"accessModes": "once"}}]
        ),
        "PVCError",
        "accessModes",
    ),
}


@pytest.mark.parametrize("case", SERVER_REFUSES)
async def test_what_the_api_server_refuses_of_a_job_is_a_warning_on_it(
    case: str, borders: Borders
) -> None:
    job, reason, words = SERVER_REFUSES[case]
    name = await borders.submit(named("fresh", job))
    await borders.warnings(name, lambda text: reason in text and words in text)
    await borders.a_good_job_runs()
    await borders.api.delete("jobs", borders.namespace, name)


def kind_of(plural: str, **spec: Any) -> Json:
    kind = {"queues": "Queue", "podgroups": "PodGroup"}[plural]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": kind,
        "metadata": {"name": f"b-{secrets.token_hex(4)}"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("plural", "body", "field"),
    [
        ("jobs", world.job("x", {**small(), "replicas": -1}), "spec.tasks[0].replicas"),
        ("jobs", world.job("x"), "spec.tasks"),
        ("jobs", world.job("x", small(), ttlSecondsAfterFinished=-1), "ttlSecondsAfterFinished"),
        ("jobs", world.job("x", {**small(), "name": "A b"}), "spec.tasks[0].name"),
        ("jobs", policy(event="PodExploded"), "spec.policies[0].event"),
        ("jobs", world.job("x", small(), maxRetry="three"), "spec.maxRetry"),
        ("queues", kind_of("queues", weight=0), "spec.weight"),
        ("queues", kind_of("queues", capability={"cpu": "lots"}), "spec.capability.cpu"),
        ("podgroups", kind_of("podgroups", minMember=-1), "spec.minMember"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_the_schema_refuses_names_the_field(
    plural: str, body: Json, field: str, borders: Borders
) -> None:
    with pytest.raises(ApiError, match=re.escape(field)) as refused:
        await borders.api.create(plural, body, borders.namespace)
    assert refused.value.status == 422


async def test_a_job_of_an_unknown_queue_waits_for_it(borders: Borders) -> None:
    queue = kind_of("queues", weight=1)
    missing = queue["metadata"]["name"]
    name = await borders.submit(world.job("fresh", small(), queue=missing))
    job = await borders.has("jobs", name, lambda job: "message" in state_of(job))
    assert state_of(job)["reason"] == "QueueNotOpen"
    assert f"no queue '{missing}'" in state_of(job)["message"]
    await borders.a_good_job_runs()
    await borders.api.create("queues", queue)
    await borders.runs(name)


async def test_a_job_of_a_closed_queue_waits_until_it_is_open(borders: Borders) -> None:
    async def new_queue() -> str:
        """Create a queue; the controller writes its state once it knows of it."""
        made = await borders.api.create("queues", kind_of("queues", weight=1))
        name = str(made["metadata"]["name"])
        await borders.has("queues", name, lambda q: q.get("status", {}).get("state") == "Open")
        return name

    async def set_state(state: str) -> None:
        body = {"status": {"state": state}}
        await borders.api.patch("queues", "", closed, body, sub="status")

    closed = await new_queue()
    await set_state("Closed")
    await new_queue()  # facts of one kind come in order: now it knows that the other is closed
    name = await borders.submit(world.job("fresh", small(), queue=closed))
    job = await borders.has("jobs", name, lambda job: "message" in state_of(job))
    assert f"queue '{closed}' is Closed: open it" in state_of(job)["message"]
    await borders.a_good_job_runs()
    await set_state("Open")
    await borders.runs(name)


async def test_a_group_of_an_unknown_queue_says_so(borders: Borders) -> None:
    group = kind_of("podgroups", minMember=1, queue="nosuch")
    await borders.api.create("podgroups", group, borders.namespace)
    assert await borders.has(
        "podgroups",
        group["metadata"]["name"],
        lambda found: "QueueNotFound: spec.queue: there is no queue 'nosuch'" in messages(found),
    )


def asking(cpu: str, replicas: int = 1, **spec: Any) -> Json:
    task = world.task("w", replicas, cpu=cpu, memory="16Mi")
    task["template"]["spec"] |= spec
    return world.job("fresh", task)


NEVER_FITS: dict[str, tuple[Json, str]] = {
    "a-pod-beyond-the-cluster": (asking("1000"), "overused cpu"),
    "a-gang-beyond-the-cluster": (asking("1", replicas=10 * NODES * NODE_CPU), "overused cpu"),
    "a-resource-that-nobody-has": (
        container(
            resources={
                "requests": {"example.com/gem": "1"},
                "limits": {"example.com/gem": "1"},
            }
        ),
        "overused example.com/gem",
    ),
}


@pytest.mark.parametrize("case", NEVER_FITS)
async def test_a_gang_that_never_fits_says_what_is_short(case: str, borders: Borders) -> None:
    job, words = NEVER_FITS[case]
    name = await borders.submit(named("fresh", job))
    said = await borders.group_of(name, lambda text: words in text)
    await borders.a_good_job_runs()
    assert await borders.group_of(name, lambda text: words in text) == said
    assert await pods_of(borders, name) == []
    await borders.api.delete("jobs", borders.namespace, name)


UNPLACEABLE: dict[str, tuple[Json, str]] = {
    "larger-than-each-node": (asking(str(NODE_CPU + 1)), "Insufficient cpu"),
    "no-node-has-the-label": (
        asking("100m", nodeSelector={"no": "such"}),
        "didn't match Pod's node affinity/selector",
    ),
}


@pytest.mark.parametrize("case", UNPLACEABLE)
async def test_a_pod_that_fits_no_node_says_why(case: str, borders: Borders) -> None:
    job, words = UNPLACEABLE[case]
    name = await borders.submit(job)

    async def told() -> bool:
        return any(words in messages(pod) for pod in await pods_of(borders, name))

    await until(told, deadline_s=20, describe=borders.fleet.logs)
    await borders.group_of(name, lambda text: "NotEnoughResources" in text)
    await borders.a_good_job_runs()
    await borders.api.delete("jobs", borders.namespace, name)


async def pods_of(borders: Borders, job: str) -> list[Json]:
    selector = f"volcano.sh/job-name={job}"
    return await borders.api.items("pods", borders.namespace, labelSelector=selector)


async def test_amounts_that_only_the_schema_can_read_cost_no_other_job(borders: Borders) -> None:
    queue = kind_of("queues", weight=1, capability={"cpu": "1e5.5"})
    await borders.api.create("queues", queue)
    group = kind_of("podgroups", minMember=1, minResources={"cpu": "1e5.5"})
    await borders.api.create("podgroups", group, borders.namespace)
    for plural, body in (("queues", queue), ("podgroups", group)):
        await borders.said(
            "scheduler", '"object_quarantined"', plural, body["metadata"]["name"], "1e5.5"
        )
    await borders.a_good_job_runs()
    await borders.api.delete("queues", "", queue["metadata"]["name"])


@pytest.mark.parametrize(
    ("action", "target"),
    [
        ("Dance", {"name": "nobody", "uid": "1"}),
        ("AbortJob", None),
        ("AbortJob", {"name": "nobody", "uid": "1"}),
    ],
    ids=["unknown-action", "no-target", "nobody"],
)
async def test_a_command_that_nobody_can_obey_disturbs_nobody(
    action: str, target: Json | None, borders: Borders
) -> None:
    command: Json = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"c-{secrets.token_hex(4)}"},
        "action": action,
    }
    if target is not None:
        command["target"] = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **target}
    await borders.api.create("commands", command, borders.namespace)
    await borders.a_good_job_runs()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_job_beyond_the_size_of_a_message_says_so(borders: Borders) -> None:
    job = container(args=[secrets.token_urlsafe(HUGE_TEXT)[:HUGE_TEXT]])
    name = await borders.submit(named("fresh", job))
    seen = await borders.has("jobs", name, lambda job: "message" in state_of(job))
    assert state_of(seen)["reason"] == "InvalidSpec"
    assert "larger than a message may be" in state_of(seen)["message"]
    assert await borders.services["cache"].metric("pumice_cache_oversized_total") > 0
    await borders.said("cache", "object_oversized", name)
    await borders.a_good_job_runs()
    await borders.api.delete("jobs", borders.namespace, name)
