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
        Meta(description="schedulerName of the pods that may be evicted; as the scheduler has it"),
    ] = ("volcano",)
    leader_elect: LeaderElect = True
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    request_timeout: ApiTimeout = Seconds(10.0)
    requests_start: Annotated[
        int, Meta(description="API requests under way at first; adapts to the API server", ge=1)
    ] = 32
    requests_most: Annotated[
        int, Meta(description="most API requests for intents under way", ge=1)
    ] = 128
    requests_per_node: Annotated[
        int, Meta(description="most binds to one node under way", ge=1)
    ] = 16
    slow_answer: Annotated[
        Seconds, Meta(description="an answer slower than this halves the pace", gt=0)
    ] = Seconds(1.0)
    intents_held: Annotated[int, Meta(description="most intents in this replica's hands", ge=1)] = (
        256
    )
    intents_active: Annotated[int, Meta(description="most intents worked on at once", ge=1)] = 64
    statuses_active: Annotated[
        int, Meta(description="most wanted statuses worked on at once", ge=1)
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
    attempts: Annotated[
        int, Meta(description="tries of one bind or eviction before it counts as failed", ge=1)
    ] = 8
    partitions: Annotated[
        int,
        Meta(
            description="partitions of COMMAND and DESIRED; as the scheduler has it",
            ge=1,
            le=PARTITIONS,
        ),
    ] = PARTITIONS
    event_component: Annotated[
        str, Meta(description="component that Kubernetes Events name as their source")
    ] = "volcano"
