"""Who may stand beside whom, and who has to make room for whom (PL07, PL09, A02 to A05)."""

from typing import Any

import pytest

from tests.integration.scenarios.offers import taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, ending, task, uids
from tests.support.api import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

YIELDING = {"volcano.sh/preemptable": "true"}


def marked(made: Object, **labels: str) -> Object:
    """Label the pods of a task."""
    made["template"]["metadata"]["labels"] = labels
    return made


def beside(made: Object, rule: str, **labels: str) -> Object:
    """Have the pods of a task stand with (`podAffinity`) or apart from pods of these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    made["template"]["spec"]["affinity"] = {
        rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    return made


def places(pods: dict[str, Object]) -> list[str]:
    """Return the nodes of pods."""
    return sorted(pod["spec"]["nodeName"] for pod in pods.values())


# --- where a pod may be ----------------------------------------------------------------------


@scenarios
async def a_port_of_a_node_is_given_once(scene: Scene) -> None:
    nodes = sorted([await scene.node("n0", cpu="4"), await scene.node("n1", cpu="4")])
    a = scene.at_home("a", 4, minAvailable=2)
    port = {"containerPort": 28080, "hostPort": 28080}
    a["template"]["spec"]["containers"][0]["ports"] = [port]
    await scene.submit("j", a, min_available=2)
    await scene.phase("j", "Running", running=2, pending=2)
    first = await scene.pods(2, phase="Running")
    assert places(first) == nodes
    for name in first:
        await scene.end(name)
    await scene.phase("j", "Running", running=2, succeeded=2)


@scenarios
async def pods_that_belong_together_share_a_node(scene: Scene) -> None:
    await scene.node("n0", cpu="4")
    await scene.node("n1", cpu="4")
    a = marked(scene.at_home("a", 3), crowd="one")
    pods = await scene.running("j", beside(a, "podAffinity", crowd="one"))
    assert len(set(places(pods))) == 1


@scenarios
async def a_job_waits_until_a_taint_goes(scene: Scene) -> None:
    node = await scene.node("n", cpu="4")
    home = {"key": "home", "value": scene.namespace, "effect": "NoSchedule"}
    closed = {"key": "closed", "value": "yes", "effect": "NoSchedule"}
    await scene.api.patch("nodes", "", node, {"spec": {"taints": [home, closed]}})
    await scene.submit("j", scene.at_home("a", 2))
    await scene.condition("j", "Unschedulable")
    bold = scene.at_home("a", 1)
    bold["template"]["spec"]["tolerations"].append({"key": "closed", "operator": "Exists"})
    await scene.running("bold", bold)
    await scene.api.patch("nodes", "", node, {"spec": {"taints": [home]}})
    await scene.phase("j", "Running", running=2)


@scenarios
async def pods_that_ask_for_nothing_are_part_of_a_gang(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    modest = scene.at_home("modest", 2)
    del modest["template"]["spec"]["containers"][0]["resources"]
    pods = await scene.running("j", scene.at_home("a", 2), modest)
    assert len(pods) == 4


@scenarios
async def a_gang_that_does_not_fit_holds_no_place(scene: Scene) -> None:
    await scene.node("n", cpu="3")
    await scene.running("there", scene.at_home("a", 1))
    await scene.submit("large", scene.at_home("a", 3))
    await scene.condition("large", "Unschedulable")
    await scene.submit("small", scene.at_home("a", 2))
    await scene.phase("small", "Running", running=2)
    assert not [n for n in await scene.pods(phase="Running") if n.startswith("large")]


@scenarios
async def pods_behind_a_gate_take_nobodys_place(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    queue = await scene.queue("q", capability={"cpu": "2", "memory": "64Gi"})
    gated = scene.at_home("a", 2)
    gated["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await scene.submit("gated", gated, queue=queue)
    await scene.pods(2, phase="Pending")
    await scene.submit("free", scene.at_home("a", 2), queue=queue)
    await scene.phase("free", "Running")


# --- who makes room --------------------------------------------------------------------------


async def two_ranks(scene: Scene) -> tuple[str, str]:
    """Return a low and a high priority class."""
    return await scene.priority("low", 10), await scene.priority("high", 1000)


async def modest(scene: Scene, count: int, rank: str, **spec: Any) -> dict[str, str]:
    """Run a job that may be evicted down to one pod; return the uids of its pods."""
    yielding = scene.at_home("a", count, minAvailable=1, annotations=YIELDING)
    return uids(
        await scene.running("modest", yielding, min_available=1, priorityClassName=rank, **spec)
    )


@scenarios
async def nobody_makes_room_where_there_is_some(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    await scene.node("n", cpu="4")
    before = await modest(scene, 2, low)
    await scene.submit("grand", scene.at_home("a", 2), priorityClassName=high)
    await scene.phase("grand", "Running", running=2)
    assert before.items() <= uids(await scene.pods(4, phase="Running")).items()


@scenarios
async def nobody_makes_room_in_vain(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    await scene.node("n", cpu="3")
    before = await modest(scene, 3, low)
    await scene.submit("grand", scene.at_home("a", 4), priorityClassName=high)
    await scene.condition("grand", "Unschedulable")
    assert uids(await scene.pods(3, phase="Running")) == before


@scenarios
async def nobody_makes_room_for_a_job_of_another_queue(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    await scene.node("n", cpu="2")
    here = await scene.queue("here", reclaimable=False)
    there = await scene.queue("there")
    before = await modest(scene, 2, low, queue=here)
    await scene.submit("grand", scene.at_home("a", 1), priorityClassName=high, queue=there)
    await scene.condition("grand", "Unschedulable")
    assert uids(await scene.pods(2, phase="Running")) == before


@scenarios
async def nobody_makes_room_for_pods_behind_a_gate(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    await scene.node("n", cpu="2")
    before = await modest(scene, 2, low)
    gated = scene.at_home("a", 1)
    gated["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await scene.submit("gated", gated, priorityClassName=high)
    await scene.pods(1, phase="Pending")
    await scene.submit("same", scene.at_home("a", 1), priorityClassName=low)
    await scene.condition("same", "Unschedulable")
    assert uids(await scene.pods(2, phase="Running")) == before
    body = {"spec": {"schedulingGates": None}}
    await scene.api.patch("pods", scene.namespace, "gated-a-0", body)
    await scene.phase("gated", "Running")


@scenarios
async def the_least_important_makes_room_for_all_above(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    middle = await scene.priority("middle", 100)
    await scene.node("n", cpu="4")
    await modest(scene, 4, low)
    await scene.submit("grand", scene.at_home("a", 2), priorityClassName=high)
    await scene.submit("fair", scene.at_home("a", 1), priorityClassName=middle)
    await scene.phase("grand", "Running", running=2)
    await scene.phase("fair", "Running", running=1)
    await scene.phase("modest", "Running", running=1)


@scenarios
async def whoever_cannot_be_stood_makes_room(scene: Scene) -> None:
    low, high = await two_ranks(scene)
    await scene.node("n", cpu="8")
    disliked = marked(scene.at_home("a", 1, annotations=YIELDING), crowd="loud")
    await scene.running("modest", disliked, min_available=0, priorityClassName=low)
    picky = beside(scene.at_home("a", 1), "podAntiAffinity", crowd="loud")
    await scene.submit("grand", picky, priorityClassName=high)
    await scene.phase("grand", "Running", running=1)
    await scene.event("Evict", about="modest")


# --- groups of bare pods ---------------------------------------------------------------------


async def the_group(scene: Scene, phase: str, *, other_than: str = "") -> str:
    """Wait until there is one PodGroup, in a phase; return its name."""
    seen: dict[str, str] = {}

    async def found() -> bool:
        nonlocal seen
        groups = await scene.api.items("podgroups", scene.namespace)
        seen = {g["metadata"]["name"]: g.get("status", {}).get("phase", "") for g in groups}
        return list(seen.values()) == [phase] and other_than not in seen

    await scene.wait(found, lambda: f"one group, {phase}, there are {seen}")
    return next(iter(seen))


async def troubles(scene: Scene) -> list[Object]:
    """Return why the group `g` could not be scheduled, and since when."""
    group = await scene.api.get("podgroups", scene.namespace, "g")
    return [c for c in group["status"].get("conditions", []) if c["type"] == "Unschedulable"]


def lingers(count: int) -> Scenario:
    """Return the scenario of a group of so many pods, of which one takes its time to end."""

    async def scenario(scene: Scene) -> None:
        await taken(scene, "podgroups", whole("podgroups", "g", {"minMember": count}))
        for number in range(count):
            pod = task("a", 1, annotations={"pumice.dev/stop-seconds": "60"})["template"]
            pod["metadata"]["name"] = f"p{number}"
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g"
            pod["spec"] |= {"schedulerName": "volcano", "terminationGracePeriodSeconds": 300}
            await scene.api.create("pods", pod, scene.namespace)

        await scene.pods(count, phase="Running")
        await the_group(scene, "Running")
        before = await troubles(scene)
        await scene.api.delete("pods", scene.namespace, "p0")
        await scene.submit("later", scene.at_home("a", 1))
        await scene.condition("later", "Unschedulable")
        ending = await scene.api.get("pods", scene.namespace, "p0")
        assert "deletionTimestamp" in ending["metadata"], "it has not ended yet"
        group = await scene.api.get("podgroups", scene.namespace, "g")
        assert group["status"]["phase"] == "Running"
        assert await troubles(scene) == before

    return scenario


for _count in (1, 2):
    scenarios.add(f"a group of {_count} runs while a pod of it is ending", lingers(_count))


async def create(scene: Scene, version: str, plural: str, kind: str, spec: Object) -> str:
    """Create an object of Kubernetes's own that makes pods; return its address."""
    place = f"/apis/{version}/namespaces/{scene.namespace}/{plural}"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    await scene.api.request("POST", place, body)
    return f"{place}/w"


def bare(**annotations: str) -> Object:
    """Return a pod template of our scheduler."""
    made = task("a", 1, annotations=annotations)["template"]
    made["metadata"]["labels"] = {"of": "w"}
    made["spec"]["schedulerName"] = "volcano"
    template: Object = made
    return template


def batch_job(code: int) -> Scenario:
    """Return the scenario of a batch/v1 Job: its group says that it is over (P03)."""

    async def scenario(scene: Scene) -> None:
        template = bare(**ending(code))
        await create(scene, "batch/v1", "jobs", "Job", {"backoffLimit": 0, "template": template})
        await the_group(scene, "Completed")

    return scenario


scenarios.add("the group of a batch job that succeeds is Completed", batch_job(0))
scenarios.add("the group of a batch job that fails is Completed", batch_job(1))


@scenarios
async def a_batch_job_is_refused_by_the_api_server_alone(scene: Scene) -> None:
    template = bare()
    del template["spec"]["restartPolicy"]
    with pytest.raises(ApiError, match="restartPolicy"):
        await create(scene, "batch/v1", "jobs", "Job", {"template": template})
    await create(scene, "batch/v1", "jobs", "Job", {"parallelism": 2, "template": bare()})
    await scene.pods(2, phase="Running")


@scenarios
async def a_new_version_of_a_deployment_has_a_group_of_its_own(scene: Scene) -> None:
    template = bare()
    del template["spec"]["restartPolicy"]
    spec = {"replicas": 3, "selector": {"matchLabels": {"of": "w"}}, "template": template}
    place = await create(scene, "apps/v1", "deployments", "Deployment", spec)
    await scene.pods(3, phase="Running")
    old = await the_group(scene, "Running")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m"}}
    change = {"spec": {"template": template}}
    kind = "application/merge-patch+json"
    await scene.api.request("PATCH", place, change, content_type=kind)
    await the_group(scene, "Running", other_than=old)
    await scene.pods(3, phase="Running")


@scenarios.mark()
async def test_crowds(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
