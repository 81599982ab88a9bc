"""The process behind `pumice up`: holds the stack, restarts programs that die, stops all.

Started detached as `python -P -m pumice.local.holder DIRECTORY` by `pumice up`, which writes the
configuration into the directory and reads the state from it. SIGTERM stops everything in order;
when the holder itself is killed, the kernel kills what it has started.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pumice.local import state
from pumice.local.errors import LocalError
from pumice.local.stack import LocalStack, read_holder_config
from pumice.local.state import Program, State
from shared.runtime.errors import leaves
from shared.runtime.tasks import TaskGroup

_AGAIN_S: Final = 1.0


def main() -> int:
    """Hold the cluster of the directory in argv until a signal; returns the exit code."""
    directory = Path(sys.argv[1])
    try:
        state.hold(directory)
        return asyncio.run(_hold(directory))
    except LocalError as error:
        _print(str(error))
        return 1


async def _hold(directory: Path) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    state.write(directory, State(phase="starting", pid=os.getpid()))
    failure = ""
    try:
        async with TaskGroup() as tasks:
            serving = tasks.create_task(_serve(directory), name="stack")
            await stop.wait()
            _print("stopping")
            with suppress(OSError):  # on a full disk it stops, too
                state.write(directory, State(phase="stopping", pid=os.getpid()))
            serving.cancel()
    except* LocalError as group:
        failure = "; ".join(str(error) for error in leaves(group))
    if failure:
        _print(failure)
        with suppress(OSError):
            state.write(directory, State(phase="failed", pid=os.getpid(), message=failure))
        return 1
    state.forget(directory)
    _print("stopped")
    return 0


async def _serve(directory: Path) -> None:
    config = read_holder_config(directory)
    stack = LocalStack(config.stack, config.binaries, report=_print)

    record = StateRecord(directory, lambda: _seen(stack))

    def report(line: str) -> None:
        _print(line)
        record.write()

    async with stack:
        state.write(directory, _seen(stack))
        async with TaskGroup() as tasks:
            tasks.create_task(record.run(), name="record")
            tasks.create_task(stack.supervisor(report=report).run(), name="supervisor")


class StateRecord:
    """Keeps the state file up to date.

    A disk that is full is no reason to end: the programs that it ends are started again once there
    is room, and the state is written then.
    """

    def __init__(self, directory: Path, seen: Callable[[], State]) -> None:
        self._directory = directory
        self._seen = seen
        self._is_behind = False

    def write(self) -> bool:
        """Write the current state, and return whether that succeeded; else `run` tries again."""
        try:
            state.write(self._directory, self._seen())
        except OSError as error:
            if not self._is_behind:
                _print(f"cannot write to {self._directory}: {_reason(error)}; trying again")
            self._is_behind = True
            return False
        self._is_behind = False
        return True

    async def run(self) -> None:
        """Repeat failed writes until cancelled."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            if self._is_behind and self.write():
                _print(f"{self._directory} can be written again")


def _seen(stack: LocalStack) -> State:
    addresses = {stack.plane.api_program: stack.plane.url, "nats-server": stack.plane.nats.url}
    addresses |= {name: service.address for name, service in stack.services.items()}
    processes = {
        **stack.plane.processes,
        **{name: service.process for name, service in stack.services.items()},
    }
    return State(
        phase="ready",
        pid=os.getpid(),
        api_server=stack.plane.url,
        nats=stack.plane.nats.url,
        kubeconfig=str(stack.plane.kubeconfig),
        programs=tuple(
            Program(
                name=name,
                pid=process.pid,
                address=addresses.get(name, ""),
                log=str(process.spec.log),
            )
            for name, process in processes.items()
        ),
    )


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _print(line: str) -> None:
    """Print to our log. Where that is on a full disk, the line is lost and nothing else."""
    with suppress(OSError):
        print(time.strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
