"""`pumice run --in-process`: the demo's jobs, commands that look, and the end of the process."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from pumice.demo.output import choose
from pumice.demo.run import FLEET
from pumice.demo.story import Demo
from pumice.events import PositionGone, Start
from pumice.events.client import subscribe_at
from pumice.events.server import local
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.embedded import ensure
from pumice.local.stack import LocalStack, StackOptions
from shared.kube.config import connect as connect_kube
from shared.runtime.clock import SystemClock
from tests.integration.local.test_command_line import pumice
from tests.integration.local.test_one_in_charge import completes, submit
from tests.support.api import connect
from tests.support.pumice_run import Run, ServicesProcess, pumice_run

pytestmark = pytest.mark.timeout(240)


@asynccontextmanager
async def plane(api: str, directory: Path) -> AsyncIterator[ControlPlane]:
    """An API server with the demo's nodes and no services."""
    options = StackOptions(
        plane=ControlPlaneOptions(directory=directory, api=api), fleet=FLEET, services=()
    )
    async with LocalStack(options, await ensure(api, print)) as stack:
        yield stack.plane


@asynccontextmanager
async def started(kubeconfig: Path, directory: Path) -> AsyncIterator[tuple[Run, ServicesProcess]]:
    words = ("--in-process", "--kubeconfig", str(kubeconfig), "--data-dir", str(directory))
    async with pumice_run(*words) as run:
        await run.ready()
        yield run, ServicesProcess(directory)


async def play(kubeconfig: Path) -> None:
    """Play the demo's story, which fails unless each of its jobs completes."""
    clock = SystemClock()
    async with await connect_kube(str(kubeconfig), user_agent="pumice-test") as kube:
        demo = Demo(
            kube=kube,
            output=choose(io.StringIO(), plain=True),
            clock=clock,
            began_s=clock.monotonic(),
            versions="",
            deaths=list,
        )
        await demo.play(deadline_s=90)


@pytest.mark.parametrize("api", ["embedded", "real"])
async def test_the_jobs_of_the_demo_complete_with_all_services_in_one_process(api, tmp_path):
    async with (
        plane(api, tmp_path / "plane") as below,
        started(below.kubeconfig, tmp_path / "run") as (run, together),
    ):
        await play(below.kubeconfig)
        assert len(together.pids) == 1
        assert not any("nats-server" in line for line in run.lines)
        await commands_answer(below.kubeconfig, tmp_path / "run")
        await run.stop()


async def commands_answer(kubeconfig: Path, directory: Path) -> None:
    """Ask what a person asks: what runs, what happened, why a job waits."""
    data = ("--data-dir", str(directory))
    code, said, trouble = await pumice("status", *data)
    assert code == 0, said + trouble
    assert said.count(" ready") == 6
    code, said, trouble = await pumice("events", "--type", "job.phase", *data)
    assert code == 0, trouble
    assert "phase=Completed" in said
    code, said, trouble = await pumice("trace", "mpi-pi", *data)
    assert code == 0, trouble
    assert "Completed" in said
    code, said, trouble = await pumice("queue", "tree", "--kubeconfig", str(kubeconfig))
    assert code == 0, trouble
    assert "default" in said


async def test_after_a_kill_all_services_come_back_and_a_follower_is_told_what_is_gone(tmp_path):
    data = ("--data-dir", str(tmp_path / "run"))
    async with (
        plane("embedded", tmp_path / "plane") as below,
        connect(below.kubeconfig) as api,
        started(below.kubeconfig, tmp_path / "run") as (run, together),
    ):
        await submit(api, "before")
        await completes(api, "before")
        async with aclosing(
            subscribe_at(lambda: local(tmp_path / "run"), start=Start(1))
        ) as events:
            assert (await anext(events)).sequence == 1
            await together.kill()
            with pytest.raises(PositionGone, match="the stream was made anew"):
                async with asyncio.timeout(30):
                    [event async for event in events]
        assert any("services was killed by SIGKILL" in line for line in run.lines)
        await submit(api, "after")
        await completes(api, "after")
        code, said, trouble = await pumice("down", *data)
        assert code == 0, said + trouble
        async with asyncio.timeout(30):
            assert await run.process.wait() == 0


async def test_a_service_that_cannot_start_is_named_and_ends_the_command(tmp_path):
    async with plane("embedded", tmp_path / "plane") as below:
        words = ("--in-process", "--kubeconfig", str(below.kubeconfig), "--controllers=nonsense")
        async with pumice_run(*words) as run:
            async with asyncio.timeout(60):
                assert await run.process.wait() == 1
        last = [line for line in run.lines if line.startswith("error: ")]
        assert len(last) == 1, run.last_lines()
        assert "services exited with" in last[0]
        assert "controller: " in last[0]
