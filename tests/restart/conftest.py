"""One control plane per worker, which these tests break and mend; services and a judge per test."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.restart.scene import Scene
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, fleet
from tests.support.invariants import Watcher
from tests.support.stack import real_plane

NODES = 20
NODE_CPU = "16"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """etcd, kube-apiserver, controllers, KWOK, NATS: to be killed at will, with 20 nodes."""
    async with real_plane(tmp_path_factory.mktemp("restart")) as running:
        async with connect(running.kubeconfig) as api:
            await world.add_nodes(api, NODES, cpu=NODE_CPU)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The services of this test."""
    async with fleet(plane, tmp_path) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def scene(plane: ControlPlane, services: Fleet, api: Api) -> AsyncIterator[Scene]:
    """A namespace with a judge that looks at every event; the test ends only if it is content."""
    namespace = f"test-{secrets.token_hex(3)}"
    await api.create("namespaces", {"metadata": {"name": namespace}})
    judge = Watcher(api)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(judge.run(), name="judge")
        async with asyncio.timeout(30):
            await judge.ready.wait()
        acting = Scene(plane=plane, api=api, judge=judge, services=services, namespace=namespace)
        try:
            yield acting
            acting.assert_nothing_was_broken()
        finally:
            watching.cancel()
            await acting.clear()
