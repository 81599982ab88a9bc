"""Objects for tests: as users write them, as they are stored, and as the cache publishes them.

`tests.support.structs` makes of stored objects what the services read. What the scheduler decides
is tested on `pumice.testing.Cluster`, which has its own words.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from shared.contracts.messages import Bind, BindGang, Fact, Op
from tests.support.api import Api

Json = dict[str, Any]
CREATED = "2026-01-01T00:00:00Z"


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


def bare_task(
    name: str, replicas: int, requests: Mapping[str, str], *, limits=None, template=None, **extra
) -> Json:
    """Return one task whose pods have a container and what `template` says, and nothing else."""
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    container = {"name": "main", "image": "busybox", "resources": resources}
    made = template or {}
    spec = {**made.get("spec", {}), "containers": [container]}
    return {"name": name, "replicas": replicas, "template": {**made, "spec": spec}, **extra}


def task(name: str, replicas: int, *, cpu="1", memory="1Gi", annotations=None, **extra) -> Json:
    """Return one task of a job; `extra` goes into the task (policies, minAvailable, …)."""
    spec = {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"annotations": annotations or {}}, "spec": spec}
    return bare_task(name, replicas, {"cpu": cpu, "memory": memory}, template=template, **extra)


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


# --- stored objects ------------------------------------------------------------------------------


def key_of(document: Mapping[str, Any]) -> str:
    """Return `namespace/name`, or the name of an object without a namespace."""
    meta = document["metadata"]
    return "/".join(filter(None, (meta.get("namespace"), meta["name"])))


def fact(kind: str, document: Mapping[str, Any], *, rv: str = "") -> Fact:
    """Return the fact that an object is so; key, uid and version are those of its metadata."""
    meta = document["metadata"]
    return Fact(
        kind=kind,
        key=key_of(document),
        uid=meta["uid"],
        rv=rv or meta.get("resourceVersion", "1"),
        body=msgspec.Raw(msgspec.json.encode(document)),
    )


def gone(kind: str, key: str, uid: str = "", *, rv: str = "2") -> Fact:
    """Return the fact that an object is no more."""
    return Fact(kind=kind, key=key, uid=uid or f"uid-{key}", rv=rv, op=Op.DELETE)


def named(key: str, *, uid: str = "", **more: Any) -> dict[str, Any]:
    """Return the metadata of an object; its uid is `uid-` and its key unless given."""
    namespace, _, name = key.rpartition("/")
    place = {"namespace": namespace} if namespace else {}
    return {**place, "name": name, "uid": uid or f"uid-{key}", **more}


def job_owner(name: str, uid: str) -> dict[str, Any]:
    """Return the reference of a Job's pod or PodGroup to its Job."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": uid,
        "controller": True,
    }


def stored_pod(
    key: str,
    *,
    uid: str = "",
    cpu: str = "1",
    node: str = "",
    phase: str = "",
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a stored pod: running where a node is named, else pending; `more` as for a new one."""
    meta = {**named(key, uid=uid), "creationTimestamp": CREATED, **(metadata or {})}
    body = pod(meta["name"], cpu=cpu, metadata=meta, **{"nodeName": node, **more})
    return {**body, "status": {"phase": phase or ("Running" if node else "Pending")}}


def stored_group(
    key: str,
    *,
    phase: str | None,
    uid: str = "",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a stored PodGroup; one that is new has no phase."""
    meta = named(key, uid=uid, **(metadata or {}))
    body = group(metadata=meta, **{"minMember": 1, "queue": "default", **spec})
    return {**body, "status": {**({"phase": phase} if phase else {}), **(status or {})}}


def stored_queue(
    name: str, *, uid: str = "", state: str | None = "Open", **more: Any
) -> dict[str, Any]:
    """Return a stored Queue."""
    body = queue(name, **more)
    body["metadata"]["uid"] = uid or f"uid-{name}"
    return {**body, "status": {"state": state} if state else {}}


def stored_node(name: str, *, cpu: str, uid: str = "", **resources: str) -> dict[str, Any]:
    """Return a node with these resources, and memory and pods for whatever runs there."""
    meta = named(name, uid=uid, labels={"kubernetes.io/hostname": name})
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "500", **resources}
    return {"metadata": meta, "status": {"allocatable": allocatable}}


def bind_of(*pods: Bind, id: str = "i", key: str = "ns/g") -> BindGang:  # noqa: A002 - as it says
    """Return the command to bind the pods of a gang."""
    return BindGang(id=id, cycle=1, job=key, job_uid=key.rpartition("/")[2], binds=pods)


class Objects:
    """Stored objects by kind and key; each of `folds` takes the facts about their changes.

    All namespaced objects are in `ns`.
    """

    def __init__(self, *folds: Callable[[Sequence[Fact]], Sequence[object]]) -> None:
        self._folds = folds
        self.objects: dict[tuple[str, str], Json] = {}

    def put(self, kind: str, document: Json) -> Self:
        """Create or replace an object."""
        self.objects[kind, key_of(document)] = document
        return self._publish(fact(kind, document))

    def delete(self, kind: str, key: str) -> Self:
        """Delete an object."""
        uid = self.objects.pop((kind, key))["metadata"]["uid"]
        return self._publish(gone(kind, key, uid))

    def _publish(self, change: Fact) -> Self:
        for fold in self._folds:
            failures = fold([change])
            assert not failures, failures
        return self

    def edit(self, kind: str, key: str, change: Callable[[Json], object]) -> Self:
        """Change a copy of an object, and put it in the place of the object."""
        document = copy.deepcopy(self.objects[kind, key])
        change(document)
        return self.put(kind, document)

    def node(self, name: str, *, cpu: str = "1", **resources: str) -> Self:
        """Add a node."""
        return self.put("nodes", stored_node(name, cpu=cpu, **resources))

    def queue(self, name: str, **spec: Any) -> Self:
        """Add an open queue; `spec` as in the API."""
        return self.put("queues", stored_queue(name, **spec))

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
        meta: Json = {"creationTimestamp": CREATED}
        if owner:
            meta["ownerReferences"] = [job_owner(owner, f"uid-{owner}")]
        uid = f"uid-{name}"
        made = stored_group(f"ns/{name}", uid=uid, phase=phase, metadata=meta, **spec)
        return self.put("podgroups", made)

    def pod(self, name: str, group: str, *, cpu: str, node: str = "", **more: Any) -> Self:
        """Add a pod of a group: running where a node is named, else pending."""
        uid = f"uid-{name}"
        made = stored_pod(f"ns/{name}", uid=uid, group=group, cpu=cpu, node=node, **more)
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
