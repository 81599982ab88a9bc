"""The settings that every service has, so that one environment configures a whole stack.

Beside them, the types of those that services have alike which talk to the API server; how much each
may ask of it differs, and so the defaults are their own. And Volcano's flags that mean nothing
here (`inert`): accepted, so that a command line moves over unedited, and named in the log with the
reason when one is given a value other than its default. A flag whose loss would change what is
decided is not among them: it is honoured or refused. Of Volcano's feature gates, `Name=true,…`,
those that change what is done are read here (M05).
"""

import typing
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from shared.model.numbers import parse_bool
from shared.runtime.errors import Rejected
from shared.runtime.values import Seconds, Secret

NO_EFFECT: Final = "accepted, no effect:"
"""How the description of a flag begins that is taken for Volcano's sake only."""

ApiQps = Annotated[
    float, Meta(description="maximum rate of API requests per second (K10); 0: no limit", ge=0)
]
ApiBurst = Annotated[int, Meta(description="maximum burst of API requests (K10)", ge=1)]
ApiTimeout = Annotated[Seconds, Meta(description="timeout of one API request", gt=0)]

StateKey = Annotated[
    Secret,
    Meta(
        description="key that encrypts jobs and templates on STATE; the same for cache and "
        "controller"
    ),
]

LeaderElect = Annotated[
    bool,
    Meta(
        description="act only while the installation holds its Leases; the cache's flag "
        "switches this off for all"
    ),
]


RegistrationLease = Annotated[
    str,
    Meta(
        description="NAMESPACE/NAME of the Lease whose holder registers itself; see --installation",
        min_length=1,
    ),
]


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields common to all services; each is also read from `PUMICE_<FIELD>`."""

    kubeconfig: Annotated[
        str, Meta(description="kubeconfig file; empty: $KUBECONFIG, then the pod's account")
    ] = ""
    master: Annotated[
        str,
        Meta(description="address of the API server; empty: that of the kubeconfig"),
    ] = ""
    nats: Annotated[
        str, Meta(description="URL of the NATS server, or several separated by commas")
    ] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, Meta(description="user of NATS")] = ""
    nats_password: Annotated[Secret, Meta(description="password of the NATS user")] = Secret()
    nats_ca: Annotated[str, Meta(description="CA of the NATS server; switches TLS on")] = ""
    nats_cert: Annotated[str, Meta(description="client certificate for NATS")] = ""
    nats_key: Annotated[str, Meta(description="key of the client certificate")] = ""
    cluster: Annotated[
        str,
        Meta(
            description="name of the cluster, part of each subject, so that clusters can share a "
            "NATS",
            min_length=1,
        ),
    ] = "local"
    installation: Annotated[
        str,
        Meta(
            description="name of this installation on its Leases; webhooks and the aggregated API"
            " are registered unless another installation holds them; empty: always"
        ),
    ] = ""
    lease_renew: Annotated[
        Seconds, Meta(description="how often a leader renews its lease on the bus", gt=0)
    ] = Seconds(0.4)
    lease_stop: Annotated[
        Seconds,
        Meta(description="time without a renewal after which a leader stops", gt=0),
    ] = Seconds(2.0)
    lease_takeover: Annotated[
        Seconds,
        Meta(
            description="time without a renewal after which another takes the lease; a killed "
            "leader is replaced much sooner",
            gt=0,
        ),
    ] = Seconds(3.0)
    audit_interval: Annotated[
        Seconds,
        Meta(
            description="how often a service compares what it holds with STATE and reads it again"
            " where they differ; 0: never",
            ge=0,
        ),
    ] = Seconds(300.0)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="minimum log level")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="log format on stderr; auto: console on a terminal, else json"),
    ] = "auto"
    listen_address: Annotated[
        str,
        Meta(
            description="address of /livez, /healthz, /readyz and /metrics; port 0: any free port"
        ),
    ] = "127.0.0.1:0"
    healthz_address: Annotated[
        str, Meta(description="second address of /livez, /healthz and /readyz; empty: none")
    ] = ""
    enable_healthz: Annotated[bool, Meta(description="serve /livez, /healthz and /readyz")] = True
    enable_metrics: Annotated[bool, Meta(description="serve /metrics")] = True
    grace: Annotated[
        Seconds,
        Meta(
            description="time to stop after a signal; then the process ends and names what is "
            "stuck",
            ge=0,
        ),
    ] = Seconds(10.0)
    instance: Annotated[
        str, Meta(description="name of this replica in logs, leases and events; empty: generated")
    ] = ""
    fault: Annotated[
        str, Meta(description="for tests: fault point at which to die, name or name@N")
    ] = ""
    fault_dir: Annotated[
        str, Meta(description="for tests: directory in which a reached fault point creates a file")
    ] = ""


_MARK: Final = "inert"


def inert(reason: str) -> Meta:
    """Return the annotation of a flag that is accepted without effect; `reason` says why."""
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


def inert_flags(settings: CommonSettings) -> dict[str, str]:
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


QUEUE_ADMISSION: Final = "SchedulingGatesQueueAdmission"
"""Pods that ask for it wait behind a scheduling gate until their queue has admitted them."""
_ALL_ALPHA: Final = "AllAlpha"

FEATURE_GATES: Final = (
    f"Volcano's feature gates, Name=true,...; {QUEUE_ADMISSION} is supported, "
    "docs/compatibility.md (M05) tells of the others"
)


def is_feature_on(feature_gates: str, feature: str) -> bool:
    """Tell whether a feature of Volcano's alpha stage is on. Raises `Rejected`."""
    on = _gates_of(feature_gates)
    return on.get(feature, on.get(_ALL_ALPHA, False))


def _gates_of(feature_gates: str) -> dict[str, bool]:
    found = {}
    for entry in filter(None, map(str.strip, feature_gates.split(","))):
        name, _, value = entry.partition("=")
        enabled = parse_bool(value)
        if enabled is None:
            raise Rejected(
                f"--feature-gates: {entry!r} is not of the form Name=true or Name=false",
                field="feature-gates",
            )
        found[name] = enabled
    return found
