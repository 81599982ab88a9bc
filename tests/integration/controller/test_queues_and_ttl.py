"""Queues that are closed and opened by Command, and finished jobs that are deleted, for real."""

from typing import Any

import aiohttp
import pytest

from tests.integration.controller.conftest import Hand
from tests.support.api import ApiError
from tests.support.fleet import Service
from tests.support.wait import until
from tests.support.world import job, queue, task

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARK = "volcano.sh/closed-by-parent"


async def order(hand: Hand, action: str, name: str) -> None:
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": name}
    uid = (await hand.api.get("queues", "", name))["metadata"]["uid"]
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": f"{name}-"},
        "action": action,
        "target": {**target, "uid": uid},
    }
    await hand.api.create("commands", body, hand.namespace)


async def make_queue(hand: Hand, name: str, parent: str = "") -> None:
    below = {"parent": parent} if parent else {}
    await hand.api.create("queues", queue(name, weight=1, **below))


async def wait_states(hand: Hand, wanted: dict[str, str], *, deadline_s: float = 30) -> None:
    seen: dict[str, str] = {}

    async def probe() -> bool:
        for name in wanted:
            found = await hand.api.get("queues", "", name)
            seen[name] = found.get("status", {}).get("state", "")
        return seen == wanted

    await until(probe, deadline_s=deadline_s, describe=lambda: f"{wanted}, seen {seen}")


async def wait_no_commands(hand: Hand) -> None:
    async def probe() -> bool:
        return await hand.api.items("commands", hand.namespace) == []

    await until(probe, deadline_s=30, describe="commands are deleted once they took effect (Q02)")


async def test_a_queue_closes_with_those_below_it_and_opens_exactly_those_again(
    controller: Service, hand: Hand
) -> None:
    team, red, blue, late = (f"{name}-{hand.namespace}" for name in ("team", "red", "blue", "late"))
    await make_queue(hand, team)
    await make_queue(hand, red, team)
    await make_queue(hand, blue, team)
    await wait_states(hand, {team: "Open", red: "Open", blue: "Open"})
    assert (await hand.api.get("queues", "", team))["spec"]["parent"] == "root"

    await hand.submit(job("held", task("a", 1), queue=red))
    await hand.wait_pods(1)
    await order(hand, "CloseQueue", blue)
    await wait_states(hand, {blue: "Closed"})
    await order(hand, "CloseQueue", team)
    await wait_states(hand, {team: "Closed", red: "Closing", blue: "Closed"})
    await wait_no_commands(hand)
    marks = {
        name: (await hand.api.get("queues", "", name))["metadata"].get("annotations", {}).get(MARK)
        for name in (red, blue)
    }
    assert marks == {red: "true", blue: None}

    await hand.run_all()
    await hand.wait_job("held", "Running")
    await hand.report("held-a-0", "Succeeded", 0)
    await wait_states(hand, {red: "Closed"})
    await order(hand, "OpenQueue", red)
    await wait_no_commands(hand)
    await wait_states(hand, {red: "Closed"})
    await order(hand, "OpenQueue", team)
    await wait_states(hand, {team: "Open", red: "Open", blue: "Closed"})
    await wait_no_commands(hand)
    opened = await hand.api.get("queues", "", red)
    assert MARK not in opened["metadata"].get("annotations", {})

    await make_queue(hand, late, blue)
    await wait_states(hand, {late: "Closed"})
    await hand.api.patch("queues", "", late, {"spec": {"parent": team}})
    await wait_states(hand, {late: "Open"})

    told: set[tuple[str, str, str]] = set()

    async def is_told() -> bool:
        for event in await hand.api.items("events", "default"):
            about = event["involvedObject"]
            if about["kind"] == "Queue":
                told.add((about["name"], event["type"], event["reason"]))
        return told >= {
            (team, "Normal", "CloseQueue"),
            (team, "Normal", "OpenQueue"),
            (red, "Warning", "OpenQueue"),
            (red, "Normal", "CloseQueue"),
            (late, "Normal", "CloseQueue"),
            (late, "Normal", "OpenQueue"),
        }

    await until(is_told, deadline_s=30, describe=lambda: f"events on queues (Q05), seen {told}")


async def test_the_root_queue_cannot_be_closed(controller: Service, hand: Hand) -> None:
    await wait_states(hand, {"root": "Open"})
    await order(hand, "CloseQueue", "root")
    await wait_no_commands(hand)
    await wait_states(hand, {"root": "Open"})


async def test_a_finished_job_is_deleted_with_its_pods_and_an_aborted_one_stays(
    controller: Service, hand: Hand
) -> None:
    aborts: list[dict[str, Any]] = [{"event": "PodFailed", "action": "AbortJob"}]
    await hand.submit(job("kept", task("a", 1), ttlSecondsAfterFinished=0, policies=aborts))
    await hand.submit(job("gone", task("a", 1), ttlSecondsAfterFinished=1))
    await hand.wait_pods(2)
    await hand.run_all()
    await hand.wait_job("kept", "Running")
    await hand.wait_job("gone", "Running")
    await hand.report("kept-a-0", "Failed", 1)
    await hand.wait_job("kept", "Aborted")
    await hand.report("gone-a-0", "Succeeded", 0)

    async def is_gone() -> bool:
        try:
            await hand.job("gone")
        except ApiError as error:
            return error.status == 404
        return False

    await until(is_gone, deadline_s=50, describe="the finished job is deleted (J38, G01)")
    assert "gone-a-0" not in await hand.pods(), "what hangs on a job goes before it"
    assert (await hand.job("kept"))["status"]["state"]["phase"] == "Aborted"


async def test_a_closing_queue_is_closed_when_its_last_job_is_deleted(
    controller: Service, hand: Hand
) -> None:
    """As by `kubectl delete job`: the PodGroup goes by its owner reference (Q02, Q03)."""
    name = f"closing-{hand.namespace}"
    await make_queue(hand, name)
    await wait_states(hand, {name: "Open"})
    await hand.submit(job("last", task("a", 1), queue=name))
    await hand.wait_pods(1)
    await order(hand, "CloseQueue", name)
    await wait_states(hand, {name: "Closing"})
    held = f'volcano_queue_pod_group_inqueue_count{{queue_name="{name}"}}'
    assert await _sample(controller, held) == "1.0"
    await hand.api.delete("jobs", hand.namespace, "last")
    await wait_states(hand, {name: "Closed"}, deadline_s=60)
    assert await _sample(controller, held) == "0.0"


async def _sample(controller: Service, series: str) -> str:
    """Return the value of one series of the controller's metrics."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{controller.address}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    return next((line.rpartition(" ")[2] for line in lines if line.startswith(series)), "")


def _message(found: dict) -> str:
    return found.get("status", {}).get("state", {}).get("message", "")


async def test_a_job_waits_for_the_claim_that_it_names_j30(controller: Service, hand: Hand) -> None:
    volumes = [{"mountPath": "/data", "volumeClaimName": "data"}]
    await hand.submit(job("reads", task("a", 1), volumes=volumes))
    held = await hand.wait_job("reads", lambda j: "no claim 'data'" in _message(j))
    assert held["status"]["state"]["phase"] == "Pending"
    assert await hand.api.items("podgroups", hand.namespace) == []
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    path = f"/api/v1/namespaces/{hand.namespace}/persistentvolumeclaims"
    await hand.api.request("POST", path, claim)
    (pod,) = (await hand.wait_pods(1)).values()
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "data"
    await hand.wait_job("reads", lambda j: not j["status"]["state"].get("message"))
