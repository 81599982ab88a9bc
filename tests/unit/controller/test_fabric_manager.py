"""Asking UFM for its ports: what goes over the wire, and answers that are none (H03)."""

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import encode_basic_auth

from services.controller.hypernode.config import UfmSource
from services.controller.hypernode.discovery import FabricPort
from services.controller.hypernode.reconciler import FabricManager
from shared.kube.client import Kube
from shared.runtime.errors import Rejected, Retryable
from tests.support.certificates import Authority
from tests.support.scripted_api import Answer, ScriptedApi, chunks, client_of, hang, json, status

# As UFM's REST API shows a port; most of it is not read.
COMPUTER = {
    "description": "Computer IB Port",
    "number": 1,
    "external_number": 1,
    "physical_state": "Link Up",
    "path": "default / Computer: gpu-1 / HCA-1/1",
    "tier": 1,
    "lid": 12,
    "mirror": "disable",
    "logical_state": "Active",
    "capabilities": ["reset", "enable", "disable"],
    "guid": "0x0002c9030005f34a",
    "severity": "Info",
    "system_name": "gpu-1",
    "node_description": "gpu-1 mlx5_0",
    "peer_node_name": "leaf-a",
    "peer_port_dname": "12",
    "active_speed": "HDR",
}
SWITCH = {**COMPUTER, "description": "Switch IB Port", "system_name": "leaf-a"}
FOUND = [
    FabricPort(description="Computer IB Port", system_name="gpu-1", peer_node_name="leaf-a"),
]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(**data: str) -> Answer:
    return json({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data})


LOGIN = secret(username=_base64("reader"), password=_base64("p:ä"))


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    """The API server, which has the Secret, and the fabric manager in one."""
    async with ScriptedApi().serving() as server:
        yield server


@pytest.fixture
async def kube(api: ScriptedApi, tmp_path: Path) -> AsyncIterator[Kube]:
    async with client_of(api, tmp_path) as kube:
        yield kube


def manager(kube: Kube, endpoint: str, **more: Any) -> FabricManager:
    source = UfmSource(endpoint=endpoint, secret="ns/s", interval_s=60.0, **more)
    return FabricManager(kube, source, time_s=5.0)


async def test_ports_of_computers_are_read_with_the_credentials_of_the_secret(
    api: ScriptedApi, kube: Kube
) -> None:
    unplugged = {**COMPUTER, "peer_node_name": ""}
    api.then(LOGIN, json([SWITCH, COMPUTER, unplugged, {}]))
    assert await manager(kube, f"{api.url}/").ports() == FOUND
    asked_secret, asked = api.seen
    assert asked_secret.path == "/api/v1/namespaces/ns/secrets/s"
    assert (asked.method, asked.path) == ("GET", "/ufmRest/resources/ports")
    assert asked.headers["Authorization"] == encode_basic_auth("reader", "p:ä")


async def test_credentials_that_changed_count_at_once(api: ScriptedApi, kube: Kube) -> None:
    other = secret(username=_base64("reader"), password=_base64("new"))
    api.then(LOGIN, json([COMPUTER]), other, json([COMPUTER]))
    for _ in range(2):
        assert await manager(kube, api.url).ports() == FOUND
    assert api.seen[-1].headers["Authorization"] == encode_basic_auth("reader", "new")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(status(401, "no"), "answered 401", id="unauthorized"),
        pytest.param(status(403, "no"), "answered 403", id="forbidden"),
        pytest.param(status(404, "no"), "answered 404", id="not-found"),
        pytest.param(status(500, "no"), "answered 500", id="broken"),
        pytest.param(json({}, 302, Location="/login"), "answered 302", id="redirect"),
        pytest.param(chunks(b"<html>log in</html>"), "answers no list of ports", id="a-page"),
        pytest.param(chunks(b""), "answers no list of ports", id="empty"),
        pytest.param(chunks(b'[{"system_name": "gpu-1"'), "answers no list of ports", id="cut"),
        pytest.param(json({"ports": []}), "answers no list of ports", id="no-list"),
        pytest.param(
            json([{**COMPUTER, "system_name": 7}]), "answers no list of ports", id="wrong-type"
        ),
        pytest.param(json([]), "names no computer", id="no-ports"),
        pytest.param(json([SWITCH]), "names no computer", id="no-computers"),
        pytest.param(chunks(b"[", ending="reset"), "ClientPayloadError", id="reset"),
        pytest.param(chunks(b"[", ending="hang"), "TimeoutError", id="stalls"),
        pytest.param(hang(), "TimeoutError", id="hangs"),
    ],
)
async def test_an_answer_that_is_none_is_told_and_asked_for_again(
    api: ScriptedApi, kube: Kube, answer: Answer, why: str
) -> None:
    api.then(LOGIN, answer)
    source = UfmSource(endpoint=api.url, secret="ns/s", interval_s=60.0)
    with pytest.raises(Retryable) as caught:
        await FabricManager(kube, source, time_s=0.3).ports()
    assert why in str(caught.value)
    assert "p:ä" not in str(caught.value)
    assert len(api.seen) == 2, "it is not asked a second time at once, and no redirect is followed"


async def test_a_manager_that_is_away_is_asked_again_later(kube: Kube, api: ScriptedApi) -> None:
    api.then(LOGIN)
    with pytest.raises(Retryable, match="ClientConnectorError"):
        await manager(kube, "http://127.0.0.1:1").ports()


async def test_no_secret_is_waited_for(api: ScriptedApi, kube: Kube) -> None:
    api.then(status(404, "not found", "NotFound"))
    with pytest.raises(Retryable, match="there is no Secret ns/s"):
        await manager(kube, api.url).ports()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"username": _base64("reader")},
        {"username": _base64("reader"), "password": "%"},
        {"username": _base64("reader"), "password": base64.b64encode(b"\xff").decode()},
    ],
    ids=["empty", "half", "no-base64", "no-text"],
)
async def test_a_secret_that_is_no_login_is_refused(
    api: ScriptedApi, kube: Kube, data: dict[str, str]
) -> None:
    api.then(secret(**data))
    with pytest.raises(Rejected, match="Secret ns/s needs username and password"):
        await manager(kube, api.url).ports()
    assert len(api.seen) == 1, "nobody is asked without a login"


@pytest.mark.parametrize("skip", [False, True], ids=["verified", "skipped"])
async def test_an_unknown_certificate_is_taken_only_if_that_is_wanted(
    api: ScriptedApi, kube: Kube, tmp_path: Path, *, skip: bool
) -> None:
    tls = Authority(tmp_path / "ca").server_context(ssl.CERT_NONE)
    api.then(LOGIN)
    async with ScriptedApi().serving(tls) as fabric:
        fabric.then(json([COMPUTER]))
        asking = manager(kube, fabric.url, insecure_skip_verify=skip)
        if skip:
            assert await asking.ports() == FOUND
        else:
            with pytest.raises(Retryable, match="CERTIFICATE_VERIFY_FAILED"):
                await asking.ports()
            assert not fabric.seen
