"""Commands to jobs and queues: objects of `bus.volcano.sh` that the controller carries out."""

from typing import Final

from pumice.vcctl.cluster import Cluster
from shared.api.kinds import COMMAND, Kind

_OWNED: Final = {"controller": True, "blockOwnerDeletion": True}


async def order(
    cluster: Cluster, kind: Kind, namespace: str, name: str, action: str, *, into: str
) -> None:
    """Write a Command for the object that has the name now. Raises Failure, also without one."""
    target = (await cluster.get(kind, namespace, name))["metadata"]
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": target["name"],
        "uid": target.get("uid", ""),
        **_OWNED,
    }
    command = {
        "metadata": {
            "generateName": f"{target['name']}-{action.lower()}-",
            "namespace": into,
            "ownerReferences": [reference],
        },
        "target": reference,
        "action": action,
    }
    await cluster.create(COMMAND, into, command)
