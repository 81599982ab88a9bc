"""A group that another server serves: both API servers pass its requests on, and say who asks."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from pumice.local.authority import Authority, pair
from tests.contract.apiserver.client import Answer, Side
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
GROUP, VERSION = "things.example.com", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
NAME = f"{VERSION}.{GROUP}"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVICES = "/api/v1/namespaces/kube-system/services"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {
            "name": "things",
            "singularName": "thing",
            "namespaced": True,
            "kind": "Thing",
            "verbs": ["create", "get", "list", "watch"],
            "shortNames": ["th"],
        }
    ],
}


class Behind(NamedTuple):
    """The server behind, and the requests for objects that it has seen."""

    side: Side
    seen: list[web.Request]
    port: int


@asynccontextmanager
async def behind(side: Side, directory: Path) -> AsyncIterator[Behind]:
    """Serve a group over HTTPS and register it; wait until the API server has found it."""
    seen: list[web.Request] = []

    async def things(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        if "watch" in request.query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for number in range(3):
                line = {"type": "ADDED", "object": {"metadata": {"name": f"t{number}"}}}
                await response.write(json.dumps(line).encode() + b"\n")
            await asyncio.Event().wait()  # the watch goes on until the server ends
            return response
        if request.method == "POST":
            return web.json_response(await request.json(), status=201)
        status = {"kind": "Status", "reason": "NotFound", "code": 404, "message": "no such thing"}
        if request.path.endswith("/gone"):
            return web.json_response(status, status=404)
        return web.json_response({"kind": "ThingList", "items": [{"metadata": {"name": "t"}}]})

    async def resources(_: web.Request) -> web.Response:
        return web.json_response(RESOURCES)

    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    app = web.Application()
    app.router.add_get(ROOT, resources)
    app.router.add_route("*", ROOT + "/{rest:.*}", things)
    app.router.add_route("*", "/{rest:.*}", nothing)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    try:
        authority = Authority("authority of the test")
        mine = pair(directory, "server")
        authority.issue(mine, "server", hosts=["thing-server.kube-system.svc"])
        front_proxy = str(side.plane.pki.front_proxy_ca)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=front_proxy)
        tls.load_cert_chain(mine.cert, mine.key)
        tls.verify_mode = ssl.CERT_OPTIONAL
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        await register(side, port, authority.certificate.encode())
        await until(lambda: served(side), deadline_s=30, describe="the APIService is served")
        yield Behind(side, seen, port)
    finally:
        await side.request("DELETE", f"{API_SERVICES}/{NAME}")
        await side.request("DELETE", f"{SERVICES}/thing-server")
        await runner.cleanup()


async def register(side: Side, port: int, authority: bytes) -> None:
    ports = [{"port": port, "protocol": "TCP"}]
    spec = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": ports}
    body = {"metadata": {"name": "thing-server"}, "spec": spec}
    assert (await side.request("POST", SERVICES, body)).status == 201
    place = {"namespace": "kube-system", "name": "thing-server", "port": port}
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "service": place,
        "caBundle": base64.b64encode(authority).decode(),
    }
    made = await side.request("POST", API_SERVICES, {"metadata": {"name": NAME}, "spec": spec})
    assert made.status == 201, made


async def condition(side: Side) -> dict[str, Any]:
    found = await side.request("GET", f"{API_SERVICES}/{NAME}")
    conditions = (found.body.get("status") or {}).get("conditions") or [{}]
    known: dict[str, Any] = conditions[0]
    return known


async def available(side: Side) -> bool:
    return (await condition(side)).get("status") == "True"


async def served(side: Side) -> bool:
    """Tell whether requests are passed on: kube-apiserver says Available a moment before."""
    return await available(side) and (await side.request("GET", ROOT)).status == HTTPStatus.OK


async def test_requests_are_passed_on_with_the_user_in_headers(side: Side, tmp_path: Path) -> None:
    async with behind(side, tmp_path) as server:
        url = f"{ROOT}/namespaces/default/things"
        forged = {"X-Remote-User": "another", "X-Remote-Group": "everything"}
        found = await side.request("GET", f"{url}?limit=5", headers=forged)
        assert found.body["items"] == [{"metadata": {"name": "t"}}]
        made = await side.request("POST", url, {"metadata": {"name": "new"}})
        assert (made.status, made.body) == (201, {"metadata": {"name": "new"}})
        missing = await side.request("GET", f"{url}/gone")
        assert (missing.status, missing.body["message"]) == (404, "no such thing")
        first = next(request for request in server.seen if request.method == "GET")
        assert first.query["limit"] == "5"
        assert first.headers.getall("X-Remote-User") == ["pumice-admin"]
        assert "system:masters" in first.headers.getall("X-Remote-Group")
        assert "everything" not in first.headers.getall("X-Remote-Group")
        assert first.transport is not None
        shown = first.transport.get_extra_info("peercert")["subject"]
        assert (("commonName", "front-proxy-client"),) in shown


async def test_a_watch_is_passed_on_as_it_comes(side: Side, tmp_path: Path) -> None:
    async with behind(side, tmp_path):
        events = await side.events(f"{ROOT}/namespaces/default/things?watch=true", 3)
    assert [event["object"]["metadata"]["name"] for event in events.body] == ["t0", "t1", "t2"]


async def test_discovery_names_the_group_and_its_resources(side: Side, tmp_path: Path) -> None:
    async with behind(side, tmp_path):
        group = await side.request("GET", f"/apis/{GROUP}")
        assert group.body["preferredVersion"]["groupVersion"] == f"{GROUP}/{VERSION}"
        listed = await side.request("GET", "/apis")
        assert GROUP in {entry["name"] for entry in listed.body["groups"]}
        resources = await side.request("GET", ROOT)
        assert resources.body == RESOURCES

        async def discovered() -> list[dict[str, Any]]:
            found = await side.request("GET", "/apis", headers={"Accept": AGGREGATED})
            items = [i for i in found.body["items"] if i["metadata"]["name"] == GROUP]
            return [r for item in items for r in item["versions"][0]["resources"]]

        async def is_aggregated() -> bool:
            return bool(await discovered())

        await until(is_aggregated, deadline_s=30, describe="aggregated discovery")
        (thing,) = await discovered()
        assert thing["resource"] == "things"
        assert thing["scope"] == "Namespaced"
        assert thing["shortNames"] == ["th"]
        assert thing["responseKind"]["kind"] == "Thing"


async def test_a_server_that_is_not_there_is_unavailable_and_a_group_that_goes_is_unknown(
    side: Side, tmp_path: Path
) -> None:
    async with behind(side, tmp_path):
        nowhere = {"spec": {"service": {"namespace": "kube-system", "name": "not-there"}}}
        patched = await side.request("PATCH", f"{API_SERVICES}/{NAME}", nowhere)
        assert patched.status == 200, patched

        async def answer() -> Answer:
            return await side.request("GET", f"{ROOT}/things")

        async def is_unavailable() -> bool:
            return (await answer()).status == 503

        await until(is_unavailable, deadline_s=30, describe="the answer below the group")

        async def is_said() -> bool:
            return not await available(side)

        await until(is_said, deadline_s=30, describe="the condition of the APIService")
        assert (await side.request("DELETE", f"{API_SERVICES}/{NAME}")).status == 200

        async def is_unknown() -> bool:
            return (await answer()).status == 404

        await until(is_unknown, deadline_s=30, describe="the answer below the group")
        listed = await side.request("GET", "/apis")
        assert GROUP not in {entry["name"] for entry in listed.body["groups"]}
