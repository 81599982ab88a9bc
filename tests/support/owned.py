"""A job of the page's answers that a Deployment owns by its ReplicaSet."""

import msgspec
from msgspec.structs import replace

from shared.api.visibility import ObjectRef
from tests.support.page_transport import WorldTransport
from tests.support.page_world import World

_RESOURCES = [
    {"name": "replicasets", "kind": "ReplicaSet", "namespaced": True},
    {"name": "deployments", "kind": "Deployment", "namespaced": True},
]


def owned_by_a_deployment(world: World, way: WorldTransport) -> tuple[str, str]:
    """Give the first job that waits a Deployment `web`; return its namespace and name."""
    job = world.waiting[0]
    namespace, name = job.metadata.namespace, job.metadata.name
    owner = ObjectRef(
        api_version="apps/v1", kind="ReplicaSet", namespace=namespace, name="web-5d4", uid="rs"
    )
    world.waiting[0] = replace(job, pod_group=name, owner=owner)
    above = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
        "controller": True,
    }  # fmt: skip
    path = f"/apis/apps/v1/namespaces/{namespace}"
    objects = {
        "/apis/apps/v1": {"resources": _RESOURCES},
        f"{path}/replicasets/web-5d4": {
            "metadata": {"name": "web-5d4", "uid": "rs", "ownerReferences": [above]}
        },
        f"{path}/deployments/web": {"metadata": {"name": "web", "uid": "d"}},
    }
    way.objects = {at: msgspec.json.encode(found) for at, found in objects.items()}
    return namespace, name
