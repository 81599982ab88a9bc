"""Who gets a place, when, and what a job that waits is told: gangs, queues, priorities."""

from typing import Any

import pytest

from shared.api import keys
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, ending, task, uids

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


@scenarios
async def a_gang_waits_whole_until_there_is_room_for_all(scene: Scene) -> None:
    await scene.node("n0", cpu="2")
    await scene.submit("j", scene.at_home("a", 3))
    told = await scene.condition("j", "Unschedulable", text="3")
    assert "minAvailable" in told["message"] or "gang" in told["message"]
    assert not any(p["spec"].get("nodeName") for p in (await scene.pods(3)).values())
    await scene.node("n1", cpu="1")
    await scene.phase("j", "Running", running=3)


@scenarios
async def an_elastic_gang_starts_with_its_minimum(scene: Scene) -> None:
    await scene.node("n0", cpu="2")
    await scene.submit("j", scene.at_home("a", 4, minAvailable=2), min_available=2)
    await scene.phase("j", "Running", running=2, pending=2)
    await scene.node("n1", cpu="2")
    await scene.phase("j", "Running", running=4)


@scenarios
async def a_pod_says_why_it_waits(scene: Scene) -> None:
    await scene.submit("j", scene.at_home("a", 1))

    async def told() -> Object | None:
        (pod,) = (await scene.pods(1)).values()
        return next(
            (
                c
                for c in pod["status"].get("conditions", [])
                if c["type"] == "PodScheduled" and c["status"] == "False"
            ),
            None,
        )

    condition = await scene.wait(told, "PodScheduled=False")
    assert condition["reason"] == "Unschedulable"
    assert condition["message"]


@scenarios
async def two_gangs_do_not_hold_half_of_a_node_each(scene: Scene) -> None:
    await scene.node("n", cpu="3")
    await scene.submit("first", scene.at_home("a", 2, annotations=ending(0, 1)))
    await scene.submit("second", scene.at_home("a", 2, annotations=ending(0, 1)))
    await scene.phase("first", "Completed")
    await scene.phase("second", "Completed")


@scenarios
async def what_a_finished_job_held_goes_to_the_next(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    await scene.running("first", scene.at_home("a", 2))
    await scene.submit("second", scene.at_home("a", 2))
    await scene.condition("second", "Unschedulable")
    for index in range(2):
        await scene.end(f"first-a-{index}")
    await scene.phase("second", "Running")


@scenarios
async def the_more_important_job_comes_first(scene: Scene) -> None:
    low, high = await scene.priority("low", 10), await scene.priority("high", 1000)
    await scene.submit("modest", scene.at_home("a", 2), priorityClassName=low)
    await scene.submit("grand", scene.at_home("a", 2), priorityClassName=high)
    await scene.condition("modest", "Unschedulable")
    await scene.condition("grand", "Unschedulable")
    await scene.node("n", cpu="2")
    await scene.phase("grand", "Running", running=2)
    assert not [p for p in await scene.pods(phase="Running") if p.startswith("modest")]


@scenarios
async def the_less_important_job_makes_room(scene: Scene) -> None:
    low, high = await scene.priority("low", 10), await scene.priority("high", 1000)
    await scene.node("n", cpu="4")
    preemptable = {"volcano.sh/preemptable": "true"}
    modest = scene.at_home("a", 4, minAvailable=1, annotations=preemptable)
    await scene.running("modest", modest, min_available=1, priorityClassName=low)
    await scene.submit("grand", scene.at_home("a", 2), priorityClassName=high)
    await scene.phase("grand", "Running", running=2)
    await scene.phase("modest", "Running", running=2)
    await scene.event("Evict", about="modest")


@scenarios
async def the_equally_important_job_makes_no_room(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    preemptable = {"volcano.sh/preemptable": "true"}
    before = uids(
        await scene.running(
            "there", scene.at_home("a", 2, annotations=preemptable), min_available=1
        )
    )
    await scene.submit("late", scene.at_home("a", 1))
    await scene.condition("late", "Unschedulable")
    assert uids(await scene.pods(2, phase="Running")) == before


def asking_for_nothing(scene: Scene, name: str, **extra: Any) -> Object:
    """Return a task of one pod that states no amounts."""
    made = scene.at_home(name, 1, **extra)
    made["template"]["spec"]["containers"][0]["resources"] = {}
    return made


async def not_scheduled(scene: Scene, pod: str, text: str = "") -> Object:
    """Wait until a pod says that it is not scheduled; return the pod."""

    async def told() -> Object | None:
        found = await scene.api.get("pods", scene.namespace, pod)
        says = any(
            c["type"] == "PodScheduled" and c["status"] == "False" and text in c["message"]
            for c in found["status"].get("conditions", [])
        )
        return found if says else None

    return await scene.wait(told, f"{pod} is not scheduled: {text}")


@scenarios
async def a_place_is_free_when_the_pod_that_had_it_is_gone_and_not_before(scene: Scene) -> None:
    low, high = await scene.priority("low", 10), await scene.priority("high", 1000)
    await scene.node("n", cpu="4", pods="1")
    modest = asking_for_nothing(
        scene, "a", minAvailable=0, annotations={"volcano.sh/preemptable": "true"}
    )
    modest["template"]["metadata"]["finalizers"] = ["example.com/slow"]
    await scene.submit("modest", modest, min_available=0, priorityClassName=low)
    before = await scene.pods(1, phase="Running")
    await scene.submit("grand", asking_for_nothing(scene, "a"), priorityClassName=high)
    await scene.pods(0, task="a", phase="Running")
    waiting = await not_scheduled(scene, "grand-a-0")
    assert "nodeName" not in waiting["spec"]
    leaving = await scene.api.get("pods", scene.namespace, "modest-a-0")
    assert leaving["metadata"]["uid"] == before["modest-a-0"]["metadata"]["uid"]
    gone = {"metadata": {"finalizers": None}}
    await scene.api.patch("pods", scene.namespace, "modest-a-0", gone)
    await scene.phase("grand", "Running")


@scenarios
async def a_pod_that_asks_for_nothing_waits_at_a_node_that_is_over_its_memory(scene: Scene) -> None:
    node = await scene.node("n", cpu="4")
    large = scene.at_home("large", 1)["template"]
    large["spec"] |= {"nodeName": node, "schedulerName": "of-another"}
    large["spec"]["containers"][0]["resources"]["requests"]["memory"] = "128Gi"
    large["metadata"]["name"] = "large"
    await scene.api.create("pods", large, scene.namespace)
    await scene.submit("j", asking_for_nothing(scene, "a"))
    waiting = await not_scheduled(scene, "j-a-0", "too little memory")
    assert "nodeName" not in waiting["spec"]
    await scene.evict("large")
    await scene.phase("j", "Running")


@scenarios
async def a_queue_takes_back_what_it_deserves(scene: Scene) -> None:
    ample = {"cpu": "2", "memory": "32Gi"}
    await scene.node("n", cpu="4")
    lender = await scene.queue("lender", deserved=ample)
    owner = await scene.queue("owner", deserved=ample)
    preemptable = {"volcano.sh/preemptable": "true"}
    borrowing = scene.at_home("a", 4, minAvailable=1, annotations=preemptable)
    await scene.running("borrows", borrowing, min_available=1, queue=lender)
    await scene.submit("returns", scene.at_home("a", 2), queue=owner)
    await scene.phase("returns", "Running", running=2)
    await scene.phase("borrows", "Running", running=2)


@scenarios
async def a_queue_that_is_not_reclaimable_keeps_what_it_has(scene: Scene) -> None:
    ample = {"cpu": "1", "memory": "32Gi"}
    await scene.node("n", cpu="2")
    keeper = await scene.queue("keeper", deserved=ample, reclaimable=False)
    other = await scene.queue("other", deserved=ample)
    preemptable = {"volcano.sh/preemptable": "true"}
    holding = scene.at_home("a", 2, annotations=preemptable)
    before = uids(await scene.running("holds", holding, min_available=1, queue=keeper))
    await scene.submit("asks", scene.at_home("a", 1), queue=other)
    await scene.condition("asks", "Unschedulable")
    assert uids(await scene.pods(2, phase="Running")) == before


@scenarios
async def a_queue_gives_no_more_than_its_capability(scene: Scene) -> None:
    queue = await scene.queue("small", capability={"cpu": "250m", "memory": "1Gi"})
    await scene.running("fits", task("a", 2), queue=queue)
    await scene.submit("waits", task("a", 1), queue=queue)

    async def pending() -> bool:
        group = await scene.group("waits")
        return group.get("status", {}).get("phase") == "Pending"

    await scene.wait(pending, "a group that is not let in")
    assert not [name for name in await scene.pods() if name.startswith("waits")]
    await scene.end("fits-a-0")
    await scene.end("fits-a-1")
    await scene.phase("waits", "Running")


@scenarios
async def a_job_for_a_queue_that_there_is_not_waits_and_names_it(scene: Scene) -> None:
    name = f"{scene.namespace}-none"
    await scene.refused_or_held("j", task("a", 1), queue=name, naming=name)


@scenarios
async def a_queue_closes_at_once_when_nothing_is_in_it(scene: Scene) -> None:
    queue = await scene.queue("q")
    await scene.order_queue("CloseQueue", queue)
    await scene.queue_state("q", "Closed")
    await scene.order_queue("OpenQueue", queue)
    await scene.queue_state("q", "Open")


@scenarios
async def a_queue_with_work_closes_when_the_work_is_done(scene: Scene) -> None:
    queue = await scene.queue("q")
    await scene.running("j", task("a", 1), queue=queue)
    await scene.order_queue("CloseQueue", queue)
    await scene.queue_state("q", "Closing")
    await scene.end("j-a-0")
    await scene.phase("j", "Completed")
    await scene.queue_state("q", "Closed")


@scenarios
async def a_queue_closes_when_its_last_job_is_deleted(scene: Scene) -> None:
    queue = await scene.queue("q")
    await scene.running("j", task("a", 1), queue=queue)
    await scene.order_queue("CloseQueue", queue)
    await scene.queue_state("q", "Closing")
    await scene.api.delete("jobs", scene.namespace, "j")
    await scene.queue_state("q", "Closed")


@scenarios
async def a_closed_queue_takes_no_job_until_it_opens(scene: Scene) -> None:
    queue = await scene.queue("q")
    await scene.order_queue("CloseQueue", queue)
    await scene.queue_state("q", "Closed")
    held = await scene.refused_or_held("j", task("a", 1), queue=queue, naming=queue)
    await scene.order_queue("OpenQueue", queue)
    await scene.queue_state("q", "Open")
    if not held:
        await scene.submit("j", task("a", 1), queue=queue)
    await scene.phase("j", "Running")


@scenarios
async def a_child_closes_and_opens_with_its_parent(scene: Scene) -> None:
    parent = await scene.queue("parent")
    await scene.queue("child", parent=parent)
    await scene.order_queue("CloseQueue", parent)
    await scene.queue_state("child", "Closed")
    await scene.order_queue("OpenQueue", parent)
    await scene.queue_state("child", "Open")


@scenarios
async def a_bare_pod_gets_a_group_and_a_place(scene: Scene) -> None:
    body = {
        "metadata": {"name": "bare"},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "busybox"}]},
    }
    await scene.api.create("pods", body, scene.namespace)
    pod = (await scene.pods(1, phase="Running"))["bare"]
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"].startswith("podgroup-")


@scenarios
async def a_pod_without_requests_is_filled_in(scene: Scene) -> None:
    a = task("a", 2)
    del a["template"]["spec"]["containers"][0]["resources"]
    await scene.running("j", a)


@scenarios
async def a_task_that_can_never_fit_does_not_hold_up_others(scene: Scene) -> None:
    await scene.submit("giant", task("a", 1, cpu="5000"))
    await scene.running("j", task("a", 1))

    async def not_let_in() -> bool:
        conditions = (await scene.group("giant")).get("status", {}).get("conditions", [])
        return any(c["message"] for c in conditions)

    await scene.wait(not_let_in, "a reason for the giant")


@scenarios
async def a_pods_own_rules_choose_its_node(scene: Scene) -> None:
    await scene.node("n0", cpu="4", disk="slow")
    n1 = await scene.node("n1", cpu="4", disk="fast")
    a = scene.at_home("a", 2)
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
    required = {"nodeSelectorTerms": [term]}
    a["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    pods = await scene.running("j", a)
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {n1}


@scenarios
async def pods_that_keep_apart_get_a_node_each(scene: Scene) -> None:
    await scene.node("n0", cpu="4")
    await scene.node("n1", cpu="4")
    a = scene.at_home("a", 2)
    term = {
        "labelSelector": {"matchLabels": {"volcano.sh/job-name": "j"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    a["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    pods = await scene.running("j", a)
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == 2


@scenarios
async def a_drained_node_gets_nothing_more(scene: Scene) -> None:
    n0 = await scene.node("n0", cpu="4")
    await scene.api.patch("nodes", "", n0, {"spec": {"unschedulable": True}})
    n1 = await scene.node("n1", cpu="4")
    pods = await scene.running("j", scene.at_home("a", 3))
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {n1}


@scenarios
async def a_pod_waits_behind_a_gate_until_its_queue_has_admitted_it(scene: Scene) -> None:
    await scene.node("n", cpu="8")
    narrow = await scene.queue("narrow", capability={"cpu": "2"})
    a = scene.at_home("a", 3, minAvailable=1, annotations={keys.QUEUE_GATE: "true"})
    a["template"]["spec"]["schedulingGates"] = [{"name": keys.QUEUE_GATE}]
    await scene.submit("j", a, min_available=1, queue=narrow)
    await scene.phase("j", "Running", running=2, pending=1)
    pods = (await scene.pods(3)).values()
    gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
    assert [pod["spec"].get("nodeName") for pod in gated] == [None]
    first = min(name for name in await scene.pods(2, phase="Running"))
    await scene.end(first)
    await scene.phase("j", "Running", running=2, succeeded=1)


@scenarios
async def a_gated_pod_waits_for_its_gate(scene: Scene) -> None:
    a = task("a", 1)
    a["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await scene.submit("j", a)
    pod = (await scene.pods(1))["j-a-0"]
    assert "nodeName" not in pod["spec"]
    await scene.api.patch("pods", scene.namespace, "j-a-0", {"spec": {"schedulingGates": None}})
    await scene.phase("j", "Running")


@scenarios.mark()
async def test_place(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
