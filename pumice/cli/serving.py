"""The flags of the services, as `pumice run` and `pumice up` take them, and their checks.

Flags and configuration files are read here with the code of the services themselves, before any
program is started.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from pumice.cli.places import directory
from pumice.cli.routing import TAKEN, route
from pumice.local.errors import WrongSettingError
from pumice.local.names import SERVICES
from pumice.local.services import settings_type
from shared.runtime.errors import Rejected
from shared.runtime.settings import Field, fields_of, load

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
    parser.add_argument("--flags", action="store_true", help="list the services' flags and end")


def flags_of(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Flags:
    """Return each service's flags. Raises WrongSettingError or Rejected, naming what is wrong."""
    routed = route(args.rest, fields(), own=args.own)
    for service in SERVICES:
        try:
            load(settings_type(service), service=service, argv=routed[service], environ=environ)
        except Rejected as error:
            raise WrongSettingError(f"{service}: {error}") from error
    if args.scheduler_conf is not None:
        conf = existing(args.scheduler_conf, "--scheduler-conf").absolute()
        _check_configuration(conf)
        for service in ("scheduler", "visibility"):  # which decides as the scheduler does
            routed[service] = (*routed[service], f"--scheduler-conf={conf}")
    if args.log_dir is not None:
        _check_writable(args.log_dir, "--log-dir")
    return routed


def fields() -> dict[str, tuple[Field, ...]]:
    """Return the settings of each service."""
    return {service: fields_of(settings_type(service)) for service in SERVICES}


def existing(path: Path, flag: str) -> Path:
    """Return the path of a file; raises WrongSettingError when there is none."""
    if not path.is_file():
        raise WrongSettingError(f"{flag}: there is no file {path}")
    return path


def _check_configuration(path: Path) -> None:
    """Read a scheduler configuration as the scheduler does."""
    from services.scheduler.adapters.entry_points import load_plugins
    from services.scheduler.config import BadConfig
    from services.scheduler.decide import configure
    from services.scheduler.policy.catalog import PLUGINS, Plugins

    plugins: Plugins = {**PLUGINS, **load_plugins(PLUGINS, note=lambda _: None)}
    try:
        configure(path.read_text(encoding="utf-8"), plugins=plugins)
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
