"""One valid object of every kind that the services read, as hostile ones begin."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

Json = dict[str, Any]
BATCH, FLOW = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"


class ValidObject(NamedTuple):
    """How a valid object of a kind looks."""

    version: str
    kind: str
    content: Json
    """Fields of the object besides its metadata."""
    cluster: bool = False
    """Whether only an administrator writes such objects."""
    subresource: bool = False
    """Whether its status is written by itself."""


_PARTS = """
amounts: &amounts {cpu: "4", memory: 8Gi, pods: "10"}
container: &container
  {name: main, image: busybox, resources: {requests: {cpu: 100m, memory: 16Mi}}}
task: &task
  name: w
  replicas: 1
  template:
    metadata: {annotations: {pumice.dev/run-seconds: "1.0"}}
    spec: {restartPolicy: Never, containers: [*container]}
job: &job
  schedulerName: volcano
  minAvailable: 1
  queue: default
  plugins: {svc: [], env: []}
  tasks: [*task, {<<: *task, name: v, dependsOn: {name: [w]}}]
workload: &workload
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {restartPolicy: Always, containers: [*container], schedulerName: volcano}
"""
_OF_TENANTS = """
batch.volcano.sh/v1alpha1 Job jobs/status: {spec: *job}
scheduling.volcano.sh/v1beta1 PodGroup podgroups:
  {spec: {minMember: 1, queue: default}, status: {phase: Pending}}
v1 Pod pods/status:
  spec: {restartPolicy: Never, containers: [*container], schedulerName: volcano}
bus.volcano.sh/v1alpha1 Command commands:
  {action: AbortJob, target: {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: x}}
batch.volcano.sh/v1alpha1 CronJob cronjobs/status:
  spec: {schedule: "* * * * *", jobTemplate: {spec: *job}}
flow.volcano.sh/v1alpha1 JobTemplate jobtemplates/status: {spec: *job}
flow.volcano.sh/v1alpha1 JobFlow jobflows/status:
  spec: {flows: [{name: a}, {name: b, dependsOn: {targets: [a]}}]}
v1 PersistentVolumeClaim persistentvolumeclaims/status:
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
policy/v1 PodDisruptionBudget poddisruptionbudgets/status:
  spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}
apps/v1 ReplicaSet replicasets: {spec: {replicas: 1, <<: *workload}}
apps/v1 StatefulSet statefulsets: {spec: {replicas: 1, serviceName: s, <<: *workload}}
apps/v1 DaemonSet daemonsets: {spec: *workload}
v1 ResourceQuota resourcequotas/status: {spec: {hard: {requests.cpu: "1000"}}}
"""
_OF_CLUSTER = """
scheduling.volcano.sh/v1beta1 Queue queues/status:
  spec: {weight: 1, parent: root, reclaimable: true}
topology.volcano.sh/v1alpha1 HyperNode hypernodes/status:
  spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: node-0}}}]}
v1 Node nodes:
  {spec: {unschedulable: true}, status: {allocatable: *amounts, capacity: *amounts}}
scheduling.k8s.io/v1 PriorityClass priorityclasses: {value: 10}
v1 PersistentVolume persistentvolumes:
  spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}
storage.k8s.io/v1 StorageClass storageclasses: {provisioner: none}
storage.k8s.io/v1 CSINode csinodes:
  spec: {drivers: [{name: d, nodeID: x, allocatable: {count: 3}}]}
nodeinfo.volcano.sh/v1alpha1 Numatopology numatopologies: {spec: {policies: {}}}
"""


def _read(text: str, *, cluster: bool) -> dict[str, ValidObject]:
    """Return plural → object; `/status` behind a plural says that the status is a subresource."""
    parts = yaml.safe_load(_PARTS)
    found = {}
    for head, content in yaml.safe_load(_PARTS + text).items():
        if head not in parts:
            version, kind, name = head.split()
            plural, _, status = name.partition("/")
            found[plural] = ValidObject(version, kind, content, cluster, bool(status))
    return found


VALID_OBJECTS: Final[Mapping[str, ValidObject]] = {
    **_read(_OF_TENANTS, cluster=False),
    **_read(_OF_CLUSTER, cluster=True),
}
TENANT: Final = tuple(plural for plural, valid in VALID_OBJECTS.items() if not valid.cluster)
