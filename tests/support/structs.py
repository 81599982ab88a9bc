"""Objects as the services read them: the structs of `shared.api`, made of what the server stores.

Fields have the names of the API, as in a user's YAML.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.api.batch import Job
from shared.api.core import Node, Pod
from shared.api.scheduling import PodGroup, Queue
from tests.support import world


def pod(
    name: str = "p",
    *,
    namespace: str = "ns",
    uid: str = "",
    version: int = 1,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **more: Any,
) -> Pod:
    """Return a pod; `more` as for a stored one."""
    meta = {"resourceVersion": str(version), **(metadata or {})}
    plain = world.stored_pod(f"{namespace}/{name}", uid=uid or f"uid-{name}", metadata=meta, **more)
    plain["status"] |= status or {}
    return msgspec.convert(plain, Pod)


def job(
    *tasks: Mapping[str, Any],
    name: str = "train",
    namespace: str = "ns",
    phase: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Job:
    """Return a Job that states its tasks and what is in `spec`, without any default."""
    plain = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": "2025-10-09T08:53:20Z",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"tasks": tasks, **spec},
        "status": {"state": {"phase": phase}} if phase else {},
    }
    return msgspec.json.decode(msgspec.json.encode(plain), type=Job)


def group(
    name: str = "g", *, namespace: str = "ns", phase: str | None = None, **more: Any
) -> PodGroup:
    """Return a PodGroup; `more` as for a stored one."""
    return msgspec.convert(world.stored_group(f"{namespace}/{name}", phase=phase, **more), PodGroup)


def queue(name: str, **more: Any) -> Queue:
    """Return a Queue; `more` as for a stored one."""
    return msgspec.convert(world.stored_queue(name, **more), Queue)


def node(name: str, *, cpu: str = "8", ready: bool = True) -> Node:
    """Return a node."""
    plain = world.stored_node(name, cpu=cpu)
    plain["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
    return msgspec.convert(plain, Node)
