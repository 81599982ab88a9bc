"""A query in a forked process, which is killed when it exceeds its limits.

The process is a fork of this one, made in the mirror's thread between two folds, so that it has the
whole state of that moment without a copy of it being made (ADR 41). It only computes, writes its
result into a pipe, and ends. The kernel bounds its CPU time and its memory, its parent the time.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, NoReturn, Self, TypeVar

import msgspec

from shared.runtime.clock import Clock
from shared.runtime.errors import Broken, Rejected, Retryable

T = TypeVar("T")

_MIB: Final = 1024 * 1024
_ORPHAN_S: Final = 5
"""A process whose parent is gone ends so long after the time that it had."""
_REAP_S: Final = 0.01
_NICENESS: Final = 5
"""Niceness: queries of the service's own process go first."""
_RETRY_AFTER_S: Final = 5.0
_FIRST_FREE_FD: Final = 3
_FILES: Final = Path("/dev/fd")
_OUT_OF_MEMORY: Final = 3
"""Exit status."""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one query may take."""

    cpu_s: int
    memory_bytes: int
    """Memory limit in bytes beyond the address space of this process at the fork."""
    wall_s: float = 30.0


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the process writes."""

    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    refusal: str = ""
    field: str = ""
    """Those of the query, named in a refusal."""
    error: str = ""


class ForkedQuery(Generic[T]):
    """One query: `start` it in the thread that owns what it reads, then await its `result`.

    An asynchronous context manager, at whose end the process is gone.
    """

    def __init__(self, result: type[T], *, limits: ProcessLimits, clock: Clock) -> None:
        """Take the type of the result, which msgspec has to be able to write."""
        self._type = result
        self._limits = limits
        self._clock = clock
        self.pid = 0
        """Of the process; 0 without one."""
        self._reader = -1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._end()

    def start(self, work: Callable[[], T]) -> None:
        """Have a process compute what `work` returns. Raises Retryable when none can be had."""
        self._reader, writer = os.pipe()
        try:
            self.pid = _fork()
            if self.pid == 0:
                _compute(work, writer, self._limits)
        except OSError as error:
            raise Retryable(
                f"no process can be had for the query: {error.strerror}",
                retry_after_s=_RETRY_AFTER_S,
            ) from error
        finally:
            os.close(writer)

    async def result(self) -> T:
        """Return what the process has found.

        Raises Rejected for a query that takes too much or is wrong, Retryable where the time
        was too short or the process was ended by another, and Broken for an error of ours.
        """
        try:
            async with asyncio.timeout(self._limits.wall_s):
                written = await self._read()
        except TimeoutError as error:
            raise Retryable(
                f"no answer within {self._limits.wall_s:.0f} s", retry_after_s=_RETRY_AFTER_S
            ) from error
        status = await self._end()
        if not written:
            raise self._failure(status)
        reply = msgspec.msgpack.decode(written, type=_Reply)
        if reply.refusal:
            raise Rejected(reply.refusal, field=reply.field)
        if reply.error:
            raise Broken(reply.error)
        return msgspec.msgpack.decode(reply.result, type=self._type)

    async def _read(self) -> bytes:
        """Read the pipe to its end."""
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe = os.fdopen(self._reader, "rb", buffering=0)
        self._reader = -1
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        try:
            return await stream.read()
        finally:
            transport.close()

    async def _end(self) -> int:
        """Kill the process if it is there, and wait until it is gone; return how it has ended."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        if not self.pid:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        pid, self.pid = self.pid, 0
        try:
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
                if ended:
                    return status
                await self._clock.sleep(_REAP_S)
        except asyncio.CancelledError:
            # No other code reaps the process. It is killed, so the wait is short.
            os.waitpid(pid, 0)  # noqa: ASYNC222
            raise

    def _failure(self, status: int) -> Exception:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return Rejected(
                f"the query takes more than {self._limits.cpu_s} s of a processor: ask about "
                "fewer pods, containers or nodes",
                field="spec",
            )
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _OUT_OF_MEMORY:
            return Rejected(
                f"the query takes more than {self._limits.memory_bytes // _MIB} MiB of memory: "
                "ask about fewer pods, containers or nodes",
                field="spec",
            )
        return Retryable(
            f"the process of the query has ended without a result (status {status})",
            retry_after_s=_RETRY_AFTER_S,
        )


def _fork() -> int:
    with warnings.catch_warnings():
        # From 3.12 on Python warns of threads that may hold locks; ADR 41 says why none matters.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


# --- in the process of a query ------------------------------------------------------------


def _compute(work: Callable[[], object], writer: int, limits: ProcessLimits) -> NoReturn:
    """Write what `work` returns or raises, and end without any clean-up: all is the parent's."""
    code = 1
    try:
        _let_go(writer)
        _bound(limits)
        _write(writer, msgspec.msgpack.encode(_reply(work)))
        code = 0
    except MemoryError:
        code = _OUT_OF_MEMORY
    finally:
        os._exit(code)


def _let_go(writer: int) -> None:
    """Leave connections, signal handlers and garbage to the parent."""
    for number in _open_files():
        if number >= _FIRST_FREE_FD and number != writer:
            with contextlib.suppress(OSError):
                os.close(number)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    gc.freeze()  # a collection would touch, and so copy, everything that the parent has


def _open_files() -> Iterable[int]:
    """Return the descriptors of open files.

    A container may allow a billion of them, which not every Python closes in one call.
    """
    try:
        return [int(file.name) for file in _FILES.iterdir()]
    except OSError:
        return range(os.sysconf("SC_OPEN_MAX"))


def _bound(limits: ProcessLimits) -> None:
    signal.alarm(int(limits.wall_s) + _ORPHAN_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    with contextlib.suppress(OSError):  # no Linux: the parent's bound of time is left
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.nice(_NICENESS)


def _reply(work: Callable[[], object]) -> _Reply:
    try:
        return _Reply(result=msgspec.Raw(msgspec.msgpack.encode(work())))
    except MemoryError:
        raise
    except Rejected as error:
        return _Reply(refusal=str(error), field=error.field)
    except Exception as error:  # noqa: BLE001 - the parent reports it
        return _Reply(error=f"{type(error).__name__}: {error}")


def _write(writer: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(writer, rest) :]
