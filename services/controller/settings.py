"""What can be set about the controller; flags bear Volcano's names (M04)."""

from typing import Annotated

from msgspec import Meta

from shared.runtime.common import ApiBurst, ApiQps, ApiTimeout
from shared.runtime.inherited import InheritedSettings, inert
from shared.runtime.values import Seconds


class ControllerSettings(InheritedSettings, frozen=True, kw_only=True):
    """Settings of one controller process."""

    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulers whose pods get groups; jobs without one get the first"),
    ] = ("volcano",)
    controllers: Annotated[
        tuple[str, ...],
        Meta(description="which controllers run: * for all, name or +name, -name for all but it"),
    ] = ("*", "-sharding-controller")
    worker_threads: Annotated[
        int,
        Meta(
            description="jobs looked at at once; the requests of each wait in line together, so "
            "that gangs become whole one after another",
            ge=1,
        ),
    ] = 32
    worker_threads_for_podgroup: Annotated[
        int, Meta(description="bare pods looked at at once", ge=1)
    ] = 5
    worker_threads_for_gc: Annotated[
        int, Meta(description="finished jobs deleted at once when their time is up", ge=1)
    ] = 1
    max_requeue_num: Annotated[
        int,
        Meta(description="refusals in a row after which a job is terminated; -1: never", ge=-1),
    ] = 15
    inherit_owner_annotations: Annotated[
        bool, Meta(description="groups of bare pods inherit volcano.sh/ annotations of the owner")
    ] = True
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    requests_most: Annotated[int, Meta(description="most API requests under way", ge=1)] = 32
    request_timeout: ApiTimeout = Seconds(10.0)
    jobs_most: Annotated[
        int, Meta(description="jobs that may wait for a look before readers wait", ge=1)
    ] = 200_000
    worker_threads_for_queue: Annotated[int, inert("one worker keeps all queues")] = 5
    worker_threads_for_cronjob: Annotated[
        int,
        Meta(description="CronJobs looked at at once; many are due at the same minute", ge=1),
    ] = 16
    topology_config_map: Annotated[
        str,
        Meta(description="ConfigMap (namespace/name) that says how HyperNodes are discovered"),
    ] = "volcano-system/volcano-controller-configmap"
