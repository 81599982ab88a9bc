"""Settings of admission; flags have Volcano's names where it has them (W02)."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from shared.runtime.common import (
    FEATURE_GATES,
    ApiBurst,
    ApiQps,
    ApiTimeout,
    KlogSettings,
    RegistrationLease,
    inert,
)
from shared.runtime.values import Seconds

PATHS: Final = (
    "/jobs/mutate",
    "/jobs/validate",
    "/podgroups/mutate",
    "/podgroups/validate",
    "/pods/mutate",
    "/pods/validate",
    "/queues/mutate",
    "/queues/validate",
    "/jobflows/validate",
    "/cronjobs/validate",
    "/hypernodes/validate",
    "/users/mutate",
)
"""Paths of the webhooks (W01). Not read from `rules.catalogue`, which settings need not load."""

_OPTIONAL = "/podgroups/validate"
"""Not enabled by default, as in Volcano: each PodGroup of a job would cost a second call."""


class AdmissionSettings(KlogSettings, frozen=True, kw_only=True):
    """Settings of one admission process."""

    port: Annotated[int, Meta(description="port of the webhooks (HTTPS)", ge=0, le=65535)] = 8443
    bind_address: Annotated[
        str, Meta(description="address of the webhooks; empty: every interface")
    ] = ""
    enabled_admission: Annotated[
        tuple[str, ...],
        Meta(description=f"paths that are served; `{_OPTIONAL}` only when it is named"),
    ] = tuple(path for path in PATHS if path != _OPTIONAL)
    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulers whose pods are reviewed; jobs without one get the first"),
    ] = ("volcano",)
    admission_conf: Annotated[
        str,
        Meta(
            description="file with resource groups, sources of users, limits; reread when changed"
        ),
    ] = ""
    trusted_requesters: Annotated[
        tuple[str, ...],
        Meta(description="users and service accounts that may state the user of what they create"),
    ] = ()
    max_queue_depth: Annotated[
        int, Meta(description="maximum depth of the queue hierarchy", ge=1)
    ] = 5
    enable_queue_allocated_pods_check: Annotated[
        bool, Meta(description="refuse to delete a queue whose pods hold resources")
    ] = True
    enable_root_queue_protection: Annotated[
        bool, Meta(description="refuse changes of the root queue's resources")
    ] = True
    refuse_unknown_fields: Annotated[
        bool,
        Meta(
            description="refuse jobs with fields in pod templates or claims that the API server "
            "does not know; otherwise warn"
        ),
    ] = False
    tls_cert_file: Annotated[
        str,
        Meta(
            description="certificate, reread when it changes; empty: created and renewed "
            "automatically"
        ),
    ] = ""
    tls_private_key_file: Annotated[
        str, Meta(description="key of the certificate in --tls-cert-file")
    ] = ""
    ca_cert_file: Annotated[
        str, Meta(description="CA of the certificate in --tls-cert-file, for the API server")
    ] = ""
    client_ca_file: Annotated[
        str,
        Meta(
            description="CA of the client certificate that callers must have "
            "(docs/deployment.md), reread when it changes; empty: none"
        ),
    ] = ""
    client_names: Annotated[
        tuple[str, ...],
        Meta(description="accepted common names of client certificates; empty: any"),
    ] = ()
    connections_most: Annotated[
        int,
        Meta(
            description="maximum number of connections; above it, the longest idle one is closed",
            ge=8,
        ),
    ] = 256
    certificate_life: Annotated[
        Seconds,
        Meta(description="lifetime of created certificates; renewed after two thirds", gt=0),
    ] = Seconds(90 * 86400.0)
    certificate_secret: Annotated[
        str, Meta(description="Secret in --webhook-namespace with the CA that replicas share")
    ] = "pumice-admission-ca"  # noqa: S105 - its name
    webhook_namespace: Annotated[
        str, Meta(description="namespace of the Service; its objects are not reviewed")
    ] = ""
    webhook_service_name: Annotated[str, Meta(description="name of the Service")] = ""
    webhook_service_port: Annotated[
        int, Meta(description="port of the Service", ge=1, le=65535)
    ] = 443
    webhook_url: Annotated[
        str,
        Meta(description="URL of the webhooks outside of the cluster"),
    ] = ""
    register: Annotated[
        bool, Meta(description="create and maintain the webhook configurations")
    ] = True
    registration_lease: RegistrationLease = "volcano-system/volcano"
    unregister: Annotated[
        bool, Meta(description="delete the webhook configurations at an orderly end")
    ] = False
    configuration_name: Annotated[
        str, Meta(description="name of the webhook configurations", min_length=1)
    ] = "pumice-admission"
    failure_policy: Annotated[
        Literal["Ignore", "Fail"],
        Meta(description="what the API server does without an answer; Ignore: it admits"),
    ] = "Ignore"
    webhook_timeout: Annotated[
        Seconds, Meta(description="how long the API server waits for an answer", ge=1, le=30)
    ] = Seconds(5.0)
    kube_api_qps: ApiQps = 200.0
    kube_api_burst: ApiBurst = 200
    request_timeout: ApiTimeout = Seconds(3.0)
    graceful_shutdown_time: Annotated[Seconds, inert("--grace says how long an end may take")] = (
        Seconds(30.0)
    )
    feature_gates: Annotated[str, Meta(description=FEATURE_GATES)] = ""
