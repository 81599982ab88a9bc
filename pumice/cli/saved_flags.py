"""The flags of a local cluster, saved with its data and valid until that is removed.

A cluster that went down and comes up is the same cluster: the same nodes, configuration of the
scheduler, flags of services, ports. A flag that says otherwise is an error, since half of the data
would belong to the one and half to the other, without a warning.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from pumice.cli import serving
from pumice.local.errors import WrongSettingError
from pumice.local.names import OPTIONAL, SERVICES

SavedFlags = Mapping[str, str]
"""Flag without dashes → its value; those of services as `SERVICE.FLAG`."""

SHAPE: Final[SavedFlags] = {"nodes": "3", "cpu": "8", "memory": "32Gi", "gpus": "0", "rack": "0"}
"""Flags of the fake nodes, and what holds without them."""
_FILE: Final = "nodes-file"
_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    **dict.fromkeys(("nodes", "gpus", "rack", "port", "nats-port"), int),
    **dict.fromkeys(("nodes-file", "kubeconfig-out", "scheduler-conf", "log-dir"), Path),
    **dict.fromkeys(("cpu", "memory", "cluster", "with", "without"), str),
}
"""Saved flags of `pumice up` itself, and the parsers of their values."""
_REPLACED: Final = frozenset({"kubeconfig-out", "log-dir"})
"""Flags that may differ each time: they are of the person, not of the cluster."""


def from_arguments(args: argparse.Namespace) -> dict[str, str]:
    """Return the flags of this command line that are saved. Raises Rejected for unknown ones."""
    found = {}
    for name in _PARSERS:
        value = getattr(args, name.replace("-", "_"))
        if value is not None:
            found[name] = str(value.absolute() if isinstance(value, Path) else value)
    for service, flags in serving.route(args.rest, serving.fields(), own=args.own).items():
        for flag in flags:
            name, _, value = flag.removeprefix("--").partition("=")
            found[f"{service}.{name}"] = value
    return found


def merged(stored: SavedFlags, now: SavedFlags, directory: Path) -> dict[str, str]:
    """Return the saved flags merged with those given now. Raises WrongSettingError if they differ.

    A new cluster keeps the shape of its nodes even where that is the default.
    """
    if not stored:
        return {**({} if _FILE in now else SHAPE), **now}
    for name, value in now.items():
        former = _former(stored, name)
        if former is not None and former != f"--{name}={value}" and name not in _REPLACED:
            raise WrongSettingError(
                f"--{name}={value}: the cluster in {directory} was started with {former}; leave "
                "the flag out, give --forget-flags to use the flags of this command alone, or "
                "remove the cluster with `pumice down --purge`"
            )
    return {**stored, **now}


def _former(stored: SavedFlags, name: str) -> str | None:
    """Return the saved flag that conflicts with a new one, as written; None without one."""
    if name in SHAPE and _FILE in stored:
        return f"--{_FILE}={stored[_FILE]}"
    if name == _FILE and _FILE not in stored:
        return " ".join(f"--{each}={stored[each]}" for each in SHAPE if each in stored)
    return f"--{name}={stored[name]}" if name in stored else None


def fill(args: argparse.Namespace, flags: SavedFlags) -> None:
    """Set the arguments of the command to the flags that hold."""
    for name, read in _PARSERS.items():
        if name in flags:
            setattr(args, name.replace("-", "_"), read(flags[name]))
    args.rest = [f"--{name}={value}" for name, value in flags.items() if "." in name]


def as_arguments(flags: SavedFlags, *, without: Iterable[str] = ()) -> str:
    """Return flags as command line arguments, without defaults and those in `without`."""
    left_out = {*without, "nats-port", "port"}
    shown = [
        f"--{name}={value}"
        for name, value in flags.items()
        if name not in left_out and "." not in name and SHAPE.get(name) != value
    ]
    values: dict[str, dict[str, str]] = {}
    for name, value in flags.items():
        if "." in name and name not in left_out:
            service, _, flag = name.partition(".")
            values.setdefault(flag, {})[service] = value
    for flag, by_service in values.items():
        if set(by_service) == {*SERVICES, *OPTIONAL} and len(set(by_service.values())) == 1:
            shown.append(f"--{flag}={next(iter(by_service.values()))}")
        else:
            shown += [f"--{service}.{flag}={value}" for service, value in by_service.items()]
    return " ".join(shown)
