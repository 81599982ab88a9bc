"""The commands for queues: create, delete, operate, list, get, and `vqueues`."""

from collections.abc import Mapping
from typing import Final

from pumice.vcctl import tables
from pumice.vcctl.cluster import ClusterClient
from pumice.vcctl.flags import CommandFailure, Value, number, text
from shared.api.kinds import PODGROUP, QUEUE

_COMMANDS: Final = {"open": "OpenQueue", "close": "CloseQueue"}
_COMMANDS_IN: Final = "default"
"""The namespace of Commands to queues, which have none themselves."""


async def create(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Create a queue; ⚠ `--state` does nothing: the API server drops a status at creation (V05)."""
    queue = {
        "metadata": {"name": text(values, "name")},
        "spec": {"weight": number(values, "weight"), "guarantee": {}},
        "status": {"state": text(values, "state")},
    }
    await cluster.create(QUEUE, "", queue)
    return ""


async def delete(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Delete a queue."""
    await cluster.delete(QUEUE, "", _name(values))
    return ""


async def operate(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Open or close a queue by a Command, or change its weight. Raises CommandFailure."""
    name, action = _name(values), text(values, "action")
    if action in _COMMANDS:
        await cluster.command(QUEUE, "", name, _COMMANDS[action], into=_COMMANDS_IN)
    elif action == "update":
        await _weigh(cluster, name, number(values, "weight"))
    elif action:
        raise CommandFailure(f"action {action} invalid, valid actions are open, close and update")
    else:
        raise CommandFailure("action can not be null")
    return ""


async def show(cluster: ClusterClient, _: Mapping[str, Value]) -> str:
    """List all queues; ⚠ the counts are taken from the PodGroups, not from the status (V05)."""
    queues = await cluster.items(QUEUE)
    return tables.queues(queues, await cluster.items(PODGROUP) if queues else [])


async def get(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Show one queue. Raises CommandFailure."""
    name = text(values, "name")
    if not name:
        raise CommandFailure("name is mandatory to get the particular queue details")
    queue = await cluster.get(QUEUE, "", name)
    return tables.queues([queue], await cluster.items(PODGROUP))


async def show_or_list(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Show one queue or all of them, with the counts of their status (`vqueues`)."""
    name = text(values, "name")
    queues = [await cluster.get(QUEUE, "", name)] if name else await cluster.items(QUEUE)
    return tables.queues_by_status(queues)


async def _weigh(cluster: ClusterClient, name: str, weight: int) -> None:
    if not weight:
        reason = "weight must be specified, the value must be greater than 0"
        raise CommandFailure(f"when update queue {name}, {reason}")
    await cluster.merge(QUEUE, "", name, {"spec": {"weight": weight}})


def _name(values: Mapping[str, Value]) -> str:
    name = text(values, "name")
    if not name:
        raise CommandFailure("queue name must be specified")
    return name
