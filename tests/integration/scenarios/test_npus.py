"""Jobs whose pods share Ascend NPUs, as HAMi's device plugin would find them on a node (DV3)."""

import json

import pytest

from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

CHIP = "Ascend910B3"
RESOURCE = f"huawei.com/{CHIP}"
GIVEN = f"hami.io/{CHIP}-devices-allocated"


async def equip(scene: Scene, cards: int) -> str:
    """Give the scene a node that registers and offers so many NPUs; return its name."""
    node = await scene.node("n", cpu="64")
    each = {"count": 4, "devmem": 65536, "devcore": 20, "type": CHIP, "health": True}
    listed = [
        {"id": f"N{at}", "index": at, **each, "custominfo": {"NetworkID": at // 4}}
        for at in range(cards)
    ]
    told = {f"hami.io/node-register-{CHIP}": json.dumps(listed), "hami-vnpu-core": "false"}
    await scene.api.patch("nodes", "", node, {"metadata": {"annotations": told}})
    offered = {RESOURCE: str(4 * cards)}
    status = {"status": {"capacity": offered, "allocatable": offered}}
    await scene.api.patch("nodes", "", node, status, sub="status")
    return node


def asking(scene: Scene, name: str, replicas: int, **asked: int) -> Object:
    """Return a task whose pods ask for NPUs by number and memory."""
    made = scene.at_home(name, replicas)
    stated = {RESOURCE: str(asked["number"])}
    if "memory" in asked:
        stated[f"{RESOURCE}-memory"] = str(asked["memory"])
    resources = made["template"]["spec"]["containers"][0].setdefault("resources", {})
    for kind in ("requests", "limits"):
        resources[kind] = {**resources.get(kind, {}), **stated}
    return made


def given(pod: Object) -> list[str]:
    """Return the NPUs that a pod's annotations name, each with its memory."""
    told = pod["metadata"]["annotations"]
    assert told[GIVEN] == told[f"hami.io/{CHIP}-devices-to-allocate"]
    parts = [part.split(",") for part in told[GIVEN].rstrip(":;").split(":")]
    assert {part[1] for part in parts} == {CHIP}
    return [f"{part[0]} {part[2]}" for part in parts]


@scenarios
async def pods_get_templates_of_npus_and_the_next_one_waits_until_one_is_free(scene: Scene) -> None:
    node = await equip(scene, 1)
    await scene.submit("first", asking(scene, "a", 2, number=1, memory=20000), minAvailable=2)
    pods = await scene.pods(2, phase="Running", task="a")
    for pod in pods.values():
        told = pod["metadata"]["annotations"]
        assert given(pod) == ["N0 32768"]
        assert json.loads(told[RESOURCE]) == [{"UUID": "N0", "temp": "vir10_3c_32g"}]
        assert told["hami.io/vgpu-node"] == node == pod["spec"]["nodeName"]
        assert told["hami.io/bind-phase"] == "allocating"
        assert int(told["hami.io/bind-time"]) > 0
    await scene.submit("second", asking(scene, "b", 1, number=1, memory=1))
    await scene.condition("second", "Unschedulable", text="no ascend device available")
    await scene.end("first-a-0")
    (later,) = (await scene.pods(1, phase="Running", task="b")).values()
    assert given(later) == ["N0 16384"]


@scenarios
async def a_gang_gets_whole_npus_of_one_network_or_none(scene: Scene) -> None:
    await equip(scene, 6)
    await scene.submit("first", asking(scene, "a", 1, number=3), minAvailable=1)
    (pod,) = (await scene.pods(1, phase="Running", task="a")).values()
    assert given(pod) == ["N0 65536", "N1 65536", "N2 65536"]
    await scene.submit("second", asking(scene, "b", 2, number=2), minAvailable=2)
    await scene.condition("second", "Unschedulable", text="no ascend device available")
    pods = await scene.pods(2, phase="Pending", task="b")
    assert not any(pod["spec"].get("nodeName") for pod in pods.values()), "no half gang"
    await scene.end("first-a-0")
    later = await scene.pods(2, phase="Running", task="b")
    found = [card for pod in later.values() for card in given(pod)]
    assert len(set(found)) == len(found) == 4


@scenarios
async def parts_that_no_npu_is_cut_into_are_refused_by_name(scene: Scene) -> None:
    await equip(scene, 2)
    await scene.submit("j", asking(scene, "a", 1, number=2, memory=1000))
    await scene.condition("j", "Unschedulable", text="in parts that none is cut into")


@scenarios.mark()
async def test_npus(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
