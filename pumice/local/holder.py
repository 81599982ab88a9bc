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
from pathlib import Path

from pumice.local import state
from pumice.local.errors import LocalError
from pumice.local.stack import LocalStack, read_holder_config
from pumice.local.state import Program, State
from shared.runtime.errors import leaves
from shared.runtime.tasks import TaskGroup


def main() -> int:
    """Hold the cluster of the directory in argv until a signal; returns the exit code."""
    directory = Path(sys.argv[1])
    try:
        state.hold(directory)
        return asyncio.run(_hold(directory))
    except LocalError as error:
        _say(str(error))
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
            _say("stopping")
            state.write(directory, State(phase="stopping", pid=os.getpid()))
            serving.cancel()
    except* LocalError as group:
        failure = "; ".join(str(error) for error in leaves(group))
    if failure:
        _say(failure)
        state.write(directory, State(phase="failed", pid=os.getpid(), message=failure))
        return 1
    state.forget(directory)
    _say("stopped")
    return 0


async def _serve(directory: Path) -> None:
    wanted = read_holder_config(directory)
    stack = LocalStack(wanted.stack, wanted.binaries, report=_say)

    def report(line: str) -> None:
        _say(line)
        state.write(directory, _seen(stack))

    async with stack:
        state.write(directory, _seen(stack))
        await stack.supervisor(report=report).run()


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


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
