"""Two installations and one cluster, as processes: one acts, the other waits and says for whom."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from shared.api.time import format_micro
from shared.runtime.clock import SystemClock
from tests.integration.local.test_command_line import pumice
from tests.support.api import Api, ApiError, connect
from tests.support.pumice_run import Run, pumice_run
from tests.support.stack import real_plane
from tests.support.wait import until
from tests.support.world import add_nodes, job, task

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

SHORT = {"pumice.dev/run-seconds": "0.2"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
VOLCANO = "volcano-scheduler-6d9f7c_6a9b1d7e-0f43-4b3e-9a0e-6d8a3c1e2f00"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    async with real_plane(tmp_path_factory.mktemp("in-charge")) as running:
        async with connect(running.kubeconfig) as api:
            await add_nodes(api, 2)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def plane(two_nodes: ControlPlane) -> ControlPlane:
    """A control plane that nothing runs on, and whose Leases nobody has held yet."""
    async with connect(two_nodes.kubeconfig) as api:
        await api.clear("jobs", "podgroups", "pods")
        await api.clear("leases", namespace="volcano-system")
    return two_nodes


class Started:
    """One `pumice run`, its folder, and what its services log."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run = run
        self.directory = directory

    def logged(self, service: str, event: str) -> list[dict]:
        """Return the lines of a service's log about one event."""
        lines = (self.directory / "logs" / f"{service}.log").read_text().splitlines()
        entries = (json.loads(line) for line in lines if line.startswith("{"))
        return [entry for entry in entries if entry["event"] == event]

    async def says(self, text: str) -> None:
        await self.run.says(text, deadline_s=60)


@asynccontextmanager
async def started(plane: ControlPlane, directory: Path) -> AsyncIterator[Started]:
    words = ("--kubeconfig", str(plane.kubeconfig), "--data-dir", str(directory / "data"))
    async with pumice_run(*words, "--log-dir", str(directory / "logs")) as run:
        yield Started(run, directory)


async def completes(api: Api, name: str, *, deadline_s: float = 60) -> None:
    async def completed() -> bool:
        found = await api.get("jobs", "default", name)
        return found.get("status", {}).get("state", {}).get("phase") == "Completed"

    await until(completed, deadline_s=deadline_s, describe=f"job {name} is completed")


async def submit(api: Api, name: str) -> None:
    await api.create("jobs", job(name, task("work", 2, annotations=SHORT)), "default")


async def lease(api: Api, name: str = "volcano") -> dict:
    return await api.request("GET", f"{LEASES}/{name}")


async def test_the_second_waits_for_the_first_and_follows_its_death(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with connect(plane.kubeconfig) as api, AsyncExitStack() as both:
        first = await both.enter_async_context(started(plane, tmp_path / "first"))
        await first.run.ready()
        await submit(api, "of-the-first")
        await completes(api, "of-the-first")
        holder = (await lease(api))["spec"]["holderIdentity"]
        second = await both.enter_async_context(started(plane, tmp_path / "second"))
        for name in ("volcano", "vc-controller-manager"):
            await second.says(f"lease volcano-system/{name} is held by {holder} (cache-")
        words = ("status", "--data-dir", str(tmp_path / "second" / "data"))
        code, out, _ = await pumice(*words)
        assert code == 1
        assert f"not ready: leadership (lease volcano-system/volcano is held by {holder}" in out
        await submit(api, "beside-the-second")
        await completes(api, "beside-the-second")
        told = second.logged("cache", "lease_held_by_another")
        assert sorted(line["lease"] for line in told) == [
            "volcano-system/vc-controller-manager",
            "volcano-system/volcano",
        ], "one line for each"
        assert not second.logged("binder", "intent_ended")
        assert not second.logged("binder", "status_written")
        first.run.process.kill()
        await submit(api, "after-its-death")
        await completes(api, "after-its-death")
        await second.run.ready()
        taken = await lease(api)
        assert taken["spec"]["holderIdentity"] != holder
        assert taken["spec"]["leaseTransitions"] == 1
        # A job of a fraction of a second may complete before the outcome of its bind is stored.
        await until(lambda: second.logged("binder", "intent_ended"), describe="its binder's bind")

        async def is_well() -> bool:
            nonlocal out
            code, out, _ = await pumice(*words)
            return code == 0

        # It registers webhooks and the aggregated API when it is in charge.
        await until(is_well, deadline_s=60, describe=lambda: out)
        await second.run.stop()
        assert "holderIdentity" not in (await lease(api))["spec"], "the last one gives it back"


async def registered(api: Api) -> set[str]:
    """Return where webhooks and the aggregated API lead to."""
    found: set[str] = set()
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        listed = await api.request("GET", f"/apis/admissionregistration.k8s.io/v1/{plural}")
        for item in listed["items"]:
            urls = (webhook["clientConfig"]["url"] for webhook in item["webhooks"])
            found |= {url.rpartition(":")[2].partition("/")[0] for url in urls}
    listed = await api.request("GET", "/apis/apiregistration.k8s.io/v1/apiservices")
    services = (item["spec"].get("service") for item in listed["items"])
    return found | {str(service["port"]) for service in services if service}


async def test_what_is_registered_is_that_of_the_holder_whoever_else_comes_and_goes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with connect(plane.kubeconfig) as api, AsyncExitStack() as all_three:
        first = await all_three.enter_async_context(started(plane, tmp_path / "first"))
        await first.run.ready()
        of_the_first = await registered(api)
        assert len(of_the_first) == 2, "one port of admission, one of visibility"

        async def waits(run: Started) -> None:
            for service in ("admission", "visibility"):
                await until(
                    lambda s=service: bool(run.logged(s, "registration_waits_for_the_lease")),
                    deadline_s=60,
                    describe=f"{service} waits for the Lease",
                )

        async with started(plane, tmp_path / "second") as second:
            await waits(second)
            assert await registered(api) == of_the_first
            await second.run.stop()
        assert await registered(api) == of_the_first
        third = await all_three.enter_async_context(started(plane, tmp_path / "third"))
        await waits(third)
        first.run.process.kill()

        async def is_followed() -> bool:
            now = await registered(api)
            return len(now) == 2 and not now & of_the_first

        await until(is_followed, deadline_s=60, describe="the third registers")
        await third.run.ready()
        await third.run.stop()
        assert await registered(api) == set()


class Volcano:
    """The Lease of Volcano's scheduler as client-go keeps it; its clock is years off."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._begun = SystemClock().now() + 1e8
        self._renewals = 0

    def _spec(self, **other: object) -> dict:
        self._renewals += 1
        return {
            "holderIdentity": VOLCANO,
            "leaseDurationSeconds": 15,
            "acquireTime": format_micro(self._begun),
            "renewTime": format_micro(self._begun + 2 * self._renewals),
            "leaseTransitions": 0,
            **other,
        }

    async def take(self) -> None:
        with suppress(ApiError):  # it is there of a test before
            await self._api.create("namespaces", {"metadata": {"name": "volcano-system"}})
        body = {"metadata": {"name": "volcano"}, "spec": self._spec()}
        await self._api.request("POST", LEASES, body)

    async def renew(self, **other: object) -> None:
        found = await lease(self._api)
        found["spec"] = self._spec(**other)
        await self._api.request("PUT", f"{LEASES}/volcano", found)

    async def keep(self) -> None:
        while True:
            await self.renew()
            await SystemClock().sleep(2.0)


async def test_beside_volcano_nothing_is_scheduled_until_it_gives_its_lease_back(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with connect(plane.kubeconfig) as api:
        volcano = Volcano(api)
        await volcano.take()
        keeping = asyncio.create_task(volcano.keep())
        async with started(plane, tmp_path / "ours") as ours:
            await submit(api, "waits")
            await ours.says(f"lease volcano-system/volcano is held by {VOLCANO}")

            async def controlled() -> bool:
                return bool(await api.items("podgroups", "default"))

            await until(controlled, deadline_s=30, describe="the other Lease is free")
            assert not ours.logged("scheduler", "cluster_lease_acquired")
            assert not ours.logged("binder", "intent_ended")
            assert (await lease(api))["spec"]["holderIdentity"] == VOLCANO
            keeping.cancel()
            await asyncio.wait([keeping])
            await volcano.renew(holderIdentity=None, leaseDurationSeconds=1)
            await completes(api, "waits")
            await ours.run.ready()
            spec = (await lease(api))["spec"]
            assert spec["holderIdentity"].startswith("pumice-local-")
            assert spec["leaseTransitions"] == 1
            await ours.run.stop()
