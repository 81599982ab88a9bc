"""JobFlows and JobTemplates on a real API server (F01 to F05)."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.jobs.flows import NOT_DAG
from tests.integration.controller.conftest import Hand
from tests.support.fleet import Service
from tests.support.wait import until
from tests.support.world import job, task

pytestmark = pytest.mark.asyncio(loop_scope="session")

GROUP = "flow.volcano.sh/v1alpha1"


async def template(hand: Hand, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": GROUP,
        "kind": "JobTemplate",
        "metadata": {"name": name},
        "spec": {**job("x", task("a", 1))["spec"], **spec},
    }
    await hand.api.create("jobtemplates", body, hand.namespace)


async def flow(hand: Hand, name: str, needs: dict[str, list[str]], **spec: Any) -> None:
    """Create a flow: `needs` has the targets of each of its entries."""
    flows = [
        {"name": entry, **({"dependsOn": {"targets": targets}} if targets else {})}
        for entry, targets in needs.items()
    ]
    body = {
        "apiVersion": GROUP,
        "kind": "JobFlow",
        "metadata": {"name": name},
        "spec": {"flows": flows, **spec},
    }
    await hand.api.create("jobflows", body, hand.namespace)


async def wait_status(
    hand: Hand, plural: str, name: str, holds: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    async def probe() -> bool:
        nonlocal seen
        seen = (await hand.api.get(plural, hand.namespace, name)).get("status", {})
        return bool(holds(seen))

    await until(probe, deadline_s=30, describe=lambda: hand._told(f"{plural} {name}", seen))
    return seen


def in_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: status.get("state", {}).get("phase") == phase


async def finish(hand: Hand, name: str, phase: str = "Succeeded", code: int = 0) -> None:
    """Have the one pod of a job run and end."""

    async def is_there() -> bool:
        return f"{name}-a-0" in await hand.pods()

    await until(is_there, deadline_s=30, describe=lambda: hand._told(f"pod of {name}", ""))
    await hand.report(f"{name}-a-0", "Running")
    await hand.wait_job(name, "Running")
    await hand.report(f"{name}-a-0", phase, code)


async def names(hand: Hand) -> set[str]:
    return {one["metadata"]["name"] for one in await hand.api.items("jobs", hand.namespace)}


async def test_jobs_start_when_those_before_them_have_completed(
    controller: Service, hand: Hand
) -> None:
    await template(hand, "load")
    await template(hand, "train")
    await flow(hand, "week", {"load": [], "train": ["load"], "report": ["load", "train"]})
    await wait_status(hand, "jobflows", "week", in_phase("Pending"))
    first = await hand.wait_job("week-load", "Pending")
    meta = first["metadata"]
    marks = {
        "volcano.sh/createdByJobTemplate": f"{hand.namespace}.load",
        "volcano.sh/createdByJobFlow": f"{hand.namespace}.week",
    }
    assert meta["labels"] == marks
    assert marks.items() <= meta["annotations"].items()
    assert [owner["kind"] for owner in meta["ownerReferences"]] == ["JobFlow"]
    assert await names(hand) == {"week-load"}

    await finish(hand, "week-load")
    await wait_status(hand, "jobflows", "week", in_phase("Running"))
    await finish(hand, "week-train")
    await wait_status(hand, "jobflows", "week", lambda s: len(s.get("completedJobs", [])) == 2)
    assert await names(hand) == {"week-load", "week-train"}, "there is no template yet"

    await template(hand, "report")
    await finish(hand, "week-report")
    status = await wait_status(hand, "jobflows", "week", in_phase("Succeed"))
    assert status["completedJobs"] == ["week-load", "week-report", "week-train"]
    course = {one["name"]: one for one in status["jobStatusList"]}
    assert [h["state"] for h in course["week-load"]["runningHistories"]][-1] == "Completed"
    assert course["week-load"]["endTimestamp"] >= course["week-load"]["startTimestamp"]
    assert status["conditions"]["week-train"]["phase"] == "Completed"
    of_load = await wait_status(hand, "jobtemplates", "load", lambda s: s.get("jobDependsOnList"))
    assert of_load["jobDependsOnList"] == [f"{hand.namespace}.week-load"]


async def test_a_flow_that_succeeded_deletes_its_jobs_if_it_wants_that(
    controller: Service, hand: Hand
) -> None:
    await template(hand, "only")
    await flow(hand, "once", {"only": []}, jobRetainPolicy="delete")
    await finish(hand, "once-only")
    await wait_status(hand, "jobflows", "once", in_phase("Succeed"))

    async def is_gone() -> bool:
        return await names(hand) == set()

    await until(is_gone, deadline_s=30, describe=lambda: hand._told("no jobs", ""))
    status = await wait_status(hand, "jobflows", "once", in_phase("Succeed"))
    assert status["completedJobs"] == ["once-only"], "what was done is still told"


async def test_a_flow_fails_with_its_first_job_that_fails_and_starts_no_more(
    controller: Service, hand: Hand
) -> None:
    for name in ("left", "right", "after-left", "after-right"):
        await template(hand, name)
    needs = {"left": [], "right": [], "after-left": ["left"], "after-right": ["right"]}
    await flow(hand, "fork", needs)
    await finish(hand, "fork-left", "Failed", 1)
    await wait_status(hand, "jobflows", "fork", in_phase("Failed"))
    await finish(hand, "fork-right")
    status = await wait_status(hand, "jobflows", "fork", lambda s: s.get("completedJobs"))
    assert status["completedJobs"] == ["fork-right"]
    assert status["state"]["phase"] == "Failed"
    assert await names(hand) == {"fork-left", "fork-right"}


async def test_what_has_no_effect_or_cannot_be_is_said_on_the_flow(
    controller: Service, hand: Hand
) -> None:
    await template(hand, "one")
    body = {
        "apiVersion": GROUP,
        "kind": "JobFlow",
        "metadata": {"name": "odd"},
        "spec": {
            "flows": [
                {
                    "name": "one",
                    "dependsOn": {"probe": {"tcpSocketList": [{"port": 80}]}},
                    "patch": {"jobSpec": {"queue": "other"}},
                }
            ]
        },
    }
    await hand.api.create("jobflows", body, hand.namespace)
    await flow(hand, "circle", {"one": ["two"], "two": ["one"]})
    told: set[tuple[str, str]] = set()

    async def is_told() -> bool:
        for event in await hand.api.items("events", hand.namespace):
            told.add((event["involvedObject"]["name"], event["message"]))
        return told >= {
            ("odd", "spec.flows[0].patch has no effect, as in Volcano"),
            ("odd", "spec.flows[0].dependsOn.probe has no effect, as in Volcano"),
            ("circle", f"spec.flows: {NOT_DAG}: one, two wait for each other"),
        }

    await until(is_told, deadline_s=30, describe=lambda: hand._told("events", told))
    made = await hand.wait_job("odd-one", "Pending")
    assert made["spec"]["queue"] == "default"
    assert await names(hand) == {"odd-one"}
