"""Volcano's flags that mean nothing here: accepted, so that a command line moves over unedited.

They are fields like any other, marked `inert`; one that is given a value other than its default is
named in the log with the reason. A flag whose loss would change what is decided is not among them:
it is honoured or refused.
"""

import typing
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shared.runtime.common import NO_EFFECT, CommonSettings, LeaderElect
from shared.runtime.values import Seconds

_MARK: Final = "inert"


def inert(reason: str) -> Meta:
    """Return the annotation of a flag that is accepted without effect, and why."""
    return Meta(description=f"{NO_EFFECT} {reason}", extra={_MARK: reason})


_LOG: Final = "--log-level says how much is logged, on stderr"


class KlogSettings(CommonSettings, frozen=True, kw_only=True):
    """The flags of Kubernetes' logger that Volcano's own manifests give to every component."""

    v: Annotated[int, inert(_LOG)] = 0
    logtostderr: Annotated[bool, inert(_LOG)] = True


_LEASES: Final = "the cache holds the Leases, and has these flags"


class InheritedSettings(KlogSettings, frozen=True, kw_only=True):
    """The inert flags that Volcano's scheduler and controller share (M04, K10)."""

    leader_elect: LeaderElect = True
    leader_elect_lease_duration: Annotated[Seconds, inert(_LEASES)] = Seconds(15.0)
    leader_elect_renew_deadline: Annotated[Seconds, inert(_LEASES)] = Seconds(10.0)
    leader_elect_retry_period: Annotated[Seconds, inert(_LEASES)] = Seconds(2.0)
    leader_elect_resource_lock: Annotated[str, inert(_LEASES)] = "leases"
    leader_elect_resource_name: Annotated[str, inert(_LEASES)] = ""
    leader_elect_resource_namespace: Annotated[str, inert(_LEASES)] = ""
    lock_object_namespace: Annotated[str, inert(_LEASES)] = ""
    feature_gates: Annotated[
        str, inert("what is built is on; docs/compatibility.md says what is not")
    ] = ""


def idle_flags(settings: CommonSettings) -> dict[str, str]:
    """Return the inert flags that were given another value than their default, with reasons."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    hints = typing.get_type_hints(type(settings), include_extras=True)
    return {
        f"--{name.replace('_', '-')}": reason
        for name, hint in hints.items()
        if (reason := _reason(hint)) and getattr(settings, name) != defaults[name]
    }


def _reason(hint: Any) -> str:  # noqa: ANN401 - any annotation
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra and _MARK in meta.extra:
            return str(meta.extra[_MARK])
    return ""
