"""The stream of changes through a real API server: at once, for longer than a minute, by rights."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from typing_extensions import override

from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from pumice.web.gate import RequestGate
from pumice.web.server import KubeconfigFacts, PageServer
from services.visibility.settings import VisibilitySettings
from shared.api.visibility import Change, ObjectRef, TimelineEntry
from shared.kube.config import connect as connect_kube
from shared.kube.errors import Denied
from shared.kube.sources import KubeconfigSource
from shared.kube.transport import open_transport
from shared.kube.wire import Request
from shared.runtime.clock import SystemClock
from tests.integration.deploy.tenants import tenant
from tests.support.answers import FixedAnswers, pending
from tests.support.api import Api, connect
from tests.support.visibility import serving_api
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = "/apis/visibility.pumice.dev/v1alpha1"
WATCH = (("watch", "1"),)


class Telling(FixedAnswers):
    """Answers whose changes a test tells."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Queue[Change] = asyncio.Queue(10)

    @override
    async def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        while True:
            yield await self.told.get()


@pytest_asyncio.fixture(loop_scope="session")
async def telling(control_plane: ControlPlane) -> AsyncIterator[Telling]:
    answers = Telling()
    settings = VisibilitySettings(
        port=free_port(),
        bind_address="127.0.0.1",
        external_name="127.0.0.1",
        service_namespace="kube-system",
    )
    kube = await connect_kube(str(control_plane.kubeconfig), user_agent="pumice-visibility")
    async with serving_api(settings, kube, answers), connect(control_plane.kubeconfig) as api:

        async def is_served() -> bool:
            found = await api.request("GET", "/apis")
            return "visibility.pumice.dev" in {group["name"] for group in found["groups"]}

        await until(is_served, deadline_s=30, describe="discovery")
        yield answers


async def way(kubeconfig):
    """Return the way that `pumice web` takes."""
    clock = SystemClock()
    return await open_transport(
        KubeconfigSource(str(kubeconfig), context=None, clock=clock),
        user_agent="test",
        max_connections=4,
        request_timeout_s=30.0,
        clock=clock,
    )


async def event(stream) -> bytes:
    """Return the next event of a stream."""
    text = b""
    while not text.endswith(b"\n\n"):
        text += await stream.read(silence_s=10.0)
    return text


async def test_an_event_comes_at_once_while_the_stream_goes_on(
    telling: Telling, control_plane: ControlPlane
) -> None:
    to_api_server = await way(control_plane.kubeconfig)
    stream = await to_api_server.open(Request(method="GET", path=f"{ROOT}/changes", query=WATCH))
    try:
        assert await event(stream) == b"retry: 2000\n: follows\n\n"
        about = ObjectRef(kind="Job", namespace="a", name="b")
        for what in ("Admitted", "Bound"):
            entry = TimelineEntry(at="2026-01-01T00:00:00Z", what=what, about=about)
            await telling.told.put(Change(entry=entry))
            name, data, _, _ = (await event(stream)).decode().split("\n")
            assert name == "event: happened"
            assert json.loads(data.removeprefix("data: "))["entry"]["what"] == what
    finally:
        stream.close()
        await to_api_server.close()


async def test_a_tenant_follows_his_namespace_and_no_other(
    telling: Telling, api: Api, control_plane: ControlPlane, tmp_path
) -> None:
    async with tenant(control_plane, api, "follows", tmp_path):
        his = await way(tmp_path / "follows.kubeconfig")
        try:
            own = Request(method="GET", path=f"{ROOT}/namespaces/follows/changes", query=WATCH)
            stream = await his.open(own)
            assert await event(stream) == b"retry: 2000\n: follows\n\n"
            stream.close()
            for path in (f"{ROOT}/changes", f"{ROOT}/namespaces/default/changes"):
                with pytest.raises(Denied, match="cannot watch resource"):
                    await his.open(Request(method="GET", path=path, query=WATCH))
        finally:
            await his.close()


async def test_the_page_of_a_tenant_has_his_jobs_alone(
    telling: Telling, api: Api, control_plane: ControlPlane, tmp_path
) -> None:
    telling.jobs = [pending("pages", "a"), pending("theirs", "b")]
    port = free_port()
    async with tenant(control_plane, api, "pages", tmp_path):
        his = await way(tmp_path / "pages.kubeconfig")
        context = KubeconfigFacts(server=his.host, namespace="pages")
        page = PageServer(his, gate=RequestGate(port=port, key="k"), context=context)
        try:
            async with (
                page.serving(port),
                aiohttp.ClientSession(
                    f"http://127.0.0.1:{port}", cookies={f"pumice-web-{port}": "k"}
                ) as browser,
            ):
                async with browser.get(f"{ROOT}/namespaces/pages/pendingjobs") as answer:
                    found = await answer.json()
                assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
                for path in ("pendingjobs", "namespaces/theirs/pendingjobs", "nodeuses"):
                    async with browser.get(f"{ROOT}/{path}") as answer:
                        assert answer.status == 403
                        assert "forbidden" in (await answer.json())["message"]
        finally:
            await his.close()
