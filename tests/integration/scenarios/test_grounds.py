"""Racks and rows, jobs that keep together there, and flows of jobs (H01 to H04, F01 to F05)."""

import contextlib
from typing import Any

import pytest
import yaml

from tests.integration.scenarios.offers import taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, ending, task, uids
from tests.support import world
from tests.support.api import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


# --- HyperNodes ------------------------------------------------------------------------------


async def hypernode(scene: Scene, name: str, tier: int, kind: str, *selectors: Object) -> str:
    """Create a HyperNode; return its full name."""
    full = f"{scene.namespace}-{name}"
    members = [{"type": kind, "selector": selector} for selector in selectors]
    await taken(scene, "hypernodes", whole("hypernodes", full, {"tier": tier, "members": members}))
    return full


def exactly(name: str) -> Object:
    return {"exactMatch": {"name": name}}


async def counted(scene: Scene, **counts: int) -> None:
    """Wait until HyperNodes count so many nodes below them."""
    seen: dict[str, int] = {}

    async def found() -> bool:
        for name in counts:
            one = await scene.api.get("hypernodes", "", f"{scene.namespace}-{name}")
            seen[name] = one.get("status", {}).get("nodeCount", 0)
        return seen == counts

    await scene.wait(found, lambda: f"nodes {counts}, counted are {seen}")


@scenarios
async def nodes_are_counted_whichever_way_they_are_named(scene: Scene) -> None:
    for number in range(4):
        await scene.node(f"n{number}", cpu="2", rack="left" if number < 2 else "right")
    pattern = f"^{scene.namespace}-n[0-2]$"
    mark = {"home": scene.namespace, "rack": "right"}
    one = await hypernode(scene, "one", 1, "Node", exactly(f"{scene.namespace}-n0"))
    await hypernode(scene, "some", 1, "Node", {"regexMatch": {"pattern": pattern}})
    right = await hypernode(scene, "right", 1, "Node", {"labelMatch": {"matchLabels": mark}})
    await hypernode(scene, "row", 2, "HyperNode", exactly(one), exactly(right))
    await counted(scene, one=1, some=3, right=2, row=3)
    await scene.node("n4", cpu="2", rack="right")
    await scene.api.delete("nodes", "", f"{scene.namespace}-n0")
    await counted(scene, one=0, some=2, right=3, row=3)


async def two_racks(scene: Scene) -> dict[str, set[str]]:
    """Make a row of two racks of two nodes with two CPUs each; return the nodes by rack."""
    racks: dict[str, set[str]] = {}
    for rack in ("left", "right"):
        racks[rack] = {await scene.node(f"{rack}-{n}", cpu="2", rack=rack) for n in range(2)}
        await hypernode(scene, rack, 1, "Node", *[exactly(node) for node in sorted(racks[rack])])
    below = [exactly(f"{scene.namespace}-{rack}") for rack in racks]
    await hypernode(scene, "row", 2, "HyperNode", *below)
    await counted(scene, left=2, right=2, row=4)
    return racks


def within(tier: int) -> Object:
    return {"mode": "hard", "highestTierAllowed": tier}


def places(pods: dict[str, Object]) -> set[str]:
    """Return the nodes of pods."""
    return {pod["spec"]["nodeName"] for pod in pods.values()}


@scenarios
async def a_job_keeps_to_one_rack_and_comes_back_to_it(scene: Scene) -> None:
    racks = await two_racks(scene)
    before = await scene.running("j", scene.at_home("a", 4), networkTopology=within(1))
    (rack,) = [nodes for nodes in racks.values() if places(before) <= nodes]
    await scene.evict("j-a-1")

    async def anew() -> bool:
        return uids(await scene.pods(4, phase="Running"))["j-a-1"] != uids(before)["j-a-1"]

    await scene.wait(anew, "another j-a-1")
    assert places(await scene.pods(4)) <= rack


@scenarios
async def a_job_takes_the_rack_that_has_room(scene: Scene) -> None:
    racks = await two_racks(scene)
    left = scene.at_home("a", 1)
    left["template"]["spec"]["nodeSelector"]["rack"] = "left"
    await scene.running("there", left)
    await scene.submit("j", scene.at_home("b", 4), networkTopology=within(1))
    await scene.phase("j", "Running", running=4)
    assert places(await scene.pods(4, task="b")) <= racks["right"]


@scenarios
async def a_job_too_large_for_a_rack_takes_the_row_if_it_may(scene: Scene) -> None:
    await two_racks(scene)
    await scene.submit("narrow", scene.at_home("a", 5), networkTopology=within(1))
    await scene.condition("narrow", "Unschedulable")
    assert not [p for p in (await scene.pods(5)).values() if "nodeName" in p["spec"]]
    await scene.submit("wide", scene.at_home("a", 5), networkTopology=within(2))
    await scene.phase("wide", "Running", running=5)


@scenarios
async def a_job_too_large_for_the_row_waits(scene: Scene) -> None:
    await two_racks(scene)
    await scene.submit("j", scene.at_home("a", 9), networkTopology=within(2))
    await scene.condition("j", "Unschedulable")
    assert not [p for p in (await scene.pods(9)).values() if "nodeName" in p["spec"]]


@scenarios
async def a_soft_wish_holds_nobody_up(scene: Scene) -> None:
    await two_racks(scene)
    await scene.running("j", scene.at_home("a", 7), networkTopology={"mode": "soft"})


# --- discovery -------------------------------------------------------------------------------


@scenarios
async def hypernodes_are_discovered_from_the_labels_of_nodes(scene: Scene) -> None:
    label = f"{scene.namespace}.example.com/rack"
    nodes = [await scene.node(f"n{number}", cpu="2") for number in range(3)]
    for node, rack in zip(nodes, ("a", "a", "b"), strict=True):
        await scene.api.patch("nodes", "", node, {"metadata": {"labels": {label: rack}}})
    levels = {"kinds": [{"nodeLabel": label}, {"nodeLabel": "kubernetes.io/hostname"}]}
    await discover(scene, levels)
    try:
        await discovered(scene, label, {"a": {nodes[0], nodes[1]}, "b": {nodes[2]}})
        for node, rack in ((nodes[0], "b"), (nodes[1], "b")):
            await scene.api.patch("nodes", "", node, {"metadata": {"labels": {label: rack}}})
        await discovered(scene, label, {"b": set(nodes)})
        for node in nodes:
            await scene.api.patch("nodes", "", node, {"metadata": {"labels": {label: None}}})
        await discovered(scene, label, {})
    finally:
        await scene.api.delete("configmaps", *CONFIG_MAP)


CONFIG_MAP = ("pumice-system", "volcano-controller-configmap")


async def discover(scene: Scene, levels: Object) -> None:
    """Tell the controller where to look, in its own namespace."""
    namespace, name = CONFIG_MAP
    with contextlib.suppress(ApiError):  # it is there already
        await scene.api.create("namespaces", {"metadata": {"name": namespace}})
    source = {"source": "label", "enabled": True, "config": {"networkTopologyTypes": levels}}
    text = yaml.safe_dump({"networkTopologyDiscovery": [source]})
    body = {"metadata": {"name": name}, "data": {"volcano-controller.conf": text}}
    await scene.api.create("configmaps", body, namespace)


async def discovered(scene: Scene, label: str, racks: dict[str, set[str]]) -> None:
    """Wait until just these racks of the first tier are there, with just these nodes."""
    seen: list[Object] = []

    def sound(one: Object) -> bool:
        return bool(
            one["spec"]["tier"] == 1
            and one["spec"]["tierName"] == label
            and one.get("status", {}).get("nodeCount") == len(one["spec"]["members"])
        )

    async def found() -> bool:
        nonlocal seen
        mark = {"labelSelector": f"volcano.sh/network-topology-source=label,{label}"}
        seen = await scene.api.items("hypernodes", **mark)
        there = {
            one["metadata"]["labels"][label]: {
                member["selector"]["exactMatch"]["name"] for member in one["spec"]["members"]
            }
            for one in seen
        }
        return there == racks and all(sound(one) for one in seen)

    await scene.wait(found, lambda: f"racks {racks}, there are {seen}")


# --- flows -----------------------------------------------------------------------------------


async def template(scene: Scene, name: str, pod: Object | None = None) -> None:
    """Create a JobTemplate of one pod, whose annotations are `pod`."""
    spec = world.job("x", task("a", 1, annotations=pod))["spec"]
    await taken(scene, "jobtemplates", whole("jobtemplates", name, spec))


async def flow(scene: Scene, policy: str, **needs: str) -> None:
    """Create the JobFlow `f`: each entry waits for the names that it is given."""
    flows = [
        {"name": name, **({"dependsOn": {"targets": after.split()}} if after else {})}
        for name, after in needs.items()
    ]
    body = whole("jobflows", "f", {"flows": flows, "jobRetainPolicy": policy})
    await taken(scene, "jobflows", body)


async def flows_to(scene: Scene, phase: str) -> Object:
    """Wait until the JobFlow is in a phase; return its status."""
    seen: Any = None

    async def found() -> Object | None:
        nonlocal seen
        seen = (await scene.api.get("jobflows", scene.namespace, "f")).get("status", {})
        return seen if seen.get("state", {}).get("phase") == phase else None

    status: Object = await scene.wait(found, lambda: f"the flow {phase}, it says {seen}")
    return status


@scenarios
async def a_flow_runs_its_jobs_one_after_the_other(scene: Scene) -> None:
    for name in ("load", "train", "test", "report"):
        await template(scene, name, ending(0, 1))
    await flow(scene, "retain", load="", train="load", test="load", report="train test")
    status = await flows_to(scene, "Succeed")
    assert sorted(status["completedJobs"]) == ["f-load", "f-report", "f-test", "f-train"]
    jobs = {j["metadata"]["name"]: j for j in await scene.api.items("jobs", scene.namespace)}
    begun = {name: job["metadata"]["creationTimestamp"] for name, job in jobs.items()}
    assert begun["f-load"] < min(begun["f-train"], begun["f-test"])
    assert max(begun["f-train"], begun["f-test"]) < begun["f-report"]


@scenarios
async def a_flow_that_is_done_may_clear_up(scene: Scene) -> None:
    await template(scene, "only", ending(0))
    await flow(scene, "delete", only="")
    await flows_to(scene, "Succeed")
    await scene.gone("jobs", "f-only")
    await scene.pods(0)


@scenarios
async def a_flow_fails_with_its_job(scene: Scene) -> None:
    await template(scene, "first", ending(1))
    await template(scene, "then")
    await flow(scene, "retain", first="", then="first")
    await flows_to(scene, "Failed")
    jobs = await scene.api.items("jobs", scene.namespace)
    assert [job["metadata"]["name"] for job in jobs] == ["f-first"]


@scenarios
async def a_deleted_flow_takes_its_jobs_along(scene: Scene) -> None:
    await template(scene, "only")
    await flow(scene, "retain", only="")
    await flows_to(scene, "Running")
    await scene.api.delete("jobflows", scene.namespace, "f")
    await scene.gone("jobs", "f-only")
    await scene.pods(0)


@scenarios.mark()
async def test_grounds(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
