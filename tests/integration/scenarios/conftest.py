"""One whole system for the scenarios of a worker: a cluster, and `pumice run` on it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, Options
from tests.integration.scenarios.playing import Playing, Stage
from tests.support import world
from tests.support.api import connect
from tests.support.stack import CRDS
from tests.support.wait import until

CONFIGURATION = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: capacity
  - name: nodeorder
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A scenario waits for its turn on the stage as well."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(400))


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A control plane with roomy nodes, and the services as a user starts them."""
    directory = tmp_path_factory.mktemp("scenarios")
    async with ControlPlane(Options(directory=directory / "plane"), parts.require()) as plane:
        await plane.apply_crds(CRDS)
        conf = directory / "scheduler.yaml"
        conf.write_text(CONFIGURATION)
        words = ("--kubeconfig", str(plane.kubeconfig), "--scheduler-conf", str(conf))
        async with (
            connect(plane.kubeconfig) as api,
            pumice_run(*words, "--log-dir", str(directory / "logs")),
        ):
            await world.add_nodes(api, 3, prefix="roomy", cpu="256", memory="1Ti", pods="1000")
            yield Stage(api, plane, directory / "logs")


@asynccontextmanager
async def pumice_run(*words: str) -> AsyncIterator[None]:
    """`pumice run` as a child process, from "everything is ready" to its clean end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pumice", "run", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines: list[str] = []

    async def read(stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            lines.append(line.decode().rstrip())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read(process.stdout), name="read")
        try:
            await until(
                lambda: any("everything is ready" in line for line in lines),
                deadline_s=60,
                describe=lambda: "pumice run is ready:\n" + "\n".join(lines[-20:]),
            )
            yield
            process.terminate()
            async with asyncio.timeout(30):
                assert await process.wait() == 0, "\n".join(lines[-20:])
        finally:
            if process.returncode is None:
                process.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def playing(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Playing]:
    """All selected scenarios of a file, playing at the same time."""
    chosen = {
        item.callspec.params["name"]: item.callspec.params["scenario"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    async with Playing(stage, chosen) as at_play:
        yield at_play
