"""Facts as the cache publishes them, and objects as the API server stores them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.contracts.messages import Bind, BindGang, Fact, Op
from tests.support import world

CREATED = "2026-01-01T00:00:00Z"


def fact(kind: str, document: Mapping[str, Any], *, rv: str = "") -> Fact:
    """Return the fact that an object is so; key, uid and version are those of its metadata."""
    meta = document["metadata"]
    return Fact(
        kind=kind,
        key="/".join(filter(None, (meta.get("namespace"), meta["name"]))),
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
    body = world.pod(meta["name"], cpu=cpu, metadata=meta, **{"nodeName": node, **more})
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
    body = world.group(metadata=meta, **{"minMember": 1, "queue": "default", **spec})
    return {**body, "status": {**({"phase": phase} if phase else {}), **(status or {})}}


def stored_queue(
    name: str, *, uid: str = "", state: str | None = "Open", **more: Any
) -> dict[str, Any]:
    """Return a stored Queue."""
    body = world.queue(name, **more)
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
