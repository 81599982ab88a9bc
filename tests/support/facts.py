"""Facts as the cache publishes them, and objects that many tests send as such."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.api import keys
from shared.contracts.messages import Bind, BindGang, Fact, Op


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


def pod(
    key: str, *, group: str, uid: str = "", cpu: str = "1", node: str = "", **spec: Any
) -> dict[str, Any]:
    """Return a pod of a group: pending, or running on a node."""
    asked = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    meta = named(key, uid=uid, annotations={keys.GROUP_NAME: group})
    return {
        "metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "volcano", "containers": asked, "nodeName": node, **spec},
        "status": {"phase": "Running" if node else "Pending"},
    }


def bind_of(*pods: Bind, id: str = "i", key: str = "ns/g") -> BindGang:  # noqa: A002 - as it says
    """Return the command to bind the pods of a gang."""
    return BindGang(id=id, cycle=1, job=key, job_uid=key.rpartition("/")[2], binds=pods)
