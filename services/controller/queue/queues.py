"""Queues: the two that always exist, and what is put right in each (CA02, Q02, Q03, Q04).

The state is the controller's own field of a Queue's status; `phases` is its table, `orders` says
what Commands change.
"""

from collections.abc import Collection
from typing import Any, Final

from services.controller.queue.phases import QueueAction, next_state
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


def parent_patch(queue: Queue) -> Json | None:
    """Return the merge patch that puts a queue without a parent below the root, else None (Q04)."""
    if queue.spec.parent or queue.metadata.name == ROOT_QUEUE:
        return None
    return {"spec": {"parent": ROOT_QUEUE}}


def synced_state(queue: Queue, *, groups: int) -> QueueState | None:
    """Return the state that a queue with so many PodGroups should have, None if it has it (Q02)."""
    state = next_state(queue.status.state, QueueAction.SYNC, groups=groups)
    return state if state != queue.status.state else None
