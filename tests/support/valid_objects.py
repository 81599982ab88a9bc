"""One valid object of every kind that the services read, as hostile ones begin."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
BATCH, SCHEDULING = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
FLOW, TOPOLOGY = "flow.volcano.sh/v1alpha1", "topology.volcano.sh/v1alpha1"

_TASK: Final[Json] = {
    "name": "w",
    "replicas": 1,
    "template": {
        "metadata": {"annotations": {"pumice.dev/run-seconds": "1.0"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                }
            ],
        },
    },
}
_JOB: Final[Json] = {
    "schedulerName": "volcano",
    "minAvailable": 1,
    "queue": "default",
    "plugins": {"svc": [], "env": []},
    "tasks": [_TASK, {**_TASK, "name": "v", "dependsOn": {"name": ["w"]}}],
}
_POD: Final[Json] = {**_TASK["template"]["spec"], "schedulerName": "volcano"}
_WORKLOAD: Final[Json] = {
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**_POD, "restartPolicy": "Always"}},
}
_AMOUNTS: Final[Json] = {"cpu": "4", "memory": "8Gi", "pods": "10"}


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


VALID_OBJECTS: Final[Mapping[str, ValidObject]] = {
    "jobs": ValidObject(BATCH, "Job", {"spec": _JOB}, subresource=True),
    "podgroups": ValidObject(
        SCHEDULING,
        "PodGroup",
        {"spec": {"minMember": 1, "queue": "default"}, "status": {"phase": "Pending"}},
    ),
    "pods": ValidObject("v1", "Pod", {"spec": _POD}, subresource=True),
    "commands": ValidObject(
        "bus.volcano.sh/v1alpha1",
        "Command",
        {"action": "AbortJob", "target": {"apiVersion": BATCH, "kind": "Job", "name": "x"}},
    ),
    "cronjobs": ValidObject(
        BATCH,
        "CronJob",
        {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}},
        subresource=True,
    ),
    "jobtemplates": ValidObject(FLOW, "JobTemplate", {"spec": _JOB}, subresource=True),
    "jobflows": ValidObject(
        FLOW,
        "JobFlow",
        {"spec": {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]}},
        subresource=True,
    ),
    "persistentvolumeclaims": ValidObject(
        "v1",
        "PersistentVolumeClaim",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        subresource=True,
    ),
    "poddisruptionbudgets": ValidObject(
        "policy/v1",
        "PodDisruptionBudget",
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
        subresource=True,
    ),
    "replicasets": ValidObject("apps/v1", "ReplicaSet", {"spec": {"replicas": 1, **_WORKLOAD}}),
    "statefulsets": ValidObject(
        "apps/v1", "StatefulSet", {"spec": {"replicas": 1, "serviceName": "s", **_WORKLOAD}}
    ),
    "daemonsets": ValidObject("apps/v1", "DaemonSet", {"spec": _WORKLOAD}),
    "resourcequotas": ValidObject(
        "v1", "ResourceQuota", {"spec": {"hard": {"requests.cpu": "1000"}}}, subresource=True
    ),
    "queues": ValidObject(
        SCHEDULING,
        "Queue",
        {"spec": {"weight": 1, "parent": "root", "reclaimable": True}},
        cluster=True,
        subresource=True,
    ),
    "hypernodes": ValidObject(
        TOPOLOGY,
        "HyperNode",
        {
            "spec": {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"exactMatch": {"name": "node-0"}}}],
            }
        },
        cluster=True,
        subresource=True,
    ),
    "nodes": ValidObject(
        "v1",
        "Node",
        {
            "spec": {"unschedulable": True},
            "status": {"allocatable": _AMOUNTS, "capacity": _AMOUNTS},
        },
        cluster=True,
    ),
    "priorityclasses": ValidObject(
        "scheduling.k8s.io/v1", "PriorityClass", {"value": 10}, cluster=True
    ),
    "persistentvolumes": ValidObject(
        "v1",
        "PersistentVolume",
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/x"},
            }
        },
        cluster=True,
    ),
    "storageclasses": ValidObject(
        "storage.k8s.io/v1", "StorageClass", {"provisioner": "none"}, cluster=True
    ),
    "csinodes": ValidObject(
        "storage.k8s.io/v1",
        "CSINode",
        {"spec": {"drivers": [{"name": "d", "nodeID": "x", "allocatable": {"count": 3}}]}},
        cluster=True,
    ),
    "numatopologies": ValidObject(
        "nodeinfo.volcano.sh/v1alpha1", "Numatopology", {"spec": {"policies": {}}}, cluster=True
    ),
}
TENANT: Final = tuple(plural for plural, valid in VALID_OBJECTS.items() if not valid.cluster)
