"""Runs vcctl and Slurm's names; the console scripts of the distribution are the functions here.

Exit codes are Volcano's: 0 done, 1 a line that cannot be read (the message on stderr), 255 for what
failed (`Failed to …` on stdout). Beyond them 130, interrupted. A command's modules are imported
when it is called, so that help comes at once.
"""

import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from pumice.cli.program import silence_stdout
from pumice.vcctl.commands import program
from pumice.vcctl.flags import CommandFailure, Value
from pumice.vcctl.tree import Path, run

if TYPE_CHECKING:
    from pumice.vcctl.cluster import ClusterClient

Action = Callable[["ClusterClient", Mapping[str, Value]], Awaitable[str]]

_FAILED: Final = 255
_INTERRUPTED: Final = 130


def main(name: str, line: list[str] | None = None) -> int:
    """Run one of the programs; returns the exit code."""
    outcome = run(program(name), sys.argv[1:] if line is None else line)
    try:
        sys.stdout.write(outcome.out)
        code = _carry_out(outcome.path, outcome.values) if outcome.path else outcome.code
        sys.stdout.flush()
        sys.stderr.write(outcome.err)
    except BrokenPipeError:
        return silence_stdout()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if missing.partition(".")[0] == "pumice":
            raise  # all of `pumice` is one distribution: this is a bug
        sys.stderr.write(f"error: {name} needs {missing}: pip install 'pumice[services]'\n")
        return 1
    return code


def _carry_out(path: Path, values: Mapping[str, Value]) -> int:
    if path[-1].action == "version":
        sys.stdout.write(_version())
        return 0
    import asyncio

    module, _, function = path[-1].action.partition(":")
    action = attrgetter(function)(importlib.import_module(f"pumice.vcctl.{module}"))
    try:
        asyncio.run(_in_cluster(cast("Action", action), values))
    except CommandFailure as failure:
        words = " ".join(["Failed to", *(command.name for command in reversed(path[1:]))])
        sys.stdout.write(f"{words}: {failure}\n")
        return _FAILED
    return 0


async def _in_cluster(action: Action, values: Mapping[str, Value]) -> None:
    from pumice.vcctl.cluster import connect

    cluster = await connect(values)
    try:
        sys.stdout.write(await action(cluster, values))
    finally:
        await cluster.close()


def _version() -> str:
    """Return the lines of `vcctl version`.

    ⚠ There is no Go here, and no hour at which a program was built: the words are those that
    Volcano's users know.
    """
    import platform
    from importlib import metadata

    own = platform.machine()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(own, own)
    lines = {
        "API Version": "v1alpha1",
        "Version": f"v{metadata.version('pumice')}",
        "Git SHA": "none",
        "Built At": "none",
        "Go Version": f"none (Python {platform.python_version()})",
        "Go OS/Arch": f"{sys.platform}/{machine}",
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def vcctl() -> int:
    """Run Volcano's command line."""
    return main("vcctl")


def vsub() -> int:
    """Submit a job."""
    return main("vsub")


def vjobs() -> int:
    """Show jobs."""
    return main("vjobs")


def vqueues() -> int:
    """Show queues."""
    return main("vqueues")


def vcancel() -> int:
    """Delete a job."""
    return main("vcancel")


def vsuspend() -> int:
    """Stop a job."""
    return main("vsuspend")


def vresume() -> int:
    """Resume a job."""
    return main("vresume")
