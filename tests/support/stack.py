"""Fixtures with real servers: `nats_server` for contract tests, `control_plane` for integration.

A `nats_server` is one server per test (it starts in a tenth of a second and may be killed by the
test); `session_nats` and `control_plane` are one per session and xdist worker, not to be disturbed:
take `namespace` for objects, and an own cluster name as the prefix of subjects. A folder whose
tests break the API server, or run a scheduler, has a fixture `plane` of its own, made by
`real_plane`; `api` is a client of whatever `plane` is.
"""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
import pytest_asyncio

from pumice.local import admin, parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.embedded import EmbeddedPlane
from pumice.local.nats import NatsServer
from shared.kube.client import Kube
from shared.kube.config import connect as connect_kube
from tests.support import roles
from tests.support.api import Api, connect
from tests.support.goprograms import helm, kubectl
from tests.support.nats_servers import NatsCluster
from tests.support.roles import Accounts

CRDS = Path(__file__).parents[2] / "k8s" / "crds"
ALREADY_EXISTS = 409


@asynccontextmanager
async def real_plane(
    directory: Path,
    *,
    audit_log: bool = False,
    apiserver_flags: tuple[str, ...] = (),
    controllers_flags: tuple[str, ...] = (),
    nats: NatsCluster | None = None,
    programs: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[ControlPlane]:
    """etcd, kube-apiserver, its controllers, KWOK and NATS, with our CRDs and roles; no nodes yet.

    `audit_log` is for a test that reads the log itself. `nats` takes the place of the one server,
    and `programs` that of the parts of these names.
    """
    flags = apiserver_flags if audit_log else (*apiserver_flags, *roles.audit_flags(directory))
    options = ControlPlaneOptions(
        directory=directory,
        audit_log=audit_log,
        apiserver_flags=flags,
        controllers_flags=controllers_flags,
    )
    plane = ControlPlane(options, {**parts.require(), **programs})
    roles.make_accounts(plane)
    if nats is not None:
        plane.nats = nats  # type: ignore[assignment]  # it has all that a plane asks for
    async with plane:
        await plane.apply_crds(CRDS)
        await roles.apply_roles(plane)
        yield plane


@asynccontextmanager
async def embedded_plane(directory: Path, *, crds: bool = True) -> AsyncIterator[ControlPlane]:
    """The embedded API server and NATS, with our CRDs; no nodes yet."""
    options = ControlPlaneOptions(directory=directory, api="embedded")
    async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
        if crds:
            await plane.apply_crds(CRDS)
        yield plane


async def make_namespace(
    client: admin.Admin, plane: ControlPlane, name: str, *, labels: Mapping[str, str] | None = None
) -> None:
    """Make a namespace and wait until pods can be created in it.

    The name is drawn, so that one that is there is ours, of a write whose answer was lost.
    """
    body = msgspec.json.encode({"metadata": {"name": name, "labels": labels or {}}})
    answer = await client.request("POST", "/api/v1/namespaces", body=body)
    assert answer.ok or answer.status == ALREADY_EXISTS, answer
    process = plane.processes[plane.api_program]
    await process.ready(lambda: client.accounts_ready(name), deadline_s=30.0)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the front of PATH, in which kubectl is the pinned one (built the first time).

    A test that takes it is marked `kubectl`: those need Go, or a kubectl on PATH.
    """
    folder = tmp_path_factory.mktemp("bin")
    (folder / "kubectl").symlink_to(kubectl())
    return folder


@pytest.fixture(scope="session")
def charting(programs: Path) -> Path:
    """The same folder with helm in it, which is built the first time, too.

    A test that takes it is marked `helm`.
    """
    (programs / "helm").symlink_to(helm())
    return programs


@asynccontextmanager
async def running_nats(directory: Path) -> AsyncIterator[NatsServer]:
    """Run a nats-server, whose declarer is a task of the present loop."""
    server = NatsServer(binary=parts.nats_server_binary(), directory=directory)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server of this test alone: `url`, `environ(user)`, `restart(kill=True)`."""
    async with running_nats(tmp_path / "nats") as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    """A nats-server for the whole session: take your own cluster name as subject prefix."""
    async with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """The real control plane that tests share which neither break it nor run a scheduler."""
    async with real_plane(tmp_path_factory.mktemp("stack")) as plane:
        yield plane


@pytest.fixture(scope="session")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane of a folder: the shared one unless the folder has one of its own."""
    return control_plane


@pytest_asyncio.fixture(loop_scope="session")
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """A client of the API server of `plane`."""
    async with connect(plane.kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """Kubeconfig of the administrator."""
    return control_plane.kubeconfig


@pytest_asyncio.fixture
async def namespace(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A fresh namespace in which pods can be created; deleted at the end without waiting."""
    name = f"test-{secrets.token_hex(4)}"
    async with admin.connect(control_plane.url, control_plane.pki) as client:
        await make_namespace(client, control_plane, name)
    yield name
    async with admin.connect(control_plane.url, control_plane.pki) as client:
        await client.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest_asyncio.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    """The services' own client of the shared control plane, as the administrator."""
    async with await connect_kube(str(kubeconfig), user_agent="pumice-test/1") as client:
        yield client


@pytest.fixture
def accounts(kube: Kube, namespace: str, kubeconfig: Path) -> Accounts:
    """Service accounts in the test's namespace."""
    return Accounts(kube, namespace, kubeconfig)
