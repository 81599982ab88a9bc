"""`pumice run` as a child process, as a user starts the services on a cluster, and their ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pumice.local import state
from tests.support import forked
from tests.support.wait import until

READY = "everything is ready"


class Run:
    """The process, and what it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Take in what it writes, to the end."""
        while line := await stream.readline():
            self.lines.append(line.decode().rstrip())

    async def ready(self) -> None:
        """Wait until it says that everything is ready."""
        await until(
            lambda: any(READY in line for line in self.lines),
            deadline_s=60,
            describe=lambda: f"pumice run is ready:\n{self.last_lines()}",
        )

    async def stop(self) -> None:
        """Stop it as a user does; its end must be a clean one."""
        self.process.terminate()
        async with asyncio.timeout(30):
            assert await self.process.wait() == 0, self.last_lines()

    def last_lines(self) -> str:
        """Return what it wrote last."""
        return "\n".join(self.lines[-20:])


@asynccontextmanager
async def pumice_run(*words: str, forks: bool = True) -> AsyncIterator[Run]:
    """Start it; whatever happens, it is gone at the end.

    Unless it `forks`, it starts its services as it does for a user.
    """
    environ, inherited = forked.to_inherit() if forks else ({}, [])
    module = ("tests.support.forked", "pumice") if forks else ("pumice",)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *module, "run", *words),
        env={**os.environ, **environ},
        pass_fds=inherited,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    run = Run(process)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run.read(process.stdout), name="read")
        try:
            yield run
        finally:
            if process.returncode is None:
                process.kill()


class ServicesProcess:
    """The process that a `pumice run --in-process` names in its data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def pids(self) -> set[int]:
        """Return the processes that the services are in."""
        now = state.read(self.directory)
        return {program.pid for program in now.programs} if now else set()

    @property
    def pid(self) -> int:
        """Return the one process that all services are in."""
        (pid,) = self.pids
        return pid

    async def kill(self) -> None:
        """Kill -9 of that process, and wait until another is there in its place and is ready."""
        killed = self.pid
        os.kill(killed, signal.SIGKILL)
        await until(
            lambda: self.pids and self.pid != killed,
            deadline_s=60,
            describe="all services are ready in another process",
        )
