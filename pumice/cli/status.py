"""Show what runs in the local cluster, where it listens, whether it is ready, what it quarantined.

Exit code 0 when everything is ready, 1 when something is not, 3 when nothing runs.
"""

import argparse
import os
from pathlib import Path
from typing import Final

import msgspec

from pumice.cli.data_directory import add_data_directory, events_hint
from pumice.local import readiness, state
from pumice.local.errors import LocalError
from pumice.local.names import OPTIONAL, SERVICES
from pumice.local.state import Program

_NOTHING_RUNS: Final = 3
_MOST_SHOWN: Final = 10
"""Most quarantined objects that are listed below a service."""


class _Item(msgspec.Struct, frozen=True):
    """The members of an entry of `/quarantine` that are shown."""

    kind: str
    key: str
    stage: str
    reason: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_data_directory(parser)


async def run(args: argparse.Namespace) -> int:
    """Print a line per program."""
    directory: Path = args.data_dir
    now = state.read(directory)
    if now is None or not state.is_locked(directory):
        ended = f" (it ended: {now.message or 'its holder was killed'})" if now else ""
        print(f"nothing runs in {directory}{ended}; start it with `pumice up`")
        return _NOTHING_RUNS
    print(f"{now.phase}: {f'API server {now.api_server}, ' * bool(now.api_server)}NATS {now.nats}")
    if now.kubeconfig:
        print(f"kubeconfig: {now.kubeconfig}")
    for line in events_hint(now, directory):
        print(line)
    everything = now.phase == "ready"
    for program in now.programs:
        condition = await _condition(program)
        everything = everything and condition in {"ready", "running"}
        pid = program.pid or "-"
        print(f"  {program.name:<24} pid {pid:<8} {program.address:<26} {condition}")
        for line in await _quarantined(program) if condition == "ready" else ():
            print(f"      {line}")
        if condition == "ready" and (notes := await readiness.notes(program.address)):
            print(f"      goes on without: {notes}")
    return 0 if everything else 1


async def _condition(program: Program) -> str:
    """Return `ready` or `running`, else the fault; only services serve a readiness page."""
    if not _alive(program.pid):
        return f"not running, see {program.log}"
    if not _is_service(program):
        return "running"
    missing = await readiness.missing(program.address)
    return f"not ready: {missing}" if missing else "ready"


async def _quarantined(program: Program) -> list[str]:
    """Return a line for each key that a ready service has quarantined."""
    if not _is_service(program):
        return []
    try:
        _, body = await readiness.page(program.address, "/quarantine")
        items = msgspec.json.decode(body, type=list[_Item])
    except (LocalError, msgspec.MsgspecError) as error:
        return [f"quarantined objects are unknown: {error}"]
    more = [f"and {len(items) - _MOST_SHOWN} more"] if len(items) > _MOST_SHOWN else []
    shown = items[:_MOST_SHOWN]
    return [_line(item) for item in shown] + more


def _line(item: _Item) -> str:
    if item.kind == "configuration":
        return f"refused: {item.key}: {item.reason}; what stood there before is in force"
    return f"quarantined: {item.kind} {item.key} ({item.stage}): {item.reason}"


def _is_service(program: Program) -> bool:
    return program.name.split("-")[0] in (*SERVICES, *OPTIONAL)


def _alive(pid: int) -> bool:
    """Return whether a process exists; signal 0 checks it and is not delivered."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
