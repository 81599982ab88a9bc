"""What users ask about jobs and queues, answered by the real services behind the real API server.

Answers follow what has happened within a moment, so a story waits for each of them.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.api.visibility import API_VERSION
from tests.integration.scenarios.answering import ROOT, answer, full_queue
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, task
from tests.support import world
from tests.support.api import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


async def imagined(
    scene: Scene, job: Object, accept: Callable[[Object], Any], **more: Any
) -> Object:
    """Ask what would happen to a job until the answer is accepted; return the answer."""
    seen: Object = {}

    async def found() -> Object | None:
        nonlocal seen
        body = {"apiVersion": API_VERSION, "kind": "WhatIf", "spec": {"job": job, **more}}
        made = await scene.api.request("POST", f"{ROOT}/namespaces/{scene.namespace}/whatifs", body)
        seen = made["status"]
        return seen if accept(seen) else None

    told: Object = await scene.wait(found, lambda: f"the answer to a what-if, it says {seen}")
    return told


def failed(explanation: Object) -> list[str]:
    """Return the gates that stop a job."""
    return [gate["name"] for gate in explanation["gates"] if gate["state"] == "Failed"]


@scenarios
async def why_does_it_wait_names_gate_shortage_and_holder_until_it_starts(scene: Scene) -> None:
    queue = await full_queue(scene)
    await scene.submit("waits", task("a", 2, cpu="1"), queue=queue)
    told = await answer(scene, "explanations/waits", lambda said: said.get("holders"))
    assert failed(told) != []
    assert told["position"] == 1
    (short,) = [each for each in told["shortages"] if each["resource"] == "cpu"]
    assert (short["requested"], short["free"]) == ("2", "0")
    assert [(held["job"]["name"], held["holds"]["cpu"]) for held in told["holders"]] == [
        ("holder", "2")
    ]
    assert told["wouldHelp"] != []
    await scene.api.delete("jobs", scene.namespace, "holder")
    await scene.phase("waits", "Running")
    await answer(scene, "explanations/waits", lambda said: not failed(said))


@scenarios
async def what_if_counts_the_nodes_that_a_job_needs(scene: Scene) -> None:
    pool = {"pool": scene.namespace}
    template = {"spec": {"nodeSelector": pool}}
    wide = world.bare_task("w", 5, {"cpu": "2"}, template=template)
    shape = world.node("four", cpu="4")
    shape["metadata"]["labels"] = pool
    told = await imagined(scene, world.job("j", wide), lambda said: True, shapes=[shape])
    assert told["startsNow"] is True
    assert told["neededNodes"] == [{"shape": "four", "count": 3}]


POLICIES = "/apis/admissionregistration.k8s.io/v1"


@asynccontextmanager
async def refusing_binds(scene: Scene, prefix: str) -> AsyncIterator[None]:
    """Let a policy refuse binds of pods of the scene by a prefix of their names."""
    name = f"{scene.namespace}-binds"
    place = {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    resources = {"resources": ["pods/binding", "configmaps"]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"namespaceSelector": place, "resourceRules": [rule | resources]},
            "validations": [
                {
                    "expression": f'!object.metadata.name.startsWith("{prefix}")',
                    "message": "no such binds here",
                }
            ],
        },
    }
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    found = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, body in found.items():
        await scene.api.request("POST", f"{POLICIES}/{plural}", body)

    async def refuses() -> bool:
        try:
            probe = {"metadata": {"name": f"{prefix}-probe"}}
            await scene.api.request(
                "POST", f"/api/v1/namespaces/{scene.namespace}/configmaps?dryRun=All", probe
            )
        except ApiError:
            return True
        return False

    try:
        await scene.wait(refuses, "the policy refuses")
        yield
    finally:
        for plural in reversed(found):
            await scene.api.request("DELETE", f"{POLICIES}/{plural}/{name}")


@scenarios
async def more_room_is_no_help_to_a_pod_whose_bind_a_policy_refuses(scene: Scene) -> None:
    await scene.node("home", cpu="1")
    async with refusing_binds(scene, "refused"):
        await scene.submit("refused", scene.at_home("a", 1))
        told = await answer(scene, "explanations/refused", lambda said: failed(said) == ["binder"])
        assert "no such binds here" in str(told["gates"])
        await scene.running("other", scene.at_home("a", 1))
        told = await answer(
            scene,
            "explanations/refused",
            lambda said: (
                failed(said) not in (["binder"], [])
                and said.get("nextEvent", "").startswith("a bind of pod refused-a-0 succeeds;")
            ),
        )
        assert not told.get("wouldHelp")
        assert "no such binds here" in told["nextEvent"]


@scenarios
async def a_job_never_passes_all_gates_before_it_has_a_node(scene: Scene) -> None:
    """Each look between its creation and its first explanation says what it waits for."""
    await scene.node("home", cpu="1")
    await scene.submit("waits", scene.at_home("a", 1, cpu="2"))

    def says(explained: Object) -> bool:
        states = {gate["state"] for gate in explained["gates"]}
        assert states != {"Passed"}, explained
        return "Failed" in states

    await answer(scene, "explanations/waits", says)


@scenarios
async def a_job_says_what_comes_next_until_it_runs(scene: Scene) -> None:
    await scene.submit("starts", task("a", 2))

    def says(explained: Object) -> bool:
        is_running = explained["phase"] == "Running"
        assert is_running or explained.get("nextEvent"), explained
        return is_running

    await answer(scene, "explanations/starts", says)


@scenarios
async def its_place_in_line_follows_the_order_of_the_scheduler(scene: Scene) -> None:
    queue = await full_queue(scene)
    urgent = await scene.priority("urgent", 1000)
    await scene.submit("early", task("a", 1, cpu="2"), queue=queue)
    await answer(scene, "pendingjobs/early", lambda said: said.get("position") == 1)
    await scene.submit("late", task("a", 1, cpu="2"), queue=queue, priorityClassName=urgent)
    told = await answer(scene, f"/queues/{queue}/pendingjobs", lambda said: len(said["items"]) == 2)
    line = [(job["metadata"]["name"], job["position"]) for job in told["items"]]
    assert line == [("late", 1), ("early", 2)]


@scenarios
async def what_if_names_the_node_where_the_job_then_starts(scene: Scene) -> None:
    home = await scene.node("home", cpu="2")
    job = world.job("train", scene.at_home("a", 2, cpu="1"))
    told = await imagined(scene, job, lambda said: said["startsNow"])
    assert told["placements"] == [{"task": "a", "node": home, "pods": 2}]
    await scene.api.create("jobs", job, scene.namespace)
    await scene.phase("train", "Running")
    pods = await scene.pods(2, phase="Running")
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {home}


@scenarios
async def what_if_names_the_gate_of_a_job_that_its_queue_would_not_let_in(scene: Scene) -> None:
    queue = await full_queue(scene)
    job = world.job("more", task("a", 1, cpu="1"), queue=queue)
    told = await imagined(scene, job, lambda said: not said["startsNow"])
    assert told["gate"] != ""
    assert "cpu" in {each["resource"] for each in told["shortages"]}
    assert [
        each["metadata"]["name"] for each in await scene.api.items("jobs", scene.namespace)
    ] == ["holder"]


@scenarios
async def what_if_names_the_pod_that_the_job_then_evicts(scene: Scene) -> None:
    await scene.node("home", cpu="1")
    low, high = await scene.priority("low", 1), await scene.priority("high", 1000)
    await scene.running("victim", scene.at_home("a", 1), priorityClassName=low)
    job = world.job("train", scene.at_home("b", 1), priorityClassName=high)
    told = await imagined(scene, job, lambda said: said.get("evictions"))
    assert [pod["name"] for pod in told["evictions"]] == ["victim-a-0"]
    await scene.api.create("jobs", job, scene.namespace)
    await scene.phase("train", "Running")
    await scene.phase("victim", "Pending")


@scenarios
async def a_queue_in_the_tree_tells_what_it_holds_and_who_waits(scene: Scene) -> None:
    queue = await full_queue(scene)
    await scene.submit("waits", task("a", 1, cpu="1"), queue=queue)
    told = await answer(
        scene,
        f"/queuetrees/{queue}",
        lambda said: (said.get("runningJobs"), said.get("pendingJobs")) == (1, 1),
    )
    assert told["parent"] == "root"
    (cpu,) = [each for each in told["resources"] if each["resource"] == "cpu"]
    assert (cpu["allocated"], cpu["capability"], cpu["pending"]) == ("2", "2", "1")


@scenarios
async def a_timeline_tells_the_life_of_a_job_and_that_it_is_gone(scene: Scene) -> None:
    await scene.running("j", task("a", 1))
    told = await answer(scene, "timelines/j", lambda said: said.get("phase") == "Running")
    happened = [entry["what"] for entry in told["entries"]]
    assert {"Created", "Admitted", "Placed", "Bound", "Running"} <= set(happened)
    assert not told.get("gone")
    await scene.api.delete("jobs", scene.namespace, "j")
    told = await answer(scene, "timelines/j", lambda said: said.get("gone"))
    assert told["phase"] == "Running"
    assert {"Placed", "Bound"} <= {entry["what"] for entry in told["entries"]}


@scenarios.mark()
async def test_an_answer(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
