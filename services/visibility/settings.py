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
    bind_address: Annotated[
        str, Meta(description="address that the API listens at; empty: every interface")
    ] = ""
    service_namespace: Annotated[
        str, Meta(description="namespace of our Service", min_length=1)
    ] = "pumice-system"
    service_name: Annotated[str, Meta(description="name of our Service", min_length=1)] = (
        "pumice-visibility"
    )
    service_port: Annotated[int, Meta(description="port of our Service", ge=1, le=65535)] = 443
    external_name: Annotated[
        str,
        Meta(
            description="name or address where the API server finds us when we run outside of its "
            "cluster; Service and APIService are made then, and deleted at an orderly end"
        ),
    ] = ""
    register: Annotated[
        bool, Meta(description="keep our authority and our place in the cluster's APIService")
    ] = True
    registration_lease: RegistrationLease = "volcano-system/volcano"
    certificate_life: Annotated[
        Seconds,
        Meta(description="life of certificates that we make; renewed after two thirds of it", gt=0),
    ] = Seconds(90 * 86400.0)
    certificate_secret: Annotated[
        str, Meta(description="Secret in --service-namespace where replicas share their CA")
    ] = "pumice-visibility-ca"  # noqa: S105 - its name
    requestheader_client_ca_file: Annotated[
        str,
        Meta(
            description="CA of the certificate that the API server shows, reread when it changes; "
            "empty: as the ConfigMap kube-system/extension-apiserver-authentication says, which "
            "the flags below are read from as well"
        ),
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...],
        Meta(description="common names of that certificate that are let in; empty: any"),
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
        tuple[str, ...], Meta(description="beginnings of headers with more about the user")
    ] = ("X-Remote-Extra-",)
    scheduler_conf: Annotated[
        str,
        Meta(
            description="the scheduler's configuration file, which answers are decided by; reread "
            "at once when replaced"
        ),
    ] = ""
    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="spec.schedulerName values that the scheduler serves", min_length=1),
    ] = ("volcano",)
    feature_gates: Annotated[str, Meta(description=FEATURE_GATES)] = ""
    node_selector: Annotated[
        tuple[str, ...],
        Meta(description="labels name:value; only nodes with one of them count, as for scheduling"),
    ] = ()
    csi_storage: Annotated[
        bool, Meta(description="whether scheduling heeds the capacity that CSI drivers publish")
    ] = True
    mindcluster_npus: Annotated[
        bool, Meta(description="read what MindCluster tells of NPUs; the cache's flag goes first")
    ] = False
    scheduler_sharding_mode: Annotated[
        Literal["none", "hard", "soft"],
        Meta(description="whether the scheduler keeps to the nodes of a NodeShard"),
    ] = "none"
    scheduler_sharding_name: Annotated[
        str, Meta(description="name of the scheduler's NodeShard")
    ] = "volcano"
    seed: Annotated[int, Meta(description="the scheduler's choice among nodes of equal score")] = 0
    idle_after: Annotated[
        Seconds,
        Meta(
            description="time without a question after which nothing is read or forecast until "
            "the next one",
            gt=0,
        ),
    ] = Seconds(600.0)
    what_if_cpu: Annotated[
        Seconds,
        Meta(description="most CPU time of one what-if, in whole seconds; killed beyond it", ge=1),
    ] = Seconds(15.0)
    what_if_memory: Annotated[
        int, Meta(description="most memory of one what-if beside the cluster state, in MiB", ge=32)
    ] = 512
    connections_most: Annotated[
        int,
        Meta(description="most connections; beyond it the longest waiting one is ended", ge=8),
    ] = 256
    kube_api_qps: ApiQps = 200.0
    kube_api_burst: ApiBurst = 200
    request_timeout: ApiTimeout = Seconds(5.0)
