"""Five hundred hostile objects on the real API server, under services that a user has started."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.sim.hostile_objects import OpenApi, Planted, address, as_json, draw_objects
from tests.sim.valid_objects import TENANT, VALID_OBJECTS
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.pumice_run import Run, pumice_run
from tests.support.roles import run_flags
from tests.support.stack import real_plane
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

COUNT = 500
AT_ONCE = 16
NAMESPACE, HEALTHY = "hostile", "healthy"
MERGE = {"Content-Type": "application/merge-patch+json"}
OURS = re.compile(r"[A-Z]\w*: ")
"""An error that nobody has foreseen begins with its class."""


class Ground:
    """The cluster, the services on it, and what the attacker may send."""

    def __init__(self, api: Api, run: Run, http: aiohttp.ClientSession) -> None:
        self.api = api
        self.run = run
        self.http = http
        listening = (re.search(r"(\S+) listens on (\S+) \(pid", line) for line in run.lines)
        self.services = {found[1]: found[2] for found in listening if found}

    async def quarantined(self) -> list[str]:
        """Return a line for each key that a service has quarantined; all of them must answer."""
        lines: list[str] = []
        for name, place in self.services.items():
            async with self.http.get(f"http://{place}/quarantine") as answer:
                lines += [
                    f"{name}: {item['kind']} {item['key'][:60]}: {item['reason']}"
                    for item in await answer.json()
                ]
        return lines

    async def send(self, method: str, url: str, body: object) -> int:
        """Send something hostile; return the status of the answer."""
        if method == "POST":
            return await self.api.send("POST", url, as_json(body))
        try:
            await self.api.request(method, url, body, content_type=MERGE["Content-Type"])
        except ApiError as refusal:
            return refusal.status
        return 200

    async def plant(self, one: Planted) -> bool:
        """Create an object, give it its status, and change it some times."""
        if await self.send("POST", address(one.plural, NAMESPACE), one.body) >= 300:
            return False
        name = one.body["metadata"]["name"]
        if one.status is not None:
            url = address(one.plural, NAMESPACE, name, "status")
            await self.send("PATCH", url, {"status": one.status})
        for number in range(3):
            change = {"metadata": {"labels": {"change": str(number)}}}
            await self.send("PATCH", address(one.plural, NAMESPACE, name), change)
        return True

    async def uproot(self) -> None:
        """Delete everything that is hostile, and what was made of it."""
        for plural, sound in VALID_OBJECTS.items():
            url = address(plural, NAMESPACE)
            for item in (await self.api.request("GET", url))["items"]:
                name = item["metadata"]["name"]
                if sound.cluster and not name.startswith("h0x"):
                    continue
                if item["metadata"].get("finalizers"):
                    free = {"metadata": {"finalizers": None}}
                    await self.send("PATCH", address(plural, NAMESPACE, name), free)
                now = b'{"gracePeriodSeconds":0}'
                await self.api.send("DELETE", address(plural, NAMESPACE, name), now)

    async def gang(self, name: str) -> None:
        """Submit a gang to the healthy queue and wait until it has completed."""
        task = world.task("w", 4, cpu="2", annotations={"pumice.dev/run-seconds": "1.0"})
        task["template"]["spec"]["nodeSelector"] = {"for": HEALTHY}
        job = world.job(name, task, queue=HEALTHY, plugins={"svc": []})
        await self.api.create("jobs", job, HEALTHY)

        seen: dict[str, Any] = {}

        async def ended() -> bool:
            nonlocal seen
            seen = await self.api.get("jobs", HEALTHY, name)
            return seen.get("status", {}).get("state", {}).get("phase") == "Completed"

        def told() -> str:
            return f"{name}: {seen.get('status')}\n{self.run.last_lines()}"

        await until(ended, deadline_s=60, describe=told)


@pytest_asyncio.fixture(loop_scope="session")
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """The real API server with nodes and a queue for the healthy, and `pumice run`."""
    async with (
        real_plane(tmp_path / "plane") as plane,
        connect(plane.kubeconfig) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
        pumice_run(
            *("--kubeconfig", str(plane.kubeconfig), "--log-dir", str(tmp_path / "logs")),
            *run_flags(plane.kubeconfig),
        ) as run,
    ):
        await run.ready()
        for name in (NAMESPACE, HEALTHY):
            await api.create("namespaces", {"metadata": {"name": name}})
        queue = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": HEALTHY},
            "spec": {"weight": 1, "parent": "root"},
        }
        await api.create("queues", queue)
        for number in range(2):
            node = world.node(f"{HEALTHY}-{number}")
            node["metadata"]["labels"]["for"] = HEALTHY
            node["spec"] = {"taints": [{"key": "for", "value": HEALTHY, "effect": "NoSchedule"}]}
            await api.create("nodes", node)
        yield Ground(api, run, http)
        await run.stop()


async def schemas(api: Api) -> OpenApi:
    """Return what the server says of the kinds that are tried."""
    versions = sorted({sound.version for sound in VALID_OBJECTS.values()})
    places = [f"apis/{version}" if "/" in version else f"api/{version}" for version in versions]
    return OpenApi({place: await api.request("GET", f"/openapi/v3/{place}") for place in places})


async def test_five_hundred_hostile_objects_end_no_service_and_stop_no_gang(ground: Ground) -> None:
    assert len(ground.services) >= 4, ground.run.last_lines()
    api = await schemas(ground.api)
    await ground.gang("before")
    objects = await asyncio.to_thread(draw_objects, api, TENANT, COUNT * 4 // 5, 11)
    cluster = [plural for plural in VALID_OBJECTS if plural not in TENANT]
    objects += await asyncio.to_thread(draw_objects, api, cluster, COUNT // 5, 12)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def plant(one: Planted) -> bool:
        async with at_once:
            return await ground.plant(one)

    beside = asyncio.create_task(ground.gang("beside"))
    planted = sum(await asyncio.gather(*(plant(one) for one in objects)))
    assert planted > COUNT // 5, "the server refuses nearly all: nothing is tried"
    await beside
    await ground.gang("among")
    shown = await ground.quarantined()
    for _ in range(2):
        await ground.uproot()
    await ground.gang("after")
    left: list[str] = []

    async def nothing_left() -> bool:
        nonlocal left
        await ground.uproot()
        left = await ground.quarantined()
        return not left

    await until(nothing_left, deadline_s=100, describe=lambda: "\n".join(left))
    assert ground.run.process.returncode is None, ground.run.last_lines()
    assert [line for line in ground.run.lines if "ended" in line] == []
    errors = [line for line in shown if OURS.search(line.partition(": ")[2].partition(": ")[2])]
    assert errors == [], json.dumps(errors, indent=1)
