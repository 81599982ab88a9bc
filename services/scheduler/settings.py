"""Settings of the scheduler, under Volcano's flag names where it has one (K10, K11)."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.contracts.streams import PARTITIONS
from shared.runtime.common import FEATURE_GATES, InheritedSettings, inert
from shared.runtime.values import Seconds

_TMP = "/tmp"  # noqa: S108 - Volcano's default; files get names of their own and mode 0600


class SchedulerSettings(InheritedSettings, frozen=True, kw_only=True):
    """The flags and variables of the scheduler."""

    scheduler_name: Annotated[
        tuple[str, ...], Meta(description="spec.schedulerName values that are served")
    ] = ("volcano",)
    feature_gates: Annotated[str, Meta(description=FEATURE_GATES)] = ""
    gate_removal_worker_num: Annotated[int, inert("the binder lifts gates as it binds")] = 5
    scheduler_conf: Annotated[
        str,
        Meta(description="configuration file in Volcano's format; reread when replaced"),
    ] = ""
    disable_default_scheduler_config: Annotated[
        bool,
        Meta(description="do not start without a valid configuration file"),
    ] = False
    schedule_period: Annotated[
        Seconds, Meta(description="maximum time between two cycles; a change starts one at once")
    ] = Seconds(1.0)
    min_period: Annotated[
        Seconds, Meta(description="minimum time between the starts of two cycles", ge=0)
    ] = Seconds(0.02)
    debounce: Annotated[
        Seconds, Meta(description="how long to collect changes before a cycle starts", ge=0)
    ] = Seconds(0.005)
    status_settle: Annotated[
        Seconds,
        Meta(
            description="how long a condition or counter must be stable before it is written; a "
            "new phase is written at once",
            ge=0,
        ),
    ] = Seconds(1.0)
    decision_budget: Annotated[
        Seconds,
        Meta(
            description="CPU time for one decision; a job that uses all of it is quarantined, for "
            "a minute at first; 0: no limit",
            ge=0,
        ),
    ] = Seconds(5.0)
    decision_limit: Annotated[
        Seconds,
        Meta(
            description="time for one decision after which /livez fails; after 1.5 times as long "
            "the process ends; 0: never",
            ge=0,
        ),
    ] = Seconds(60.0)
    watchdog_dir: Annotated[
        str,
        Meta(
            description="directory that survives the process, for the current job and the "
            "quarantine; empty: none, the bus stores the quarantine"
        ),
    ] = ""
    seed: Annotated[
        int, Meta(description="selects among nodes of equal score; 0: the first in order")
    ] = 0
    partitions: Annotated[
        int, Meta(description="partitions of COMMAND and DESIRED", ge=1, le=PARTITIONS)
    ] = PARTITIONS
    gang_message: Annotated[
        int,
        Meta(description="maximum number of binds in one message; a larger gang is split", ge=1),
    ] = 500
    node_selector: Annotated[
        tuple[str, ...],
        Meta(description="labels name:value; only nodes with one of them are used"),
    ] = ()
    ignored_provisioners: Annotated[
        tuple[str, ...], inert("volumes are no part of what a pod asks for; limits are per node")
    ] = ()
    csi_storage: Annotated[
        bool, Meta(description="consider the capacity for new volumes that CSI drivers publish")
    ] = True
    mindcluster_npus: Annotated[
        bool, Meta(description="read MindCluster's data about NPUs; set the cache's flag first")
    ] = False
    single_pods: Annotated[
        bool,
        Meta(
            description="place single pods, without PodGroup and queue, beside a scheduler for "
            "gangs on the same bus"
        ),
    ] = False
    scheduler_sharding_mode: Annotated[
        Literal["none", "hard", "soft"],
        Meta(description="whether this scheduler is restricted to the nodes of a NodeShard"),
    ] = "none"
    scheduler_sharding_name: Annotated[
        str, Meta(description="name of this scheduler's NodeShard")
    ] = "volcano"
    cache_dumper: Annotated[
        bool, Meta(description="write the next cycle to a file on SIGUSR1; see docs/replay.md")
    ] = True
    cache_dump_dir: Annotated[str, Meta(description="directory of these files")] = _TMP
    cache_dump_limit: Annotated[
        int, Meta(description="maximum size of such a file in MiB, uncompressed", ge=1)
    ] = 1024
    default_queue: Annotated[str, inert("the API server fills in the queue")] = "default"
    priority_class: Annotated[bool, inert("priority classes always count")] = True
    resync_period: Annotated[Seconds, inert("the cache compares by itself")] = Seconds(0.0)
    resource_sync_timeout: Annotated[Seconds, inert("readiness says what is missing")] = Seconds(
        60.0
    )
    kube_api_qps: Annotated[float, inert("the scheduler never talks to the API server")] = 2000.0
    kube_api_burst: Annotated[int, inert("the scheduler never talks to the API server")] = 2000
    minimum_feasible_nodes: Annotated[int, inert("all nodes are looked at")] = 100
    minimum_percentage_nodes_to_find: Annotated[int, inert("all nodes are looked at")] = 5
    percentage_nodes_to_find: Annotated[int, inert("all nodes are looked at")] = 0
    scheduler_worker_count: Annotated[int, inert("one thread decides")] = 1
    node_worker_threads: Annotated[int, inert("facts are folded in one thread")] = 20
    enable_pprof: Annotated[bool, inert("a Python process has other profilers")] = False
