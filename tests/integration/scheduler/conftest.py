"""A control plane of this folder's own with two nodes; each test starts its services."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.support import world
from tests.support.api import connect
from tests.support.fleet import Fleet, fleet
from tests.support.stack import real_plane

NO_STREAMS = "--feature-gates=WatchList=false"
PREEMPTING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A real API server with two nodes of four CPUs and two priority classes.

    It streams no state as older ones do not, so that here the cache lists every kind.
    """
    directory = tmp_path_factory.mktemp("preempting")
    async with real_plane(directory, apiserver_flags=(NO_STREAMS,)) as running:
        async with connect(running.kubeconfig) as api:
            await world.add_nodes(api, 2, cpu="4")
            for name, value in (("unimportant", 10), ("important", 1000)):
                body = {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
                await api.create("priorityclasses", body)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def plane(two_nodes: ControlPlane) -> ControlPlane:
    """The control plane, without what the tests before have made."""
    async with connect(two_nodes.kubeconfig) as api:
        await api.clear("jobs", "podgroups", "pods", "nodeshards")
    return two_nodes


@pytest_asyncio.fixture(loop_scope="session")
async def services(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The four services; the scheduler preempts."""
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(PREEMPTING)
    async with fleet(plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_conf=str(conf))
        await running.start_all("cache", "binder", "controller")
        yield running
