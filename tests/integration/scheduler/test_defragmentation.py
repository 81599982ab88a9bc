"""A pod moves so that a job starts which no node has room for: on a schedule, or if approved."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from shared.jobs.defrag import approval
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet, fleet
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = "default"
CONF = """
actions: "enqueue, allocate, backfill, defrag"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
configurations:
- name: defrag
  arguments: {minRunningTime: 0s, SCHEDULE}
"""
ONCE = {"spec": {"restartPolicy": "Never"}}


@asynccontextmanager
async def services(plane: ControlPlane, directory: Path, schedule: str) -> AsyncIterator[Fleet]:
    conf = directory / "volcano-scheduler.conf"
    conf.write_text(CONF.replace("SCHEDULE", schedule))
    async with fleet(plane, directory) as running:
        await running.start("scheduler", wait=False, scheduler_conf=str(conf))
        await running.start_all("cache", "binder", "controller")
        yield running


def job(name: str, cpu: str) -> world.Json:
    return world.job(name, world.bare_task("w", 1, {"cpu": cpu}, template=ONCE))


async def pods_of(api: Api, name: str = "") -> list[world.Json]:
    """Return the pods of a job, or of all, that have a node and are not leaving."""
    return [
        pod
        for pod in await api.items("pods", NAMESPACE)
        if pod["metadata"]["name"].startswith(f"{name}-" if name else "")
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def runs(api: Api, *names: str) -> Callable[[], Awaitable[bool]]:
    async def all_run() -> bool:
        # One list: of several, each could show a job before or after it moves.
        running = {
            pod["metadata"]["name"].partition("-")[0]
            for pod in await pods_of(api)
            if pod["status"]["phase"] == "Running"
        }
        return running >= set(names)

    return all_run


async def in_pieces(api: Api, running: Fleet) -> dict[str, world.Json]:
    """Have a pod of one CPU on each node of four, and a job of four that waits; return the pods."""
    for name in ("a", "b"):
        await api.create("jobs", job(name, "1"), NAMESPACE)
        await until(runs(api, name), describe=running.logs)
    pods = {name: (await pods_of(api, name))[0] for name in ("a", "b")}
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"node-0", "node-1"}
    await api.create("jobs", job("big", "4"), NAMESPACE)
    return pods


async def test_a_round_that_is_due_makes_room(
    api: Api, plane: ControlPlane, tmp_path: Path
) -> None:
    async with services(plane, tmp_path, "schedule: '@every 3s'") as running:
        before = await in_pieces(api, running)
        await until(runs(api, "a", "b", "big"), describe=running.logs, deadline_s=40)
        after = {name: (await pods_of(api, name))[0] for name in ("a", "b")}
        moved = [
            name for name in before
            if before[name]["metadata"]["uid"] != after[name]["metadata"]["uid"]
        ]  # fmt: skip
        assert len(moved) == 1
        [big] = await pods_of(api, "big")
        assert big["spec"]["nodeName"] == before[moved[0]]["spec"]["nodeName"]


async def test_an_approved_move_is_made_and_no_other(
    api: Api, plane: ControlPlane, tmp_path: Path
) -> None:
    async with services(plane, tmp_path, "maxMoves: 1") as running:
        before = await in_pieces(api, running)

        async def waits() -> bool:
            groups = await api.items("podgroups", NAMESPACE)
            conditions = [c for g in groups for c in g.get("status", {}).get("conditions", [])]
            return any("nsufficient cpu" in c.get("message", "") for c in conditions)

        await until(waits, describe=running.logs)
        assert await pods_of(api, "big") == []
        text = approval([before["b"]["metadata"]["uid"]], now=time.time())
        annotations = {"metadata": {"annotations": {"pumice.dev/defrag": text}}}
        await api.patch("queues", "", "root", annotations)
        try:
            await until(runs(api, "a", "b", "big"), describe=running.logs, deadline_s=40)
        finally:
            clean = {"metadata": {"annotations": {"pumice.dev/defrag": None}}}
            await api.patch("queues", "", "root", clean)
        [stayed] = await pods_of(api, "a")
        assert stayed["metadata"]["uid"] == before["a"]["metadata"]["uid"]
        [big] = await pods_of(api, "big")
        assert big["spec"]["nodeName"] == before["b"]["spec"]["nodeName"]
