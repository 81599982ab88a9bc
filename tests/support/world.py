"""Objects for tests as plain dicts of a user's YAML: nodes that KWOK keeps, pods, groups, jobs.

`tests.support.facts` makes of them what the API server stores, `tests.support.structs` what the
services read of that. What the scheduler decides is tested on `pumice.testing.Cluster`, which has
its own words.
"""

from tests.support.api import Api


def node(name: str, cpu: str = "8", memory: str = "32Gi", pods: str = "110") -> dict:
    """Return a fake node that KWOK keeps ready."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "node.alpha.kubernetes.io/ttl": "0",
            },
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
        "status": {"allocatable": amounts, "capacity": amounts, "phase": "Running"},
    }


def pod(
    name: str = "p",
    *,
    namespace: str = "",
    group: str = "",
    cpu: str = "",
    memory: str = "",
    scheduler: str = "volcano",
    annotations: dict | None = None,
    metadata: dict | None = None,
    **spec,
) -> dict:
    """Return a pod of one container; `spec` goes into its spec, `metadata` into its metadata."""
    container: dict = {"name": "main", "image": "busybox"}
    if asked := {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}:
        container["resources"] = {"requests": asked}
    notes = {**({"scheduling.k8s.io/group-name": group} if group else {}), **(annotations or {})}
    place = {"namespace": namespace} if namespace else {}
    by = {"schedulerName": scheduler} if scheduler else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            **place,
            **({"annotations": notes} if notes else {}),
            **(metadata or {}),
        },
        "spec": {**by, "containers": [container], **spec},
    }


def group(name: str = "g", *, metadata: dict | None = None, **spec) -> dict:
    """Return a PodGroup."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, **(metadata or {})},
        "spec": spec,
    }


def queue(name: str, *, annotations: dict | None = None, **spec) -> dict:
    """Return a Queue."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
        "spec": spec,
    }


def task(name: str, replicas: int, *, cpu="1", memory="1Gi", annotations=None, **extra) -> dict:
    """Return one task of a job; `extra` goes into the task (policies, minAvailable, …)."""
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            "metadata": {"annotations": annotations or {}},
            "spec": {
                "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "resources": {"requests": {"cpu": cpu, "memory": memory}},
                    }
                ],
            },
        },
        **extra,
    }


def job(name: str, *tasks: dict, min_available: int | None = None, **extra) -> dict:
    """Return a Job; `extra` goes into its spec (policies, plugins, queue, …)."""
    total = sum(t["replicas"] for t in tasks)
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": total if min_available is None else min_available,
            "tasks": list(tasks),
            **extra,
        },
    }


async def add_nodes(api: Api, count: int, *, prefix: str = "node", **kwargs) -> list[str]:
    """Create nodes `<prefix>-0…`; return their names."""
    names = [f"{prefix}-{i}" for i in range(count)]
    for name in names:
        await api.create("nodes", node(name, **kwargs))
    return names
