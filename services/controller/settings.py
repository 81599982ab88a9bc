"""Settings of the controller; flags bear Volcano's names (M04)."""

from typing import Annotated

from msgspec import Meta

from shared.runtime.common import ApiBurst, ApiQps, ApiTimeout, InheritedSettings, StateKey, inert
from shared.runtime.values import Seconds, Secret


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
    state_key: StateKey = Secret()
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    requests_most: Annotated[int, Meta(description="most API requests under way", ge=1)] = 32
    request_timeout: ApiTimeout = Seconds(10.0)
    jobs_most: Annotated[
        int, Meta(description="keys that may wait in a work queue; more are overflows", ge=1)
    ] = 200_000
    worker_threads_for_queue: Annotated[int, inert("one worker reconciles all queues")] = 5
    worker_threads_for_cronjob: Annotated[
        int,
        Meta(description="CronJobs looked at at once; many are due at the same minute", ge=1),
    ] = 16
    namespace: Annotated[
        str,
        Meta(description="Pumice's own namespace; empty: that of the pod, else pumice-system"),
    ] = ""
    queue_commands_from: Annotated[
        tuple[str, ...],
        Meta(
            description="namespaces beside our own whose Commands to queues are obeyed, * for all; "
            "others only when the policy pumice-queue-commands guarded them"
        ),
    ] = ()
    scheduler_configs: Annotated[
        tuple[str, ...],
        Meta(
            description="shards while no ConfigMap says otherwise, each "
            "name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes"
        ),
    ] = ("volcano:volcano:0.0:0.6:false:2:100", "agent-scheduler:agent:0.7:1.0:true:2:100")
    shard_sync_period: Annotated[
        Seconds, Meta(description="upper bound between two deals of nodes to shards", gt=0)
    ] = Seconds(60.0)
    enable_node_event_trigger: Annotated[
        bool, Meta(description="deal nodes out when they or the CPU requested of them change")
    ] = True
    sharding_configmap: Annotated[
        str, Meta(description="ConfigMap with the shards, key sharding.yaml")
    ] = "volcano-sharding-configmap"
    sharding_configmap_namespace: Annotated[
        str, Meta(description="its namespace; empty: our own")
    ] = ""
    topology_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap, of our own namespace or as namespace/name, that says how "
            "HyperNodes are discovered; it may name Secrets of its own namespace"
        ),
    ] = "volcano-controller-configmap"
    topology_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="hosts, with or without port, that the ConfigMap may have asked for the "
            "network, with credentials of a Secret; * for any"
        ),
    ] = ()
