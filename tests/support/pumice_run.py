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
from tests.support.program import Program, running
from tests.support.wait import until

READY = "everything is ready"


class Run(Program):
    """The process, and what it has written so far on both streams."""

    async def ready(self) -> None:
        """Wait until it says that everything is ready."""
        await self.says(READY, deadline_s=60)

    async def stop(self) -> None:
        """Stop it as a user does; its end must be a clean one."""
        self.send_signal(signal.SIGTERM)
        assert await self.ends(deadline_s=30) == 0, self.last_lines()

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
    async with running(
        Run,
        *(sys.executable, "-m", *module, "run", *words),
        env={**os.environ, **environ},
        pass_fds=inherited,
        stderr=asyncio.subprocess.STDOUT,
    ) as run:
        yield run


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
