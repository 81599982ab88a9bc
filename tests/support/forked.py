"""Service processes for tests, forked from one process that has imported the services.

A service takes half a second to a second of CPU to import what it needs, and the tests start some
hundreds. A forked one does the same from there on: it is in a session of its own, has its own
arguments, environment and log, and ends as its program does. It needs Linux; elsewhere `start` is
that of any other program.

Launcher and forking process share a socket pair, which a launched `pumice run` inherits. A request
is JSON with the log and the end of another pair as file descriptors; on that pair the new process
tells that it is there, and the forking one how it ended. Where the launcher's end of it closes, the
process is killed: it never outlives its launcher.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import NoReturn

from pumice.cli.main import main as pumice
from pumice.local import services
from pumice.local.guard import die_with_parent
from pumice.local.process import GUARD, Child, Process, ProcessSpec, popen

CONTROL = "PUMICE_TEST_FORKING_SOCKET"
"""Variable with the file descriptor of the socket that takes requests, for a program of ours."""
IMPORTED = (
    *(
        f"services.{name}.app"
        for name in ("admission", "binder", "cache", "controller", "scheduler", "visibility")
    ),
    "services.scheduler.cycle",
    "shared.runtime.service",
    "pumice.local.in_process",
)
_THERE = b"there"
_MOST_BYTES = 64 * 1024


class ForkedProcess:
    """A forked service, with as much of `subprocess.Popen` as a launcher needs."""

    def __init__(self, spec: ProcessSpec, output: int) -> None:
        """Fork a service whose lines go to the file descriptor `output`."""
        python, unsafe, how, what, *arguments = spec.argv
        assert (python, unsafe) == (sys.executable, "-P"), spec.argv
        assert how in {"-m", "-c"}, spec.argv
        self._tells, theirs = socket.socketpair()
        request = {
            how: what,
            "arguments": arguments,
            "environ": {**os.environ, **spec.environ},
        }
        with theirs:
            control = _forking_process()
            socket.send_fds(control, [json.dumps(request).encode()], [output, theirs.fileno()])
        self.pid = int(self._tells.recv(_MOST_BYTES).removeprefix(_THERE))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        return self._ended(socket.MSG_DONTWAIT)

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        code = self._ended(0)
        assert code is not None
        return code

    def _ended(self, flags: int) -> int | None:
        if self.returncode is None:
            try:
                told = self._tells.recv(_MOST_BYTES, flags)
            except BlockingIOError:
                return None
            self._tells.close()
            # Without a word the forking process has died, and all of its children with it.
            self.returncode = int(told) if told else -signal.SIGKILL
        return self.returncode


start: Callable[[ProcessSpec, int], Child] = ForkedProcess if hasattr(os, "pidfd_open") else popen


@cache
def _forking_process() -> socket.socket:
    """Return what takes requests: of a process that is started now, or was by our launcher."""
    if CONTROL in os.environ:
        return socket.socket(fileno=int(os.environ[CONTROL]))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))
    with theirs:
        process = subprocess.Popen(
            (*guard, sys.executable, "-m", "tests.support.forked", str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a thread would not be forked
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end_of, process, ours)
    return ours


def to_inherit() -> tuple[dict[str, str], list[int]]:
    """Return variables and file descriptors of a program that forks as we do (`main`)."""
    if start is popen:
        return {}, []
    control = _forking_process().fileno()
    return {CONTROL: str(control)}, [control]


def _end_of(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()
    process.wait()


class _Forks:
    """Forks a service for each request, and tells how each ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(control, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the launcher is gone."""
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj is self._control:
                    if not self._fork():
                        return
                elif key.fileobj in self._waiting.get_map():  # and not ended by the event before
                    key.data()

    def _fork(self) -> bool:
        request, fds, *_ = socket.recv_fds(self._control, _MOST_BYTES, 2)
        if not request:
            return False
        log, tells = fds
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            _become(json.loads(request), log, tells, parent)
        os.close(log)
        process, launcher = os.pidfd_open(pid), socket.socket(fileno=tells)
        wait = self._waiting
        wait.register(process, selectors.EVENT_READ, partial(self._end, process, pid, launcher))
        wait.register(launcher, selectors.EVENT_READ, partial(os.kill, pid, signal.SIGKILL))
        return True

    def _end(self, process: int, pid: int, launcher: socket.socket) -> None:
        self._waiting.unregister(process)
        self._waiting.unregister(launcher)
        os.close(process)
        _, status = os.waitpid(pid, 0)
        with launcher, suppress(BrokenPipeError):  # the launcher may be gone
            launcher.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict, log: int, tells: int, parent: int) -> NoReturn:
    """Be the service that is asked for, in a process that was just forked."""
    os.setsid()
    die_with_parent(parent)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.write(tells, _THERE + str(os.getpid()).encode())
    os.closerange(3, max(log, tells) + 1)
    sys.argv[1:] = request["arguments"]
    if "-c" in request:
        exec(request["-c"], {"__name__": "__main__"})
    else:
        runpy.run_module(request["-m"], run_name="__main__", alter_sys=True)
    sys.exit(0)


def _fork_on_request(control: int) -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _Forks(socket.socket(fileno=control)).run()


def main(words: list[str]) -> int:
    """Be the process that forks, or run `pumice` with its services forked."""
    if words[:1] != ["pumice"]:
        _fork_on_request(int(words[0]))
        return 0
    vars(services)["Process"] = partial(Process, start=start)
    return pumice(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
