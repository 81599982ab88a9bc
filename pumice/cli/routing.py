"""Decides which service a flag of `pumice run` belongs to. Pure.

A flag that one service knows may be bare; one that several know is written with the service in
front (`--scheduler.kube-api-qps=100`); one that all services have in common and that may be the
same for all (log level, cluster, NATS) goes to all of them.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shared.runtime.errors import Rejected
from shared.runtime.settings import Field

OWN: Final = frozenset({"listen-address", "healthz-address", "instance", "fault"})
"""Common settings that two services cannot share: always written with the service in front."""
TAKEN: Final = frozenset({"cluster", "kubeconfig", "nats"})
"""Flags of `pumice run` itself."""

Fields = Mapping[str, Iterable[Field]]
"""Service → its settings."""


def route(words: Sequence[str], fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return service → flags in the form `--name=value`.

    Raises `Rejected` that names the flag and says how to write it: unknown, ambiguous, no value.
    """
    routed: dict[str, list[str]] = {service: [] for service in fields}
    by_flag = {service: {f.flag: f for f in known} for service, known in fields.items()}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--") or word == "--":
            raise Rejected(f"unexpected argument {word!r}: settings are given as --name=value")
        name, equals, value = word[2:].partition("=")
        services, flag = _owners(name, by_flag)
        if not equals:
            is_bool = by_flag[services[0]][flag].is_bool
            value = "true" if is_bool else next(rest, "")
            if not value:
                raise Rejected(f"--{name} needs a value", field=name)
        for service in services:
            routed[service].append(f"--{flag}={value}")
    return {service: tuple(flags) for service, flags in routed.items()}


def _owners(name: str, by_flag: Mapping[str, Mapping[str, Field]]) -> tuple[list[str], str]:
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
        raise Rejected(f"no service has a flag --{name}{_near(name, by_flag)}", field=name)
    shared = len(owners) == len(by_flag) and by_flag[owners[0]][name].common and name not in OWN
    if len(owners) > 1 and not shared:
        forms = ", ".join(f"--{owner}.{name}" for owner in owners)
        raise Rejected(f"--{name} is not clear: several services have it; write {forms}")
    return owners, name


def _near(flag: str, by_flag: Mapping[str, Mapping[str, Field]]) -> str:
    known = sorted({name for flags in by_flag.values() for name in flags})
    close = difflib.get_close_matches(flag, known, n=1)
    return f" (did you mean --{close[0]}?)" if close else "; `pumice run --flags` lists them"
