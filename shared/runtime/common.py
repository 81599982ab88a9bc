"""The settings that every service has, so that one environment configures a whole stack.

Beside them, the types of those that services have alike which talk to the API server; how much each
may ask of it differs, and so the defaults are their own.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from shared.runtime.values import Seconds, Secret

NO_EFFECT: Final = "accepted, no effect:"
"""How the description of a flag begins that is taken for Volcano's sake only."""

ApiQps = Annotated[float, Meta(description="most API requests per second (K10); 0: no bound", ge=0)]
ApiBurst = Annotated[int, Meta(description="API requests that may go out at once (K10)", ge=1)]
ApiTimeout = Annotated[Seconds, Meta(description="time for one answer of the API server", gt=0)]

StateKey = Annotated[
    Secret,
    Meta(description="seals jobs and templates on STATE; the cache and the controller share it"),
]

LeaderElect = Annotated[
    bool,
    Meta(
        description="act only while the cache says that the Leases in the cluster are ours; the "
        "cache's own flag switches it off for all"
    ),
]


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields common to all services; each is also read from `PUMICE_<FIELD>`."""

    kubeconfig: Annotated[
        str, Meta(description="kubeconfig file; empty: $KUBECONFIG, then the pod's own account")
    ] = ""
    nats: Annotated[
        str, Meta(description="URL of the NATS server, or several separated by commas")
    ] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, Meta(description="user name at the NATS server")] = ""
    nats_password: Annotated[Secret, Meta(description="password at the NATS server")] = Secret()
    nats_ca: Annotated[
        str, Meta(description="file with the CA of the NATS server; turns TLS on")
    ] = ""
    nats_cert: Annotated[str, Meta(description="file with our certificate for NATS")] = ""
    nats_key: Annotated[str, Meta(description="file with the key of our certificate")] = ""
    cluster: Annotated[
        str,
        Meta(
            description="name of the cluster, a part of each subject: clusters may share a NATS",
            min_length=1,
        ),
    ] = "local"
    lease_renew: Annotated[
        Seconds, Meta(description="how often the holder of a lease on the bus renews it", gt=0)
    ] = Seconds(0.4)
    lease_stop: Annotated[
        Seconds,
        Meta(description="time without a renewal after which a holder stops its work", gt=0),
    ] = Seconds(2.0)
    lease_takeover: Annotated[
        Seconds,
        Meta(
            description="time without a renewal after which another takes a lease over; a killed "
            "holder is followed much sooner",
            gt=0,
        ),
    ] = Seconds(3.0)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least level that is logged")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="form of the log on stderr; auto: console on a terminal, else json"),
    ] = "auto"
    listen_address: Annotated[
        str,
        Meta(description="serves /healthz, /readyz and /metrics; port 0 picks a free one"),
    ] = "127.0.0.1:0"
    healthz_address: Annotated[
        str, Meta(description="a second address for /healthz and /readyz; empty: none")
    ] = ""
    enable_healthz: Annotated[bool, Meta(description="serve /healthz and /readyz")] = True
    enable_metrics: Annotated[bool, Meta(description="serve /metrics")] = True
    grace: Annotated[
        Seconds, Meta(description="time to stop after a signal before what is stuck is named", ge=0)
    ] = Seconds(10.0)
    instance: Annotated[
        str, Meta(description="name of this replica in logs, leases and events; empty: made up")
    ] = ""
    fault: Annotated[
        str, Meta(description="for tests: fault point at which to die, name or name@Nth-passage")
    ] = ""
    fault_dir: Annotated[
        str, Meta(description="for tests: directory where a reached fault point leaves its mark")
    ] = ""
