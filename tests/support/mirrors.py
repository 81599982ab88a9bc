"""A mirror of visibility filled with facts, as the cache would say them, and Jobs to ask about."""

from typing import Any, Self

import msgspec

from services.scheduler.adapters.expressions import waiting_evaluator
from services.visibility.queries.cluster_mirror import ClusterMirror
from shared.contracts.messages import Fact, Op
from tests.support import facts

Json = dict[str, Any]


class World:
    """A mirror and the words to fill it; all namespaced objects are in `ns`."""

    def __init__(self) -> None:
        self.mirror = ClusterMirror(evaluator=waiting_evaluator())
        self.objects: dict[tuple[str, str], Json] = {}

    def put(self, kind: str, document: Json) -> Self:
        """Fold an object."""
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        body = msgspec.Raw(msgspec.json.encode(document))
        self.objects[kind, key] = document
        troubles = self.mirror.fold([Fact(kind=kind, key=key, uid=meta["uid"], rv="1", body=body)])
        assert troubles == [], troubles
        return self

    def delete(self, kind: str, key: str) -> Self:
        """Fold the end of an object."""
        uid = self.objects.pop((kind, key))["metadata"]["uid"]
        self.mirror.fold([Fact(kind=kind, key=key, uid=uid, rv="2", op=Op.DELETE)])
        return self

    def node(self, name: str, *, cpu: str = "1", **resources: str) -> Self:
        """Add a node."""
        return self.put("nodes", facts.stored_node(name, cpu=cpu, **resources))

    def queue(self, name: str, **spec: Any) -> Self:
        """Add an open queue; `spec` as in the API."""
        return self.put("queues", facts.stored_queue(name, **spec))

    def namespace(self, name: str, *, queue: str) -> Self:
        """Add a namespace whose groups go to a queue."""
        annotations = {"scheduling.volcano.sh/queue-name": queue}
        return self.put(
            "namespaces", {"metadata": {"name": name, "uid": name, "annotations": annotations}}
        )

    def priority(self, name: str, value: int) -> Self:
        """Add a priority class."""
        return self.put(
            "priorityclasses", {"metadata": {"name": name, "uid": name}, "value": value}
        )

    def group(self, name: str, *, phase: str, owner: str = "", **spec: Any) -> Self:
        """Add a PodGroup; `spec` as in the API."""
        meta: Json = {"creationTimestamp": facts.CREATED}
        if owner:
            meta["ownerReferences"] = [facts.job_owner(owner, f"uid-{owner}")]
        uid = f"uid-{name}"
        made = facts.stored_group(f"ns/{name}", uid=uid, phase=phase, metadata=meta, **spec)
        return self.put("podgroups", made)

    def pod(self, name: str, group: str, *, cpu: str, node: str = "", **more: Any) -> Self:
        """Add a pod of a group: running where a node is named, else pending."""
        uid = f"uid-{name}"
        made = facts.stored_pod(f"ns/{name}", uid=uid, group=group, cpu=cpu, node=node, **more)
        return self.put("pods", made)

    def gang(self, name: str, *, pods: int, cpu: str, queue: str = "default") -> Self:
        """Add an admitted group and its pods, which wait for nodes."""
        self.group(name, phase="Inqueue", minMember=pods, queue=queue)
        for number in range(pods):
            self.pod(f"{name}-{number}", name, cpu=cpu)
        return self

    def waiting(self, name: str, *, pods: int, cpu: str, queue: str = "default") -> Self:
        """Add a group that is not admitted; `cpu` is its minimum."""
        return self.group(
            name, phase="Pending", minMember=pods, minResources={"cpu": cpu}, queue=queue
        )


def running(
    world: World,
    name: str,
    *,
    cpu: str,
    node: str,
    priority: str = "",
    preemptable: bool = False,
    owner: str = "",
    queue: str = "default",
) -> World:
    """Add a group with one pod that runs."""
    spec: Json = {"minResources": {"cpu": cpu}}
    if priority:
        spec["priorityClassName"] = priority
    world.group(name, phase="Running", owner=owner, queue=queue, **spec)
    annotations = {"volcano.sh/preemptable": "true"} if preemptable else {}
    return world.pod(f"{name}-0", name, cpu=cpu, node=node, annotations=annotations)


def job_of_tasks(
    name: str,
    *,
    queue: str = "",
    priority: str = "",
    scheduler: str = "",
    also: dict[str, str] | None = None,
    **tasks: tuple[int, str],
) -> Json:
    """Return a Job; tasks are name → (pods, CPU of each)."""
    spec: Json = {
        "tasks": [
            {
                "name": task,
                "replicas": pods,
                "template": {"spec": {"containers": [_container(cpu, also or {})]}},
            }
            for task, (pods, cpu) in tasks.items()
        ]
    }
    for field, value in (
        ("queue", queue),
        ("priorityClassName", priority),
        ("schedulerName", scheduler),
    ):
        if value:
            spec[field] = value
    return {"metadata": {"name": name}, "spec": spec}


def _container(cpu: str, also: dict[str, str]) -> Json:
    requests = {"cpu": cpu, **also}
    return {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": requests, "limits": also},
    }
