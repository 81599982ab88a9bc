"""What is let in, and what is refused: by schema, by webhook, or else by the controller."""

from typing import Any

import pytest

from tests.integration.scenarios.offers import taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, on, task
from tests.support.world import pod

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


def asking(amount: Object) -> Object:
    """Return a task whose container asks for this."""
    made = task("a", 1)
    made["template"]["spec"]["containers"][0]["resources"] = {"requests": amount}
    return made


SMALL = task("a", 2)
WRONG: dict[str, tuple[list[Object], dict[str, Any], str]] = {
    "less than no cpu": ([asking({"cpu": "-1"})], {}, "cpu"),
    "less than no memory": ([asking({"memory": "-1"})], {}, "memory"),
    "two tasks of one name": ([SMALL, SMALL], {}, "duplicated task name a"),
    "two policies for one event": (
        [SMALL],
        {"policies": [on("PodFailed", "AbortJob"), on("PodFailed", "RestartJob")]},
        "spec.policies[1]",
    ),
    "a minimum above all replicas": ([SMALL], {"min_available": 3}, "spec.minAvailable"),
    "a plugin that there is not": ([SMALL], {"plugins": {"big_plugin": []}}, "big_plugin"),
    "a negative time to live": (
        [SMALL],
        {"ttlSecondsAfterFinished": -1},
        "spec.ttlSecondsAfterFinished",
    ),
    "a negative minimum": ([SMALL], {"min_available": -1}, "spec.minAvailable"),
    "a negative number of tries": ([SMALL], {"maxRetry": -1}, "spec.maxRetry"),
    "no task": ([], {"min_available": 1}, "spec.tasks"),
    "negative replicas": ([task("a", -1)], {"min_available": 1}, "spec.tasks[0].replicas"),
    "a task's name in capitals": ([task("Task-1", 1)], {}, "spec.tasks[0].name"),
    "an event and an exit code": (
        [SMALL],
        {"policies": [on("PodFailed", "AbortJob", exitCode=-1)]},
        "spec.policies[0]",
    ),
    "neither event nor exit code": (
        [SMALL],
        {"policies": [{"action": "AbortJob"}]},
        "spec.policies[0]",
    ),
    "an event that there is not": (
        [SMALL],
        {"policies": [on("fakeEvent", "AbortJob")]},
        "spec.policies[0].event",
    ),
    "an action that there is not": (
        [SMALL],
        {"policies": [on("PodEvicted", "fakeAction")]},
        "spec.policies[0].action",
    ),
    "exit code nought": (
        [SMALL],
        {"policies": [{"action": "AbortJob", "exitCode": 0}]},
        "spec.policies[0]",
    ),
    "any event and another": (
        [SMALL],
        {"policies": [on("*", "AbortJob"), on("PodFailed", "RestartJob")]},
        "spec.policies",
    ),
    "a volume mounted nowhere": ([SMALL], {"volumes": [{"mountPath": ""}]}, "spec.volumes[0]"),
    "two volumes in one place": (
        [SMALL],
        {
            "volumes": [
                {"mountPath": "/var", "volumeClaimName": "one"},
                {"mountPath": "/var", "volumeClaimName": "two"},
            ]
        },
        "/var",
    ),
    "a volume of nothing": ([SMALL], {"volumes": [{"mountPath": "/var"}]}, "spec.volumes[0]"),
    "a queue that there is not": ([SMALL], {"queue": "fakeQueue"}, "fakeQueue"),
    "the root of all queues": ([SMALL], {"queue": "root"}, "root"),
}


def refused(tasks: list[Object], spec: dict[str, Any], naming: str) -> Scenario:
    """Return the scenario of a job in which this is wrong."""

    async def scenario(scene: Scene) -> None:
        await scene.refused_or_held("j", *tasks, naming=naming, **spec)

    return scenario


for case, (tasks, spec, naming) in WRONG.items():
    scenarios.add(f"refused: {case}", refused(tasks, spec, naming))


@scenarios
async def refused_a_queue_that_has_children(scene: Scene) -> None:
    parent = await scene.queue("parent")
    await scene.queue("child", parent=parent)
    await scene.refused_or_held("j", SMALL, queue=parent, naming=parent)


# --- let in ----------------------------------------------------------------------------------


@scenarios
async def what_a_job_leaves_out_is_filled_in(scene: Scene) -> None:
    tasks = [{"replicas": 1, "template": task("a", 1)["template"]} for _ in range(2)]
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"minAvailable": 1, "tasks": tasks},
    }
    spec = (await scene.api.create("jobs", body, scene.namespace))["spec"]
    assert (spec["queue"], spec["schedulerName"]) == ("default", "volcano")
    assert [made["name"] for made in spec["tasks"]] == ["default0", "default1"]
    await scene.phase("j", "Running", running=2)


@scenarios
async def a_privileged_container_is_the_users_to_choose(scene: Scene) -> None:
    a = task("a", 1)
    a["template"]["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    await scene.running("j", a)


async def add_group(scene: Scene, name: str, **spec: Any) -> None:
    """Create a PodGroup."""
    await taken(scene, "podgroups", whole("podgroups", name, spec))


async def group_phase(scene: Scene, name: str, *phases: str) -> None:
    """Wait until a PodGroup is in one of these phases."""
    seen: Object = {}

    async def found() -> bool:
        nonlocal seen
        seen = (await scene.api.get("podgroups", scene.namespace, name)).get("status", {})
        return seen.get("phase") in phases

    await scene.wait(found, lambda: f"PodGroup {name} {phases}, it says {seen}")


@scenarios
async def a_pod_of_another_scheduler_gets_no_group(scene: Scene) -> None:
    await scene.api.create("pods", pod("foreign", cpu="100m", scheduler=""), scene.namespace)
    await scene.api.create("pods", pod("ours", cpu="100m"), scene.namespace)
    await scene.pods(1, phase="Running")
    (only,) = await scene.api.items("podgroups", scene.namespace)
    found = await scene.api.get("pods", scene.namespace, "ours")
    assert only["metadata"]["name"] == f"podgroup-{found['metadata']['uid']}"
    await group_phase(scene, only["metadata"]["name"], "Running")


@scenarios
async def a_group_is_let_into_its_queue_before_it_has_pods(scene: Scene) -> None:
    await add_group(scene, "g", minMember=1, minResources={"cpu": "1"})
    await group_phase(scene, "g", "Inqueue")
    await scene.api.create("pods", pod("p", group="g", cpu="100m"), scene.namespace)
    await scene.pods(1, phase="Running")
    await group_phase(scene, "g", "Running")


@scenarios
async def a_pod_may_come_before_its_group_is_let_in(scene: Scene) -> None:
    await add_group(scene, "g", minMember=1, minResources={"cpu": "30000"})
    await scene.api.create("pods", pod("p", group="g", cpu="100m"), scene.namespace)
    await group_phase(scene, "g", "Pending")
    assert set(await scene.pods(1, phase="Pending")) == {"p"}


@scenarios
async def a_group_that_has_lost_a_member_for_good_is_unknown(scene: Scene) -> None:
    queue = await scene.queue("q")
    await add_group(scene, "g", minMember=2, queue=queue)
    for name in ("p0", "p1"):
        await scene.api.create("pods", pod(name, group="g", cpu="100m"), scene.namespace)
    await scene.pods(2, phase="Running")
    await group_phase(scene, "g", "Running")
    await scene.evict("p0")
    await scene.gone("pods", "p0")
    await group_phase(scene, "g", "Unknown")


@scenarios
async def a_group_whose_pods_have_all_gone_waits_again(scene: Scene) -> None:
    queue = await scene.queue("q")
    node = await scene.node("n", cpu="2")
    job = await scene.submit("j", scene.at_home("a", 2), queue=queue)
    group = f"j-{job['metadata']['uid']}"
    await group_phase(scene, group, "Running")
    await scene.phase("j", "Running")
    await scene.api.patch("nodes", "", node, {"spec": {"unschedulable": True}})
    for name in ("j-a-0", "j-a-1"):
        await scene.api.delete("pods", scene.namespace, name)
    await group_phase(scene, group, "Pending", "Inqueue")
    await scene.phase("j", "Pending", pending=2)
    await scene.api.patch("nodes", "", node, {"spec": {"unschedulable": False}})
    await group_phase(scene, group, "Running")
    await scene.phase("j", "Running", running=2)


@scenarios
async def an_open_queue_without_jobs_can_be_deleted(scene: Scene) -> None:
    queue = await scene.queue("q")
    await scene.api.delete("queues", "", queue)
    await scene.gone("queues", queue)


@scenarios
async def a_job_whose_queue_is_deleted_runs_to_its_end_and_others_wait_for_the_queue(
    scene: Scene,
) -> None:
    queue = await scene.queue("q")
    await scene.running("runs", task("a", 2), queue=queue)
    await scene.submit("waits", task("a", 1, cpu="5000"), queue=queue)
    await scene.condition("waits", "Unschedulable")
    if await scene.deleted_or_refused("queues", queue, naming="because it has allocated Pods"):
        await scene.condition("waits", "Unschedulable", text=queue)
        held = await scene.refused_or_held("later", task("a", 1), queue=queue, naming=queue)
        await scene.api.create("queues", scene.queue_body("q"))
        await scene.queue_state("q", "Open")
        if not held:
            await scene.submit("later", task("a", 1), queue=queue)
        await scene.phase("later", "Running")
    await scene.end("runs-a-0")
    await scene.end("runs-a-1")
    await scene.phase("runs", "Completed", succeeded=2)


@scenarios
async def a_queue_below_a_closed_one_stays_closed_until_that_opens(scene: Scene) -> None:
    parent = await scene.queue("parent")
    child = await scene.queue("child", parent=parent)
    await scene.order_queue("CloseQueue", parent)
    await scene.queue_state("child", "Closed")
    await scene.order_queue("OpenQueue", child)
    await obeyed(scene)
    await scene.queue_state("child", "Closed")
    await scene.order_queue("OpenQueue", parent)
    await scene.queue_state("parent", "Open")
    await scene.queue_state("child", "Open")


async def obeyed(scene: Scene) -> None:
    """Wait until no order is left."""

    async def none() -> bool:
        return not await scene.api.items("commands", scene.namespace)

    await scene.wait(none, "no Command")


@scenarios.mark()
async def test_door(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
