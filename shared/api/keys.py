"""Annotations and labels that Volcano's users and tools know (KY1 to KY4, J31, J32, P02).

They are a contract with the outside, so each has one constant and no code spells one out.
"""

from typing import Final

# --- pods: membership and place in a job (J31, J32, KY1) ---
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup."""
GROUP_NAME_VOLCANO: Final = "scheduling.volcano.sh/group-name"
"""The newer spelling; read by vGPU code only (KY1 ⚠)."""
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRY_COUNT: Final = "volcano.sh/job-retry-count"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
QUEUE_NAME: Final = "volcano.sh/queue-name"
QUEUE_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"
"""The gate that a pod waits behind until its queue has admitted it, and the annotation for it."""
PARTITION_ID: Final = "volcano.sh/partition-id"
JOB_FORWARDING: Final = "volcano.sh/job-forwarding"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
"""Annotation of a pod that the controller itself is about to delete (J06, J21)."""

# --- pods and groups: how they may be scheduled and evicted (KY1, KY2) ---
PREEMPTABLE: Final = "volcano.sh/preemptable"
COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
REVOCABLE_ZONE: Final = "volcano.sh/revocable-zone"
JDB_MIN_AVAILABLE: Final = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE: Final = "volcano.sh/jdb-max-unavailable"
NUMA_TOPOLOGY_POLICY: Final = "volcano.sh/numa-topology-policy"
TASK_PRIORITY: Final = "volcano.sh/task-priority"
SLA_WAITING_TIME: Final = "volcano.sh/sla-waiting-time"
TASK_TOPOLOGY_AFFINITY: Final = "volcano.sh/task-topology-affinity"
TASK_TOPOLOGY_ANTI_AFFINITY: Final = "volcano.sh/task-topology-anti-affinity"
TASK_TOPOLOGY_TASK_ORDER: Final = "volcano.sh/task-topology-task-order"
RESOURCE_STRATEGY_TYPE: Final = "volcano.sh/resource-strategy-scoring-type"
RESOURCE_STRATEGY_WEIGHT: Final = "volcano.sh/resource-strategy-weight"
RESOURCE_GROUP: Final = "volcano.sh/resource-group"
"""Annotation of a pod: the resource group of admission that it belongs to (W30)."""

# --- workloads and namespaces that lead to a PodGroup (P02, P03, W40) ---
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
SCHEDULING_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
NETWORK_TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
NETWORK_TOPOLOGY_HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier"
INHERITED_PREFIX: Final = "volcano.sh/"
"""Annotations of an owner that a PodGroup inherits begin so (P03)."""

# --- what Volcano does not know ---
USER: Final = "pumice.dev/user"
"""Annotation of a Job, CronJob, JobFlow, PodGroup or pod: who created it; written by admission."""

EXPECTED_DURATION: Final = "pumice.dev/expected-duration"
"""Annotation of a Job, PodGroup or pod: how long it will run, in seconds or as Go writes it."""

MAX_RUNTIME: Final = "pumice.dev/max-runtime"
"""Annotation of a Job: how long it may run; of a queue: the largest such value of its jobs."""
DEFAULT_MAX_RUNTIME: Final = "pumice.dev/default-max-runtime"
"""Annotation of a queue: how long a job may run that does not say so."""
DEADLINE_ACTION: Final = "pumice.dev/deadline-action"
"""Annotation of a Job: the action on the event JobDeadlineExceeded."""

WORKLOAD_GROUP: Final = "pumice.dev/workload-group"
"""Annotation of a pod whose PodGroup is that of a workload above its controller."""

QUEUE_ORDER: Final = "pumice.dev/order"
"""Annotation of a queue: how jobs may pass those before them (plugin `reservation`)."""

USER_SHARES: Final = "pumice.dev/user-shares"
"""Annotation of a queue: shares of its users, `ann=2,bob=1` (plugin `fairshare`)."""
AUTOSCALING: Final = "pumice.dev/autoscaling"
"""Annotation of a queue, Job or PodGroup: how autoscalers learn of it (plugin `autoscaling`)."""

EVICTION_COST: Final = "pumice.dev/eviction-cost"
"""Annotation of a pod, Job or PodGroup: whole number by which the cheapest victims go first."""
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a pod: the same for controllers of Kubernetes that delete surplus pods."""
CHECKPOINT_GRACE: Final = "pumice.dev/checkpoint-grace"
"""Annotation of a pod: how long it has from the notice of an eviction to its deletion."""
CHECKPOINT_SIGNAL: Final = "pumice.dev/checkpoint-signal"
"""Annotation of a pod: port and path that are called at the notice, `http://:8080/checkpoint`."""
EVICTION_NOTICE: Final = "pumice.dev/eviction-notice"
"""Annotation of a pod that will be evicted: when that was announced, and the intent."""
PREEMPT_MIN_RUNTIME: Final = "pumice.dev/preempt-min-runtime"
RECLAIM_MIN_RUNTIME: Final = "pumice.dev/reclaim-min-runtime"
"""Annotations of a queue: how long its jobs run before pods of their gangs may be preempted by
others of the queue, or reclaimed by other queues (plugin `minruntime`)."""
DEFRAG: Final = "pumice.dev/defrag"
"""Annotation of the queue `root`: until when which pods may be moved (action `defrag`)."""

# --- queues (KY3) ---
HIERARCHY: Final = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
NODEGROUP_RESOURCE_LIMITS: Final = "volcano.sh/nodegroup-resource-limits"
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"

# --- nodes (KY4) ---
OVERSUBSCRIPTION_CPU: Final = "volcano.sh/oversubscription-cpu"
OVERSUBSCRIPTION_MEMORY: Final = "volcano.sh/oversubscription-memory"
NODEGROUP_NAME: Final = "volcano.sh/nodegroup-name"

# --- jobs that others make (X01, F01) ---
CRON_SCHEDULED: Final = "volcano.sh/cronjob-scheduled-timestamp"
"""Annotation of a job of a CronJob: when it was due (RFC 3339)."""
CREATED_BY_TEMPLATE: Final = "volcano.sh/createdByJobTemplate"
CREATED_BY_FLOW: Final = "volcano.sh/createdByJobFlow"
"""Labels and annotations of a job of a JobFlow: `namespace.name` of what it was made from."""

# --- HyperNodes that were discovered (H02) ---
TOPOLOGY_SOURCE: Final = "volcano.sh/network-topology-source"
"""Label of a HyperNode: which source found it."""

# --- marks in a job's status.controlledResources (J30, §2.2) ---
PLUGIN_MARK: Final = "plugin-"
VOLUME_MARK: Final = "volume-pvc-"
SUCCEEDED_MARK: Final = "succeeded-"
"""Before a task's name: which of its pods have succeeded, for as long as the job is under way."""

# --- well-known keys of Kubernetes that scheduling reads ---
LEADERSHIP_TERM: Final = "pumice.dev/leadership-term"
"""Annotation of a NodeShard: the Lease, and the term of it in which its scheduler uses nodes."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a static pod, which the kubelet made."""
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
