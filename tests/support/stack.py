"""Fixtures with real servers: `nats_server` for contract tests, `control_plane` for integration.

A `nats_server` is one server per test (it starts in a tenth of a second and may be killed by the
test); `session_nats` and `control_plane` are one per session and xdist worker, not to be disturbed:
take `namespace` for objects, and an own cluster name as the prefix of subjects. A test that breaks
the API server starts its own with `ControlPlane(Options(...), parts.require())`.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from pumice.local import admin, parts
from pumice.local.control_plane import ControlPlane, Options
from pumice.local.nats import NatsServer

CRDS = Path(__file__).parents[2] / "k8s" / "crds"


@pytest_asyncio.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server of this test alone: `url`, `environ(user)`, `restart(kill=True)`."""
    async with AsyncExitStack() as stack:
        server = NatsServer(binary=parts.nats_server_binary(), directory=tmp_path / "nats")
        stack.push_async_callback(server.stop)
        await server.start()
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    """A nats-server for the whole session: take your own cluster name as subject prefix."""
    directory = tmp_path_factory.mktemp("nats")
    async with AsyncExitStack() as stack:
        server = NatsServer(binary=parts.nats_server_binary(), directory=directory)
        stack.push_async_callback(server.stop)
        await server.start()
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """etcd, kube-apiserver, its controllers, KWOK and NATS, with our CRDs applied; no nodes yet."""
    options = Options(directory=tmp_path_factory.mktemp("stack"))
    async with ControlPlane(options, parts.require()) as plane:
        await plane.apply_crds(CRDS)
        yield plane


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """Kubeconfig of the administrator."""
    return control_plane.kubeconfig


@pytest_asyncio.fixture
async def namespace(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A fresh namespace in which pods can be created; deleted at the end without waiting."""
    name = f"test-{secrets.token_hex(4)}"
    async with admin.connect(control_plane.url, control_plane.pki) as client:
        body = msgspec.json.encode({"metadata": {"name": name}})
        answer = await client.request("POST", "/api/v1/namespaces", body=body)
        assert answer.ok, answer
        process = control_plane.processes["kube-controller-manager"]
        await process.ready(lambda: client.accounts_ready(name), deadline_s=20.0)
    yield name
    async with admin.connect(control_plane.url, control_plane.pki) as client:
        await client.request("DELETE", f"/api/v1/namespaces/{name}")
