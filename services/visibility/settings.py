"""Settings of visibility."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.runtime.common import (
    FEATURE_GATES,
    ApiBurst,
    ApiQps,
    ApiTimeout,
    CommonSettings,
    RegistrationLease,
)
from shared.runtime.values import Seconds


class VisibilitySettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one visibility process."""

    port: Annotated[int, Meta(description="port of the aggregated API (HTTPS)", ge=0, le=65535)] = (
        8444
    )
    bind_address: Annotated[str, Meta(description="address of the API; empty: every interface")] = (
        ""
    )
    service_namespace: Annotated[
        str, Meta(description="namespace of the Service", min_length=1)
    ] = "pumice-system"
    service_name: Annotated[str, Meta(description="name of the Service", min_length=1)] = (
        "pumice-visibility"
    )
    service_port: Annotated[int, Meta(description="port of the Service", ge=1, le=65535)] = 443
    external_name: Annotated[
        str,
        Meta(
            description="address of the API outside of the cluster; creates Service and "
            "APIService, and deletes them at an orderly end"
        ),
    ] = ""
    register: Annotated[bool, Meta(description="maintain the CA in the APIService")] = True
    registration_lease: RegistrationLease = "volcano-system/volcano"
    certificate_life: Annotated[
        Seconds,
        Meta(description="lifetime of created certificates; renewed after two thirds", gt=0),
    ] = Seconds(90 * 86400.0)
    certificate_secret: Annotated[
        str, Meta(description="Secret in --service-namespace with the CA that replicas share")
    ] = "pumice-visibility-ca"  # noqa: S105 - its name
    requestheader_client_ca_file: Annotated[
        str,
        Meta(
            description="CA of the API server's client certificate, reread when it changes; "
            "empty: this and the flags below come from ConfigMap "
            "kube-system/extension-apiserver-authentication"
        ),
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...],
        Meta(description="accepted common names of that certificate; empty: any"),
    ] = ()
    requestheader_username_headers: Annotated[
        tuple[str, ...], Meta(description="headers with the name of the user")
    ] = ("X-Remote-User",)
    requestheader_uid_headers: Annotated[
        tuple[str, ...], Meta(description="headers with the uid of the user")
    ] = ("X-Remote-Uid",)
    requestheader_group_headers: Annotated[
        tuple[str, ...], Meta(description="headers with the groups of the user")
    ] = ("X-Remote-Group",)
    requestheader_extra_headers_prefix: Annotated[
        tuple[str, ...], Meta(description="prefixes of headers with more about the user")
    ] = ("X-Remote-Extra-",)
    scheduler_conf: Annotated[
        str,
        Meta(description="the scheduler's configuration file; reread when replaced"),
    ] = ""
    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="spec.schedulerName values that the scheduler serves", min_length=1),
    ] = ("volcano",)
    feature_gates: Annotated[str, Meta(description=FEATURE_GATES)] = ""
    node_selector: Annotated[
        tuple[str, ...],
        Meta(description="the scheduler's node selector"),
    ] = ()
    csi_storage: Annotated[bool, Meta(description="the scheduler's --csi-storage")] = True
    mindcluster_npus: Annotated[
        bool, Meta(description="read MindCluster's data about NPUs; set the cache's flag first")
    ] = False
    scheduler_sharding_mode: Annotated[
        Literal["none", "hard", "soft"],
        Meta(description="the scheduler's sharding mode"),
    ] = "none"
    scheduler_sharding_name: Annotated[
        str, Meta(description="name of the scheduler's NodeShard")
    ] = "volcano"
    seed: Annotated[int, Meta(description="the scheduler's seed")] = 0
    idle_after: Annotated[
        Seconds,
        Meta(
            description="time without a request after which nothing is read or forecast until the"
            " next one",
            gt=0,
        ),
    ] = Seconds(600.0)
    what_if_cpu: Annotated[
        Seconds,
        Meta(description="maximum CPU time of a what-if or explanation in whole seconds", ge=1),
    ] = Seconds(15.0)
    what_if_memory: Annotated[
        int, Meta(description="maximum memory of a what-if beyond the cluster state in MiB", ge=32)
    ] = 512
    connections_most: Annotated[
        int,
        Meta(
            description="maximum number of connections; above it, the longest idle one is closed",
            ge=8,
        ),
    ] = 256
    kube_api_qps: ApiQps = 200.0
    kube_api_burst: ApiBurst = 200
    request_timeout: ApiTimeout = Seconds(5.0)
