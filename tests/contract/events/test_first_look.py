"""What a person does first with events on a local cluster: a script and a terminal."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.api import connect
from tests.support.program import Program, start
from tests.support.wait import until
from tests.support.world import job, task

PAGE = Path(__file__).parents[3] / "docs" / "observing.md"
PUMICE = (sys.executable, "-m", "pumice")


class Terminal:
    """Runs programs in an environment of the test's own; none outlives the test."""

    def __init__(self, home: Path, tasks: asyncio.TaskGroup) -> None:
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith("PUMICE_")
        } | {"XDG_STATE_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        self._tasks = tasks

    async def start(self, *words: str) -> Program:
        return await start(self._tasks, Program, *words, env=self.environ)

    async def run(self, *words: str) -> Program:
        program = await self.start(*words)
        await program.ends(deadline_s=60)
        return program


@pytest_asyncio.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    """A terminal of a user whose local cluster is up, on the embedded API server."""
    async with asyncio.TaskGroup() as tasks:
        terminal = Terminal(tmp_path / "home", tasks)
        try:
            up = await terminal.run(*PUMICE, "up", "--api", "embedded", "--nodes", "2")
            assert up.process.returncode == 0, up.err
            assert "pumice events --follow" in up.out
            yield terminal
        finally:
            await terminal.run(*PUMICE, "down", "--purge")


async def play(terminal: Terminal, name: str) -> None:
    """Let a job run."""
    kubeconfig = Path(terminal.environ["XDG_STATE_HOME"]) / "pumice" / "local" / "kubeconfig"
    async with connect(kubeconfig) as api:
        await api.create("jobs", job(name, task("work", 2)), "default")

        async def runs() -> bool:
            found = await api.get("jobs", "default", name)
            return found.get("status", {}).get("state", {}).get("phase") == "Running"

        await until(runs, deadline_s=40, describe=f"{name} runs")


@pytest.mark.timeout(180)
async def test_a_first_look_at_the_events_of_a_local_cluster(terminal: Terminal) -> None:
    await play(terminal, "first")
    status = await terminal.run(*PUMICE, "status")
    assert re.search(r"NATS nats://127\.0\.0\.1:\d+, user events, password in /", status.out)

    script = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert script is not None
    told = await terminal.start(sys.executable, "-c", script[1])
    follower = await terminal.start(*PUMICE, "events", "--follow")
    await until(
        lambda: "gang.placed" in follower.out and "default/first" in follower.out,
        deadline_s=20,
        describe=lambda: f"a follower begins with the last minute: {follower.out}{follower.err}",
    )
    # What the script tells begins when it has subscribed, so jobs are run until it tells of one.
    for number in range(9):
        await play(terminal, f"later-{number}")
        if "is on" in told.out:
            break
    assert re.search(r"default/later-\d-work-\d is on node-\d", told.out), told.err
    told.process.kill()

    head = await terminal.run("sh", "-c", f"{' '.join(PUMICE)} events | head -1")
    assert len(head.out.splitlines()) == 1
    assert head.err == ""

    await terminal.run(*PUMICE, "down")
    async with asyncio.timeout(20):
        assert await follower.process.wait() == 0
    await until(lambda: "has ended" in follower.err, describe=lambda: follower.err)
