"""Queues: the two that always exist, and the state of each (CA02, Q02, Q03).

The state is the controller's own field of a Queue's status. Opening and closing by Command come
with the queue states' own issue; the table has the row that every queue starts with.
"""

from collections.abc import Collection
from typing import Any, Final

from shared.api import kinds
from shared.api.scheduling import DEFAULT_QUEUE, ROOT_QUEUE, Queue, QueueState

Json = dict[str, Any]

DEFAULTS: Final[tuple[Json, ...]] = (
    {
        "apiVersion": kinds.QUEUE.api_version,
        "kind": kinds.QUEUE.kind,
        "metadata": {"name": ROOT_QUEUE},
        "spec": {"weight": 1, "reclaimable": False},
    },
    {
        "apiVersion": kinds.QUEUE.api_version,
        "kind": kinds.QUEUE.kind,
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
    },
)
"""The queues that are made at start and made again when somebody deletes them (CA02)."""


def missing(present: Collection[str]) -> tuple[Json, ...]:
    """Return the default queues that are not there, root first."""
    return tuple(queue for queue in DEFAULTS if queue["metadata"]["name"] not in present)


def state_patch(queue: Queue) -> Json | None:
    """Return the merge patch of the status of a queue that has no state yet, else None (Q02)."""
    if queue.status.state is None:
        return {"status": {"state": QueueState.OPEN.value}}
    return None
