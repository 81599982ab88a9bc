"""What clients that ask nothing of Pumice see of the aggregated API: nothing, whatever it does.

An API server merges documents of extension servers into its own, and waits for them in places.
So discovery and OpenAPI are read as clients read them, before visibility is registered, while it
is registered and not reached, while it serves, after it has stopped, and after it has gone.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pumice.local.authority import Authority, pair
from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from services.visibility.app import build
from services.visibility.settings import VisibilitySettings
from shared.kube.config import connect as connect_kube
from tests.integration.visibility.conftest import API_SERVICE, available, manifests
from tests.support import roles
from tests.support.answers import FixedAnswers
from tests.support.api import ApiError, connect, credentials
from tests.support.env import context_of_a_test
from tests.support.visibility import serving_api
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

GROUP = "visibility.pumice.dev"
OURS = "dev.pumice.visibility."
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GATES = ("api", "authentication", "certificate")
"""What the readiness probe of a replica asks for (`k8s/base`)."""
Json = dict[str, Any]


class Reader:
    """A client that has never heard of Pumice; each request has to be answered in time."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, url: str, accept: str = "application/json") -> bytes:
        async with asyncio.timeout(30), self._session.get(url, headers={"Accept": accept}) as got:
            body = await got.read()
            assert got.status == 200, f"{url} as {accept}: {got.status} {body[:300]!r}"
            return body

    async def json(self, url: str, accept: str = "application/json") -> Json:
        async with asyncio.timeout(30), self._session.get(url, headers={"Accept": accept}) as got:
            assert got.status == 200, f"{url} as {accept}: {got.status}"
            found: Json = await got.json(content_type=None)
            return found

    async def everything(self) -> Json:
        """Return what the API server says about all groups but ours."""
        v2 = await self.json("/openapi/v2")
        await self.get("/openapi/v2", PROTOBUF)
        v3 = (await self.json("/openapi/v3"))["paths"]
        groups = (await self.json("/apis"))["groups"]
        aggregated = (await self.json("/apis", AGGREGATED))["items"]
        return {
            "v2 definitions": without_ours(v2["definitions"], OURS),
            "v2 paths": without_ours(v2["paths"], f"/apis/{GROUP}"),
            "v3": without_ours(v3, f"apis/{GROUP}"),
            "groups": [group for group in groups if group["name"] != GROUP],
            "aggregated": [item for item in aggregated if item["metadata"]["name"] != GROUP],
        }


def without_ours(found: Json, ours: str) -> Json:
    return {key: value for key, value in found.items() if not key.startswith(ours)}


@pytest_asyncio.fixture(loop_scope="session")
async def reader(control_plane: ControlPlane) -> AsyncIterator[Reader]:
    server, headers, tls = credentials(control_plane.kubeconfig)
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(server, headers=headers, connector=connector) as session:
        yield Reader(session)


async def is_gone(api: Any, name: str) -> bool:
    try:
        await api.request("GET", f"/api/v1/namespaces/{name}")
    except ApiError as error:
        return error.status == 404
    return False


async def test_discovery_and_openapi_of_others_are_the_same_in_each_state_of_visibility(
    control_plane: ControlPlane, reader: Reader
) -> None:
    before = await reader.everything()
    assert len(before["v2 definitions"]) > 100
    port = free_port()
    settings = VisibilitySettings(port=port, bind_address="127.0.0.1", service_port=port)
    account = str(roles.account(control_plane.kubeconfig, "visibility"))
    async with connect(control_plane.kubeconfig) as api:

        async def merged() -> bool:
            found = await reader.json("/openapi/v2")
            return f"{OURS}v1alpha1.WhatIf" in found["definitions"]

        async with manifests(api, port):
            await available(api, "False")
            assert await reader.everything() == before, "registered, and not reached yet"
            kube = await connect_kube(account, user_agent="pumice-visibility")
            async with serving_api(settings, kube, FixedAnswers()):
                await available(api, "True")
                await until(merged, deadline_s=60, describe="our document is merged")
                assert await reader.everything() == before, "served"
            await available(api, "False")
            assert await reader.everything() == before, "stopped"

        async def is_forgotten() -> bool:
            return GROUP not in {group["name"] for group in (await reader.json("/apis"))["groups"]}

        await until(is_forgotten, deadline_s=60, describe="the group is gone")
        assert await reader.everything() == before, "gone"


async def test_a_namespace_waits_for_visibility_that_is_down_and_goes_once_it_is_removed(
    control_plane: ControlPlane,
) -> None:
    """Of all extension servers: the API server cannot know what of theirs is in a namespace."""
    async with connect(control_plane.kubeconfig) as api:

        async def is_held_up() -> bool:
            found = await api.request("GET", "/api/v1/namespaces/goes-later")
            conditions = found["status"].get("conditions", [])
            return any(
                c["type"] == "NamespaceDeletionDiscoveryFailure" and c["status"] == "True"
                for c in conditions
            )

        async with manifests(api, free_port()):
            await available(api, "False")
            await api.create("namespaces", {"metadata": {"name": "goes-later"}})
            await api.request("DELETE", "/api/v1/namespaces/goes-later")
            await until(is_held_up, deadline_s=60, describe="the deletion waits for discovery")
        await until(
            lambda: is_gone(api, "goes-later"),
            deadline_s=120,
            describe="it goes when the APIService has gone",
        )


async def test_a_namespace_goes_while_nats_is_unavailable(
    control_plane: ControlPlane,
) -> None:
    """The API is found without the bus; only its objects are refused meanwhile."""
    port = free_port()
    settings = VisibilitySettings(
        port=port,
        bind_address="127.0.0.1",
        service_port=port,
        nats=f"nats://127.0.0.1:{free_port()}",
        kubeconfig=str(roles.account(control_plane.kubeconfig, "visibility")),
    )
    context = context_of_a_test()
    parts = await build(settings, context)
    async with connect(control_plane.kubeconfig) as api, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run(), name=part.name) for part in parts]
        try:
            async with manifests(api, port):
                await available(api, "True")
                assert context.readiness.shut_among(GATES) == []
                assert "nats" in {gate["gate"] for gate in context.readiness.shut()}
                await api.create("namespaces", {"metadata": {"name": "goes-at-once"}})
                await api.request("DELETE", "/api/v1/namespaces/goes-at-once")
                await until(lambda: is_gone(api, "goes-at-once"), deadline_s=60, describe="it goes")
                with pytest.raises(ApiError) as refused:
                    await api.request("GET", f"/apis/{GROUP}/v1alpha1/pendingjobs")
                assert refused.value.status == 503
        finally:
            for task in running:
                task.cancel()


async def slow(_: aiohttp.web.Request) -> aiohttp.web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def rubbish(_: aiohttp.web.Request) -> aiohttp.web.Response:
    return aiohttp.web.Response(text="<html>not an API</html>", content_type="text/html")


async def failing(_: aiohttp.web.Request) -> aiohttp.web.Response:
    return aiohttp.web.Response(status=500, text="an error of ours")


@pytest.mark.parametrize("answer", [slow, rubbish, failing], ids=["slow", "wrong", "failing"])
async def test_a_server_of_ours_that_is_slow_or_wrong_changes_nothing_of_the_documents(
    control_plane: ControlPlane,
    reader: Reader,
    tmp_path: Path,
    answer: Callable[[aiohttp.web.Request], Any],
) -> None:
    before = await reader.everything()
    authority = Authority("authority of the test")
    mine = pair(tmp_path, "server")
    authority.issue(mine, "server", hosts=["pumice-visibility.pumice-system.svc"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(mine.cert, mine.key)
    app = aiohttp.web.Application()
    asked: list[str] = []

    async def handle(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        asked.append(request.path)
        response: aiohttp.web.StreamResponse = await answer(request)
        return response

    app.router.add_route("*", "/{path:.*}", handle)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        async with connect(control_plane.kubeconfig) as api, manifests(api, port):
            patch = {"spec": {"insecureSkipTLSVerify": True}}
            merge = "application/merge-patch+json"
            await api.request("PATCH", API_SERVICE, patch, content_type=merge)

            def is_asked() -> bool:
                return any(path.startswith(("/openapi", "/apis")) for path in asked)

            await until(is_asked, deadline_s=60, describe="the API server has asked us")
            assert await reader.everything() == before
    finally:
        await runner.cleanup()
