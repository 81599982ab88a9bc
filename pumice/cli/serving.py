"""The flags of the services, as `pumice run` and `pumice up` take them, and their checks.

Flags and configuration files are read here with the code of the services themselves, before any
program is started.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pumice.cli.data_directory import directory
from pumice.local.errors import WrongSettingError
from pumice.local.names import ADD_ONS, OPTIONAL, SERVICES
from pumice.local.services import settings_type
from shared.runtime.errors import Rejected
from shared.runtime.settings import Field, fields_of, load

OWN: Final = frozenset({"listen-address", "healthz-address", "instance", "fault"})
"""Common settings that two services cannot share: always written with the service in front."""
ALIKE: Final = frozenset(
    {
        "leader-elect",
        *("node-selector", "scheduler-sharding-mode", "scheduler-sharding-name", "seed"),
    }
)
"""Settings that not all services have, and that are the same for those that do."""
TAKEN: Final = frozenset({"cluster", "nats"})
"""Flags of `pumice run` itself that hold for all services.

Its `--kubeconfig` may be another for one of them, which has an account of its own then.
"""

Fields = Mapping[str, Iterable[Field]]
"""Service → its settings."""


def route(
    words: Sequence[str], fields: Fields, *, own: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return service → flags in the form `--name=value`; `own` are flags of the command itself.

    A flag that one service knows may be bare; one that several know is written with the service in
    front (`--scheduler.kube-api-qps=100`). One that all services have in common and that may be the
    same for all (log level, cluster, NATS) goes to all of them, and one that makes sense only when
    it is the same (`--leader-elect`) to all that have it.

    Raises `Rejected` that names the flag and says how to write it: unknown, ambiguous, no value.
    """
    routed: dict[str, list[str]] = {service: [] for service in fields}
    by_flag = {service: {f.flag: f for f in known} for service, known in fields.items()}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--") or word == "--":
            raise Rejected(f"unexpected argument {word!r}: settings are given as --name=value")
        name, equals, value = word[2:].partition("=")
        services, flag = _owners(name, by_flag, own)
        if not equals:
            is_bool = by_flag[services[0]][flag].is_bool
            value = "true" if is_bool else next(rest, "")
            if not value:
                raise Rejected(f"--{name} needs a value", field=name)
        for service in services:
            routed[service].append(f"--{flag}={value}")
    return {service: tuple(flags) for service, flags in routed.items()}


def _owners(
    name: str, by_flag: Mapping[str, Mapping[str, Field]], own: Iterable[str]
) -> tuple[list[str], str]:
    """Return the services that get a flag, and the flag without a service in front."""
    service, dot, flag = name.partition(".")
    if dot and service in by_flag:
        if flag in TAKEN:
            raise Rejected(f"--{name}: give --{flag} once, for all services", field=name)
        if flag not in by_flag[service]:
            raise Rejected(f"the {service} has no flag --{flag}{_near(flag, by_flag)}", field=name)
        return [service], flag
    owners = [service for service, known in by_flag.items() if name in known]
    if not owners:
        raise Rejected(f"there is no flag --{name}{_near(name, by_flag, own)}", field=name)
    # Where some take a flag for Volcano's sake only, it is meant for those that heed it.
    owners = [owner for owner in owners if not by_flag[owner][name].is_inert] or owners
    common = len(owners) == len(by_flag) and by_flag[owners[0]][name].common and name not in OWN
    if len(owners) > 1 and not common and name not in ALIKE:
        forms = ", ".join(f"--{owner}.{name}" for owner in owners)
        raise Rejected(f"--{name} is not clear: several services have it; write {forms}")
    return owners, name


def _near(flag: str, by_flag: Mapping[str, Mapping[str, Field]], own: Iterable[str] = ()) -> str:
    known = sorted({*own, *(name for flags in by_flag.values() for name in flags)})
    close = difflib.get_close_matches(flag, known, n=1)
    return f" (did you mean --{close[0]}?)" if close else "; `pumice run --flags` lists them"


Flags = Mapping[str, tuple[str, ...]]
"""Service → its flags in the form `--name=value`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what both commands take for the services."""
    parser.add_argument(
        "--scheduler-conf",
        type=Path,
        metavar="FILE",
        help="scheduler configuration of Volcano's form; reread when it is replaced",
    )
    parser.add_argument(
        "--cluster", default="local", metavar="NAME", help="part of each subject (default local)"
    )
    parser.add_argument(
        "--log-dir", type=directory, metavar="DIR", help="where each service's log is written"
    )
    parser.add_argument(
        "--without", choices=ADD_ONS, help="leave out a service that no other needs"
    )
    parser.add_argument(
        "--with", choices=OPTIONAL, help="run a service that is off otherwise (docs/accounting.md)"
    )
    parser.add_argument("--flags", action="store_true", help="list the services' flags and end")


def flags_of(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Flags:
    """Return the flags of each service that is to run.

    Raises WrongSettingError or Rejected, naming what is wrong.
    """
    routed = route(args.rest, fields(), own=args.own)
    routed.pop(args.without, None)
    chosen = getattr(args, "with")
    for service in OPTIONAL:
        if service != chosen:
            routed.pop(service, None)
    if chosen and find_spec("sqlalchemy") is None:
        raise WrongSettingError(f"--with {chosen}: run pip install 'pumice[{chosen}]' first")
    for service in routed:
        try:
            load(settings_type(service), service=service, argv=routed[service], environ=environ)
        except Rejected as error:
            raise WrongSettingError(f"{service}: {error}") from error
    if args.scheduler_conf is not None:
        conf = existing(args.scheduler_conf, "--scheduler-conf").absolute()
        for warning in _check_configuration(conf):
            print(f"--scheduler-conf {conf}: {warning}", file=sys.stderr)
        # Scheduler and visibility decide by it; accounting sums what its budgets need.
        for service in routed.keys() & {"scheduler", "visibility", "accounting"}:
            routed[service] = (*routed[service], f"--scheduler-conf={conf}")
    if args.log_dir is not None:
        _check_writable(args.log_dir, "--log-dir")
    return routed


def fields() -> dict[str, tuple[Field, ...]]:
    """Return the settings of each service."""
    return {service: fields_of(settings_type(service)) for service in (*SERVICES, *OPTIONAL)}


def existing(path: Path, flag: str) -> Path:
    """Return the path of a file; raises WrongSettingError when there is none."""
    if not path.is_file():
        raise WrongSettingError(f"{flag}: there is no file {path}")
    return path


def _check_configuration(path: Path) -> tuple[str, ...]:
    """Read a scheduler configuration as the scheduler does; return its warnings."""
    from services.scheduler.adapters.entry_points import load_plugins
    from services.scheduler.config import BadConfig
    from services.scheduler.decide import configure
    from services.scheduler.policy.catalog import PLUGINS, Plugins

    plugins: Plugins = {**PLUGINS, **load_plugins(PLUGINS, note=lambda _: None)}
    try:
        return configure(path.read_text(encoding="utf-8"), plugins=plugins).warnings
    except (OSError, UnicodeDecodeError, BadConfig) as error:
        reason = " ".join(str(error).split())
        raise WrongSettingError(f"--scheduler-conf {path}: {reason}") from error


def _check_writable(path: Path, flag: str) -> None:
    """Make a directory if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WrongSettingError(f"{flag}: cannot use {path}: {reason}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise WrongSettingError(f"{flag}: cannot write to {path}")


def flags_page() -> str:
    """Return a line for each flag of the services."""
    known = fields()
    first = next(iter(known.values()))
    lines = ["common to all services:"]
    lines += [_flag_line(field) for field in first if field.common and field.flag not in TAKEN]
    for service, its in known.items():
        lines += ["", f"{service}:", *(_flag_line(field) for field in its if not field.common)]
    return "\n".join(lines)


def _flag_line(field: Field) -> str:
    return f"  --{field.flag:<28} {field.description}"
