"""Programs as child processes: what they have written so far, and an end with the test."""

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.support.wait import until

_REST_S = 5.0
"""Seconds for the last output of a program that has ended."""


class Program:
    """A child process, and its output as text."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out = ""
        self.err = ""
        self.readers: list[asyncio.Task[None]] = []

    @property
    def lines(self) -> list[str]:
        """Return the complete lines of stdout."""
        return self.out[: self.out.rfind("\n") + 1].splitlines()

    async def read(self, stream: asyncio.StreamReader, *, errors: bool) -> None:
        """Read one of its streams to the end."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while chunk := await stream.read(65536):
            if errors:
                self.err += decoder.decode(chunk)
            else:
                self.out += decoder.decode(chunk)

    async def says(self, text: str, *, deadline_s: float = 40) -> None:
        """Wait until stdout contains a text; fail at once if the program ends without it."""
        await until(
            lambda: text in self.out or self.process.returncode is not None,
            deadline_s=deadline_s,
            describe=lambda: f"{text!r} in {self.out[-3000:]}{self.err}",
        )
        assert text in self.out, f"it ended without {text!r}: {self.out[-3000:]}{self.err}"

    async def ends(self, *, deadline_s: float = 50) -> int:
        """Wait for the end of the program and of its output; return the exit code."""
        async with asyncio.timeout(deadline_s):
            code = await self.process.wait()
        if self.readers:
            await asyncio.wait(self.readers, timeout=_REST_S)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program unless it has ended.

        `asyncio.subprocess.Process.send_signal` collects the exit code of a child that has just
        ended, which asyncio then reports as 255.
        """
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


P = TypeVar("P", bound=Program)


async def start(tasks: asyncio.TaskGroup, kind: type[P], *words: str, **options: Any) -> P:
    """Start a program whose output `tasks` read; `options` as of `create_subprocess_exec`."""
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    program = kind(await asyncio.create_subprocess_exec(*words, **{**pipes, **options}))
    for stream, errors in ((program.process.stdout, False), (program.process.stderr, True)):
        if stream is not None:
            program.readers.append(tasks.create_task(program.read(stream, errors=errors)))
    return program


@asynccontextmanager
async def running(kind: type[P], *words: str, **options: Any) -> AsyncIterator[P]:
    """Run a program until the block ends; it is killed then."""
    async with asyncio.TaskGroup() as tasks:
        program = await start(tasks, kind, *words, **options)
        try:
            yield program
        finally:
            program.send_signal(signal.SIGKILL)
            await program.process.wait()


async def completed(*words: str, **options: Any) -> tuple[int, str, str]:
    """Run a program to its end; return exit code, stdout and stderr."""
    async with running(Program, *words, **options) as program:
        code = await program.ends()
    return code, program.out, program.err
