"""Settings of the controller; flags have Volcano's names (M04)."""

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
            description="jobs reconciled in parallel; each job's requests queue together, so that"
            " gangs become complete one after another",
            ge=1,
        ),
    ] = 32
    worker_threads_for_podgroup: Annotated[
        int, Meta(description="bare pods handled in parallel", ge=1)
    ] = 5
    worker_threads_for_gc: Annotated[
        int, Meta(description="expired jobs deleted in parallel", ge=1)
    ] = 1
    max_requeue_num: Annotated[
        int,
        Meta(description="consecutive refusals after which a job is terminated; -1: never", ge=-1),
    ] = 15
    inherit_owner_annotations: Annotated[
        bool,
        Meta(description="PodGroups of bare pods inherit volcano.sh/ annotations of the owner"),
    ] = True
    workload_groups_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap with rows of workloads whose pods form one PodGroup, key "
            "rows.yaml, in Pumice's namespace or namespace/name; empty: a PodGroup per controller"
        ),
    ] = ""
    state_key: StateKey = Secret()
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    requests_most: Annotated[
        int, Meta(description="maximum number of parallel API requests", ge=1)
    ] = 32
    request_timeout: ApiTimeout = Seconds(10.0)
    jobs_most: Annotated[int, Meta(description="maximum number of keys in a work queue", ge=1)] = (
        200_000
    )
    worker_threads_for_queue: Annotated[int, inert("one worker reconciles all queues")] = 5
    worker_threads_for_cronjob: Annotated[
        int,
        Meta(description="CronJobs reconciled in parallel", ge=1),
    ] = 16
    namespace: Annotated[
        str,
        Meta(description="Pumice's own namespace; empty: that of the pod, else pumice-system"),
    ] = ""
    queue_commands_from: Annotated[
        tuple[str, ...],
        Meta(
            description="other namespaces whose Commands to queues are obeyed, * for all; "
            "otherwise only those checked by the policy pumice-queue-commands"
        ),
    ] = ()
    scheduler_configs: Annotated[
        tuple[str, ...],
        Meta(
            description="shards without a ConfigMap, each "
            "name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes"
        ),
    ] = ("volcano:volcano:0.0:0.6:false:2:100", "agent-scheduler:agent:0.7:1.0:true:2:100")
    shard_sync_period: Annotated[
        Seconds, Meta(description="maximum time between two distributions of nodes", gt=0)
    ] = Seconds(60.0)
    enable_node_event_trigger: Annotated[
        bool, Meta(description="distribute nodes when they or their requested CPU change")
    ] = True
    sharding_configmap: Annotated[
        str, Meta(description="ConfigMap with the shards, key sharding.yaml")
    ] = "volcano-sharding-configmap"
    sharding_configmap_namespace: Annotated[
        str, Meta(description="its namespace; empty: Pumice's")
    ] = ""
    topology_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap for the discovery of HyperNodes, in Pumice's namespace or "
            "namespace/name; it may name Secrets of its namespace"
        ),
    ] = "volcano-controller-configmap"
    topology_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="hosts, with or without port, that the ConfigMap may name as sources; * "
            "for any"
        ),
    ] = ()
