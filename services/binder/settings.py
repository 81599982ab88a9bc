"""Settings of the binder."""

from typing import Annotated

from msgspec import Meta

from shared.contracts.streams import PARTITIONS
from shared.runtime.common import ApiBurst, ApiQps, ApiTimeout, CommonSettings, LeaderElect
from shared.runtime.values import Seconds


class BinderSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one binder process."""

    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulerName of pods that may be evicted; the same as the scheduler's"),
    ] = ("volcano",)
    leader_elect: LeaderElect = True
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    request_timeout: ApiTimeout = Seconds(10.0)
    requests_start: Annotated[
        int,
        Meta(description="initial number of parallel API requests; adapts to the API server", ge=1),
    ] = 32
    requests_most: Annotated[
        int, Meta(description="maximum number of parallel API requests for intents", ge=1)
    ] = 128
    requests_per_node: Annotated[
        int, Meta(description="maximum number of parallel binds to one node", ge=1)
    ] = 16
    slow_answer: Annotated[
        Seconds,
        Meta(
            description="a response slower than this halves the number of parallel requests", gt=0
        ),
    ] = Seconds(1.0)
    intents_received: Annotated[
        int, Meta(description="maximum number of intents received and not ended", ge=1)
    ] = 256
    intents_active: Annotated[
        int, Meta(description="maximum number of intents executed in parallel", ge=1)
    ] = 64
    statuses_active: Annotated[
        int, Meta(description="maximum number of desired statuses written in parallel", ge=1)
    ] = 16
    volume_bind_timeout: Annotated[
        Seconds,
        Meta(description="how long a pod may wait for its volumes before its bind fails", gt=0),
    ] = Seconds(600.0)
    device_bind_timeout: Annotated[
        Seconds,
        Meta(
            description="how long drivers may prepare a pod's devices before its bind fails", gt=0
        ),
    ] = Seconds(600.0)
    eviction_grace_max: Annotated[
        Seconds,
        Meta(
            description="maximum time that a pod with `pumice.dev/checkpoint-grace` has between the"
            " notice of its eviction and its deletion; 0: no notice",
            ge=0,
        ),
    ] = Seconds(0.0)
    attempts: Annotated[
        int, Meta(description="attempts of a bind or eviction before it fails", ge=1)
    ] = 8
    partitions: Annotated[
        int,
        Meta(
            description="partitions of COMMAND and DESIRED; the same as the scheduler's",
            ge=1,
            le=PARTITIONS,
        ),
    ] = PARTITIONS
    event_component: Annotated[str, Meta(description="source component of Kubernetes Events")] = (
        "volcano"
    )
