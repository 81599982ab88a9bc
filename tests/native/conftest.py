"""A control plane of Kubernetes 1.37 for this folder; each test starts its services."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.native.native_groups import native_plane
from tests.support import world
from tests.support.api import connect
from tests.support.fleet import Fleet, fleet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane with two nodes of four CPUs in two racks."""
    async with native_plane(tmp_path_factory.mktemp("native")) as plane:
        async with connect(plane.kubeconfig) as api:
            await world.add_nodes(api, 2, cpu="4")
            for number in range(2):
                labels = {"metadata": {"labels": {"rack": f"r{number}"}}}
                await api.patch("nodes", "", f"node-{number}", labels)
        yield plane


PREEMPTING = """
actions: "enqueue, allocate, preempt, gangpreempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


@pytest_asyncio.fixture(loop_scope="session")
async def preempting(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The services, whose scheduler preempts."""
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(PREEMPTING)
    async with fleet(control_plane, tmp_path) as running:
        await running.start("scheduler", wait=False, scheduler_conf=str(conf))
        await running.start_all("cache", "binder", "controller")
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def services(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The services, with their defaults."""
    async with fleet(control_plane, tmp_path) as running:
        await running.start_all("cache", "scheduler", "binder", "controller")
        yield running
