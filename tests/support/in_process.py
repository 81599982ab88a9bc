"""`pumice run --in-process` under test: the process that all services live in, and its ends."""

import os
import signal
from pathlib import Path

from pumice.local import state
from tests.support.wait import until


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
