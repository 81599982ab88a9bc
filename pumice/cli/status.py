"""Show what runs in the local cluster, where it listens and whether it is ready.

Exit code 0 when everything is ready, 1 when something is not, 3 when nothing runs.
"""

import argparse
import os
from pathlib import Path
from typing import Final

import aiohttp

from pumice.cli.up import data_directory
from pumice.local import state
from pumice.local.services import SERVICES
from pumice.local.state import Program

_NOTHING_RUNS: Final = 3
_ANSWER_S: Final = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    data_directory(parser)


async def run(args: argparse.Namespace) -> int:
    """Print a line per program."""
    directory: Path = args.data_dir
    now = state.read(directory)
    if now is None or not state.is_held(directory):
        ended = f" (it ended: {now.message or 'its holder was killed'})" if now else ""
        print(f"nothing runs in {directory}{ended}; start it with `pumice up`")
        return _NOTHING_RUNS
    print(f"{now.phase}: API server {now.api_server}, NATS {now.nats}")
    print(f"kubeconfig: {now.kubeconfig}")
    everything = now.phase == "ready"
    for program in now.programs:
        word = await _condition(program)
        everything = everything and word in {"ready", "running"}
        print(f"  {program.name:<24} pid {program.pid:<8} {program.address:<26} {word}")
    return 0 if everything else 1


async def _condition(program: Program) -> str:
    """Return `ready` or `running`, else what is wrong; only services have an open page to ask."""
    if not _alive(program.pid):
        return f"not running, see {program.log}"
    if program.name.split("-")[0] not in SERVICES:
        return "running"
    url = f"http://{program.address}/readyz"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session,
            session.get(url) as answer,
        ):
            text = " ".join((await answer.text()).split())
            return "ready" if answer.ok else f"not ready: {text}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"not ready: {type(error).__name__} {error}"


def _alive(pid: int) -> bool:
    """Return whether a process exists; a cheap look that harms nobody."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
