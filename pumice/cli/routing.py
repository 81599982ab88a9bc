"""Decides which service a flag of `pumice run` belongs to. Pure.

A flag that one service knows may be bare; one that several know is written with the service in
front (`--scheduler.kube-api-qps=100`); one that all services have in common and that may be the
same for all (log level, cluster, NATS) goes to all of them, and one that makes sense only when it
is the same (`--leader-elect`) to all that have it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shared.runtime.errors import Rejected
from shared.runtime.settings import Field

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
    owners = [owner for owner in owners if not by_flag[owner][name].is_idle] or owners
    common = len(owners) == len(by_flag) and by_flag[owners[0]][name].common and name not in OWN
    if len(owners) > 1 and not common and name not in ALIKE:
        forms = ", ".join(f"--{owner}.{name}" for owner in owners)
        raise Rejected(f"--{name} is not clear: several services have it; write {forms}")
    return owners, name


def _near(flag: str, by_flag: Mapping[str, Mapping[str, Field]], own: Iterable[str] = ()) -> str:
    known = sorted({*own, *(name for flags in by_flag.values() for name in flags)})
    close = difflib.get_close_matches(flag, known, n=1)
    return f" (did you mean --{close[0]}?)" if close else "; `pumice run --flags` lists them"
