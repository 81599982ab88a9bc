"""Faults of the installed services: all replicas of one are killed or frozen while a gang comes."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tools.compose_docker import CheckError
from tools.node_check.installing import NAMESPACE
from tools.node_check.jobs import delete, job, task, wait_until
from tools.node_check.machine import Machine

STRUCK: Final = {
    **{
        name: f"services.{name}"
        for name in ("admission", "binder", "cache", "controller", "scheduler", "visibility")
    },
    "nats": "nats-server",
}
"""What is struck, and a word of its command line."""
_FROZEN_S: Final = 12.0
"""Longer than a lease of a leader lasts, shorter than three failed probes."""
_END_S: Final = 60.0
_KINDS: Final = ("deployment", "statefulset")


def _processes(word: str) -> list[int]:
    """Return the numbers of the processes in containers that have a word in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if any(each == word or each.endswith(f"/{word}") for each in words):
                found.append(int(folder.name))
    return found


def _killed(numbers: list[int]) -> None:
    for number in numbers:
        os.kill(number, signal.SIGKILL)


def _frozen(numbers: list[int]) -> None:
    for number in numbers:
        os.kill(number, signal.SIGSTOP)
    time.sleep(_FROZEN_S)
    for number in numbers:
        os.kill(number, signal.SIGCONT)


def _struck(machine: Machine, fault: Callable[[list[int]], None]) -> str:
    """Strike each service while a gang comes; return after how long each gang had completed."""
    durations = []
    for name, word in STRUCK.items():
        numbers = _processes(word)
        if not numbers:
            raise CheckError(f"no process of {name} was found")
        begin = time.monotonic()
        machine.apply(job(f"amid-{name}", task("main", "true", replicas=3)))
        fault(numbers)
        wait_until(machine, f"amid-{name}", "Completed", deadline_s=_END_S)
        durations.append(f"{name} {time.monotonic() - begin:.1f} s")
        _rolled_out(machine)
        delete(machine, f"amid-{name}")
    return ", ".join(durations)


def _rolled_out(machine: Machine) -> None:
    """Wait until all pods of the services and of NATS are ready. Raises CheckError."""
    for kind in _KINDS:
        machine.kubectl("-n", NAMESPACE, "rollout", "status", kind, "--timeout=3m")


def services_are_killed(machine: Machine) -> str:
    """Kill all replicas of each service without a warning; roll all of them out anew afterwards."""
    durations = _struck(machine, _killed)
    for kind in _KINDS:  # new pods have no restarts that would be counted
        machine.kubectl("-n", NAMESPACE, "rollout", "restart", kind)
    _rolled_out(machine)
    return durations


def services_freeze(machine: Machine) -> str:
    """Stop all replicas of each service for a while: they go on with what they believed before."""
    return _struck(machine, _frozen)


FAULTS: Final = {
    "gangs complete though all replicas of a service are killed": services_are_killed,
    "gangs complete though all replicas of a service are frozen": services_freeze,
}
