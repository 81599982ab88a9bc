"""A process that evaluates expressions about devices (`services.scheduler.cel`), seen from outside.

One thread uses it. It is started on first use, and again after it has ended.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from services.scheduler.cel.frames import HEADER, READY, Answer, EvaluationRequest, frame
from services.scheduler.cel.limits import ExpressionLimits
from shared.runtime.clock import SystemClock

START_S: Final = 30.0
"""Time to start: a busy machine may need seconds to load the library."""
_READ: Final = 1 << 16
_KILLED_MAX: Final = 3
"""Fresh processes that are killed over an expression before it is blamed: they may have had no
processor, or another one may have killed them."""
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables passed to the process, without keys and tokens of the service."""

_now: Final = SystemClock().monotonic
"""Processes take real time, in a simulation, too."""


class Exceeded(Exception):  # noqa: N818 - reads as the fact it states
    """The expression has used more than it may, so that the process has ended."""


class EvaluatorUnavailable(Exception):  # noqa: N818 - reads as the fact it states
    """No process can be started."""


class ExpressionProcess:
    """Evaluates expressions in a process with hard limits."""

    def __init__(self, limits: ExpressionLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._is_fresh = False
        """Whether it has evaluated nothing yet, so that nothing else has used its memory."""
        self._unread = b""

    def answers(self, expression: str, devices: Sequence[bytes]) -> Iterator[Answer]:
        """Evaluate an expression about devices (encoded `SeenDevice`s); yield a result for each.

        Raises Exceeded about the first device without a result, and EvaluatorUnavailable.
        """
        done = killed = 0
        while done < len(devices):
            process = self._started()
            was_fresh, self._is_fresh = self._is_fresh, False
            try:
                self._send(process, frame(EvaluationRequest(expression, list(devices[done:]))))
                while done < len(devices):
                    response = self._receive(process, self._limits.wall_s)
                    done, was_fresh, killed = done + 1, False, 0
                    yield response
            except EOFError:
                code = self._end()
                if code == -signal.SIGPROF:
                    text = f"more than {self._limits.cpu_s * 1000:g} ms of processor time"
                    raise Exceeded(text) from None
                is_killed = code == -signal.SIGKILL
                killed += was_fresh and is_killed
                if was_fresh and (not is_killed or killed == _KILLED_MAX):
                    raise Exceeded(self._cause(code)) from None
                # Earlier evaluations may have used the memory: repeat in a new process.

    def close(self) -> None:
        """End the process."""
        self._end()

    @property
    def pid(self) -> int | None:
        """Return the id of the process, None while there is none."""
        return self._process.pid if self._process is not None else None

    def _cause(self, code: int) -> str:
        if code == -signal.SIGKILL:
            return f"more than {self._limits.wall_s:g} s"
        return f"more than {self._limits.memory_bytes >> 20} MiB of memory"

    # --- the process -------------------------------------------------------------------------

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith("PYTHON")
        }
        limits = msgspec.json.encode(self._limits).decode()
        command = [sys.executable, "-P", "-m", "services.scheduler.cel", limits]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
            )
        except OSError as error:
            raise EvaluatorUnavailable(
                f"no process can be started: {error.strerror or error}"
            ) from error
        self._process, self._is_fresh, self._unread = process, True, b""
        try:
            greeting = self._receive(process, START_S)
        except EOFError:
            code = self._end()
            raise EvaluatorUnavailable(f"the process has ended with code {code}") from None
        if greeting != READY:
            self._end()
            raise EvaluatorUnavailable(str(greeting))
        return process

    def _end(self) -> int:
        """End the process if it still runs; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            return process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _send(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(process.stdin.fileno(), view) :]
        except BrokenPipeError:
            raise EOFError from None

    def _receive(self, process: subprocess.Popen[bytes], wait_s: float) -> Answer:
        """Return the next message. Raises `EOFError` when the process ends before."""
        assert process.stdout is not None
        fd = process.stdout.fileno()
        arrives = select.poll()  # `select` takes no descriptor beyond 1023
        arrives.register(fd, select.POLLIN)
        deadline = _now() + wait_s
        while True:
            if len(self._unread) >= HEADER.size:
                end = HEADER.size + HEADER.unpack_from(self._unread)[0]
                if len(self._unread) >= end:
                    body, self._unread = self._unread[HEADER.size : end], self._unread[end:]
                    response: Answer = msgspec.msgpack.decode(body, type=Answer)
                    return response
            left = deadline - _now()
            if left <= 0 or not arrives.poll(1e3 * left):
                process.kill()
                raise EOFError
            read = os.read(fd, _READ)
            if not read:
                raise EOFError
            self._unread += read
