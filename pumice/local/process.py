"""One program of the local stack: started in a process group of its own, logged, killed at the end.

Everything that the stack runs goes through `Process`. It polls instead of using asyncio's child
watchers: a poll every few hundredths of a second is nothing beside an API server, and the object
can then be used from any event loop (the tests start it in one loop and kill it from another).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec

from pumice.local.errors import LocalError

GUARD: Final = Path(__file__).with_name("guard.py")
POLL_S: Final = 0.05
_TAIL_BYTES: Final = 8192
_RELAYED_KEPT: Final = 20

_SHARE: Final = 4

Probe = Callable[[], Awaitable[str]]
"""Probes a program's readiness: "" when it is ready, else the missing condition."""


def go_environ(*, main: bool = False) -> dict[str, str]:
    """Return what a Go program is given on a machine that it shares with the whole stack.

    Half the collections (GOGC), and of the processors a quarter (GOMAXPROCS): the threads of a
    program that waits most of the time look for work, and cost the others more than they find. The
    `main` one, which all others wait for, has all. docs/performance.md has the effect of each;
    variables that are set already stay.
    """
    settings = {"GOGC": "200"}
    if not main:
        settings["GOMAXPROCS"] = str(max(1, (os.cpu_count() or 1) // _SHARE))
    return {key: value for key, value in settings.items() if key not in os.environ}


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A program, its arguments and its environment."""

    name: str
    argv: tuple[str, ...]
    """Program (an absolute path) and arguments; never a credential, `ps` shows them."""
    log: Path | None
    """File that gets stdout and stderr; a restart appends. None: lines go to our own stderr, with
    the name in front."""
    environ: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Added to this process's own environment."""
    cwd: Path | None = None
    nice: int = 0
    """By how much its niceness is above ours: it leaves a busy processor to the others."""


class Child(Protocol):
    """A running program, as `subprocess.Popen` gives it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, None while the program runs."""

    def wait(self) -> int:
        """Wait for the end of the program; returns its exit code."""


def popen(spec: ProcessSpec, output: int) -> "subprocess.Popen[bytes]":
    """Start a program in a process group of its own; its lines go to `output`."""
    guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))
    return subprocess.Popen(
        (*guard, *spec.argv),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=spec.cwd,
        env={**os.environ, **spec.environ},
        start_new_session=True,
    )


class Process:
    """A program that may be started, awaited, stopped, killed, suspended and started again."""

    def __init__(
        self, spec: ProcessSpec, *, start: Callable[[ProcessSpec, int], Child] = popen
    ) -> None:
        """`start` makes the process of a program whose lines go to a log."""
        self.spec = spec
        self._start = start
        self._child: Child | None = None
        self._relayed: deque[str] = deque(maxlen=_RELAYED_KEPT)

    @property
    def name(self) -> str:
        """Name of the program in messages."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """Process id of the running program, 0 when there is none."""
        return self._child.pid if self._child and self._child.poll() is None else 0

    @property
    def exit_code(self) -> int | None:
        """Exit code (negative: killed by that signal), None while it runs or was never started."""
        return self._child.poll() if self._child else None

    def start(self) -> None:
        """Start the program. Raises LocalError when it is running already or cannot be run."""
        if self.pid:
            raise LocalError(f"{self.name} is running already (pid {self.pid})")
        program = Path(self.spec.argv[0])
        if not os.access(program, os.X_OK):
            raise LocalError(f"{self.name}: {program} is missing or cannot be executed")
        if self.spec.log is None:
            read, write = os.pipe()
            self._child = self._start(self.spec, write)
            os.close(write)
            reader = threading.Thread(
                target=self._relay, args=(os.fdopen(read, "rb"),), daemon=True
            )
            reader.start()
        else:
            self.spec.log.parent.mkdir(parents=True, exist_ok=True)
            with self.spec.log.open("ab") as log:
                self._child = self._start(self.spec, log.fileno())
        if self.spec.nice:
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + self.spec.nice
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self._child.pid, niceness)

    def _relay(self, output: IO[bytes]) -> None:
        with output:
            for raw in output:
                line = raw.decode(errors="replace").rstrip()
                self._relayed.append(line)
                sys.stderr.write(f"{self.name:<10} | {line}\n")

    async def ready(self, probe: Probe, *, deadline_s: float) -> None:
        """Wait until `probe` returns "".

        Raises LocalError when the program exits first or the deadline passes; the message holds
        its last log line and the path of the log.
        """
        end = time.monotonic() + deadline_s
        missing = "it was not asked yet"
        while True:
            if not self.pid:
                raise LocalError(self.describe_end())
            try:
                async with asyncio.timeout(2.0):
                    missing = await probe()
            except (OSError, TimeoutError) as exc:
                missing = str(exc) or type(exc).__name__
            if not missing:
                return
            if time.monotonic() > end:
                raise LocalError(
                    f"{self.name} is not ready after {deadline_s:.0f} s: {missing}{self._where()}"
                )
            await asyncio.sleep(POLL_S)

    async def exited(self) -> int:
        """Wait until the program ends by itself; returns its exit code."""
        while (code := self.exit_code) is None:  # noqa: ASYNC110 - polling is the choice here
            await asyncio.sleep(POLL_S)
        return code

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM, after `grace_s` SIGKILL, to the whole process group. Never raises."""
        if self._child is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.exited()
        finally:  # cancelled or not: nothing is left behind
            self.kill()

    def kill(self) -> None:
        """Kill the program and its children, and wait until it is gone."""
        if self._child is None:
            return
        self.signal(signal.SIGKILL)
        self._child.wait()

    def suspend(self) -> None:
        """Freeze the program (SIGSTOP) until `resume`."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen program continue (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's process group; a program that is gone gets none."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def describe_end(self) -> str:
        """Return one line that says how the program ended, with the last line that it wrote."""
        code = self.exit_code
        if code is None:
            return f"{self.name} is running"
        if code < 0:
            return f"{self.name} was killed by {_signal_name(-code)}{self._where()}"
        return f"{self.name} exited with {code}: {self.last_line()}{self._where()}"

    def _where(self) -> str:
        return f"; log: {self.spec.log}" if self.spec.log else ""

    def last_line(self) -> str:
        """Return the last line that the program has written."""
        lines = tail(self.spec.log, lines=1) if self.spec.log else list(self._relayed)
        return lines[-1] if lines else "it wrote nothing"


def tail(log: Path, *, lines: int) -> list[str]:
    """Return the last non-empty lines of a file, oldest first; an absent file has none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-lines:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
