"""How large a job is: what its pods are told as it grows and shrinks, what its group asks for."""

import pytest

from tests.integration.scenarios.course import BEGIN, watched
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, task

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


async def resize(scene: Scene, replicas: int, *, minimum: int | None = None) -> None:
    """Replace the spec whole, as clients do that send back what they were given."""
    spec = (await scene.job("j"))["spec"]
    spec["minAvailable"] = spec["tasks"][0]["replicas"] = replicas
    if minimum is not None:
        spec["tasks"][0]["minAvailable"] = minimum
    if not replicas:
        del spec["minAvailable"]  # a client in Go leaves a zero out
    path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{scene.namespace}/jobs/j"
    patch = [{"op": "replace", "path": "/spec", "value": spec}]
    await scene.api.request("PATCH", path, patch, content_type="application/json-patch+json")


async def are_told(scene: Scene, count: int) -> None:
    """Wait until pods and lists of hosts are those of so many replicas, and nothing more."""
    names = [f"j-worker-{index}.j" for index in range(count)]
    wanted = {
        "worker.host": "\n".join(names),
        "VC_WORKER_HOSTS": ",".join(names),
        "VC_WORKER_NUM": str(count),
    }

    async def listed() -> bool:
        return bool((await scene.api.get("configmaps", scene.namespace, "j-svc"))["data"] == wanted)

    await scene.wait(listed, f"the lists of {count} hosts")
    assert set(await scene.pods(count, phase="Running")) == {n.removesuffix(".j") for n in names}


def resized(*steps: tuple[int, int | None]) -> Scenario:
    """Return the scenario of a job of two pods whose size is changed step by step."""

    async def scenario(scene: Scene) -> None:
        await scene.running("j", task("worker", 2), plugins={"svc": []})
        await are_told(scene, 2)
        for replicas, minimum in steps:
            await resize(scene, replicas, minimum=minimum)
            await are_told(scene, replicas)
        await scene.phase("j", "Running", running=steps[-1][0])
        await scene.api.delete("jobs", scene.namespace, "j")
        await scene.gone("jobs", "j")
        await scene.groups_gone()
        await scene.pods(0)

    return scenario


scenarios.add("it grows with the task's minimum as it was", resized((4, None)))
scenarios.add("it shrinks", resized((1, 1)))
scenarios.add("it shrinks to nothing and grows again", resized((0, 0), (2, None)))
scenarios.add("it grows and shrinks and grows", resized((3, 3), (1, 1), (3, 3)))


@scenarios
async def a_job_of_nothing_stays_in_its_phase(scene: Scene) -> None:
    async with watched(scene, "j") as course:
        await scene.running("j", task("worker", 2))
        await resize(scene, 0, minimum=0)
        await scene.pods(0)
        await scene.phase("j", "Running", running=0, terminating=0)
        assert [phase for phase, _ in course.phases()] == [*BEGIN]
        await resize(scene, 2)
        await scene.pods(2, phase="Running")
        await scene.phase("j", "Running", running=2)
        for index in range(2):
            await scene.end(f"j-worker-{index}")
        await scene.phase("j", "Completed", succeeded=2)


@scenarios
async def a_group_asks_for_all_kinds_of_resources_in_the_terms_of_quotas(scene: Scene) -> None:
    each = {"cpu": "1", "memory": "1000Mi", "nvidia.com/gpu": "1"}
    tasks = [task("one", 1), task("two", 1)]
    for made in tasks:
        container = made["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": each, "limits": each}
    job = await scene.submit("j", *tasks)
    await scene.phase("j", "Pending")
    assert (await scene.group("j"))["metadata"]["name"] == f"j-{job['metadata']['uid']}"
    assert (await scene.group("j"))["spec"]["minResources"] == {
        "cpu": "2",
        "memory": "2000Mi",
        "nvidia.com/gpu": "2",
        "pods": "2",
        "count/pods": "2",
        "requests.cpu": "2",
        "requests.memory": "2000Mi",
        "requests.nvidia.com/gpu": "2",
        "limits.cpu": "2",
        "limits.memory": "2000Mi",
    }


@scenarios
async def the_more_important_task_comes_first_when_there_is_no_room_for_both(scene: Scene) -> None:
    master = await scene.priority("master", 100)
    worker = await scene.priority("worker", -50)
    tasks = {name: scene.at_home(name, 2, cpu="1500m") for name in ("minor", "major")}
    tasks["minor"]["template"]["spec"]["priorityClassName"] = worker
    tasks["major"]["template"]["spec"]["priorityClassName"] = master
    await scene.submit("j", tasks["minor"], tasks["major"], min_available=2)
    await scene.pods(4)
    await scene.node("n0", cpu="2")
    await scene.node("n1", cpu="2")
    await scene.phase("j", "Running", running=2, pending=2)
    assert set(await scene.pods(2, phase="Running")) == {"j-major-0", "j-major-1"}


@scenarios
async def a_job_that_waits_becomes_more_important(scene: Scene) -> None:
    low, high = await scene.priority("low", 10), await scene.priority("high", 1000)
    for name, priority in (("modest", low), ("rival", low)):
        await scene.submit(name, scene.at_home("a", 2), priorityClassName=priority)
    await scene.condition("rival", "Unschedulable")
    await scene.change("rival", priorityClassName=high)

    async def followed() -> bool:
        return bool((await scene.group("rival"))["spec"]["priorityClassName"] == high)

    await scene.wait(followed, "the group's priority")
    await scene.node("n", cpu="2")
    await scene.phase("rival", "Running", running=2)
    await scene.phase("modest", "Pending")


@scenarios
async def enough_successes_end_it_whichever_task_they_are_of(scene: Scene) -> None:
    tasks = (task("short", 3, minAvailable=1), task("long", 2, minAvailable=1))
    async with watched(scene, "j") as course:
        await scene.submit("j", *tasks, min_available=2, minSuccess=2)
        await scene.pods(5, phase="Running")
        await scene.end("j-short-0")
        await scene.end("j-short-2")
        await course.was(*BEGIN, "Completed")
    assert set(await scene.pods(2)) == {"j-short-0", "j-short-2"}


@scenarios
async def a_volume_is_taken_as_named_and_another_made_and_named(scene: Scene) -> None:
    size: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims"
    await scene.api.request("POST", claims, {"metadata": {"name": "mine"}, "spec": size})
    volumes = [
        {"mountPath": "/one", "volumeClaimName": "mine"},
        {"mountPath": "/two", "volumeClaim": size},
    ]
    await scene.submit("j", task("a", 1), volumes=volumes)
    (pod,) = (await scene.pods(1)).values()
    first, second = (v["volumeClaimName"] for v in (await scene.job("j"))["spec"]["volumes"])
    assert first == "mine"
    assert second.startswith("j-pvc-")
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert used == {first, second}


@scenarios.mark()
async def test_size(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
