"""States of a queue, and the changes that a Command makes in it and its children (Q02, Q04, Q05).

`TABLE` has the next state for each action and state. `OpenQueue` opens from any state. `CloseQueue`
closes, and is not done before the queue's last PodGroup is gone. `SyncQueue` only follows the
PodGroups: a queue that closes is closed once it is empty, one that was closed closes again while it
holds any, a queue without a state is opened, and an unknown state stays until a Command sets
another.

Closing a queue closes the open queues below it too and marks them as closed by their parent;
opening it opens exactly the marked ones. The changes come in an order that survives a crash
between any two of them, because the Command is deleted after the last one and carried out again
until then: a mark is set before its queue closes and taken away after it opened, and a parent
changes before its children.

A queue that is created or moved below a closed one closes too; a marked one that comes below an
open one opens (`follow_parent`).

Two queues always exist and each has a parent (CA02). The state is the controller's own field of a
Queue's status.
"""

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from shared.api import kinds
from shared.api.base import Json
from shared.api.batch import Command
from shared.api.keys import CLOSED_BY_PARENT
from shared.api.scheduling import DEFAULT_QUEUE, ROOT_QUEUE, Queue, QueueState


class QueueAction(enum.StrEnum):
    """Actions on a queue; a Command names the latter two."""

    SYNC = "SyncQueue"
    OPEN = "OpenQueue"
    CLOSE = "CloseQueue"


Key = tuple[QueueState | None, QueueAction]


class NextState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an action leads to."""

    empty: QueueState
    """Next state of a queue without PodGroups."""
    nonempty: QueueState
    """Next state of a queue with PodGroups."""

    def of(self, groups: int) -> QueueState:
        """Return the next state of a queue with that number of PodGroups."""
        return self.nonempty if groups else self.empty


_OPENED: Final = NextState(empty=QueueState.OPEN, nonempty=QueueState.OPEN)
_CLOSED: Final = NextState(empty=QueueState.CLOSED, nonempty=QueueState.CLOSING)
_UNKNOWN: Final = NextState(empty=QueueState.UNKNOWN, nonempty=QueueState.UNKNOWN)

TABLE: Final[Mapping[Key, NextState]] = {
    (None, QueueAction.SYNC): _OPENED,
    (None, QueueAction.OPEN): _OPENED,
    (None, QueueAction.CLOSE): _CLOSED,
    (QueueState.OPEN, QueueAction.SYNC): _OPENED,
    (QueueState.OPEN, QueueAction.OPEN): _OPENED,
    (QueueState.OPEN, QueueAction.CLOSE): _CLOSED,
    (QueueState.CLOSED, QueueAction.SYNC): _CLOSED,
    (QueueState.CLOSED, QueueAction.OPEN): _OPENED,
    (QueueState.CLOSED, QueueAction.CLOSE): _CLOSED,
    (QueueState.CLOSING, QueueAction.SYNC): _CLOSED,
    (QueueState.CLOSING, QueueAction.OPEN): _OPENED,
    (QueueState.CLOSING, QueueAction.CLOSE): _CLOSED,
    (QueueState.UNKNOWN, QueueAction.SYNC): _UNKNOWN,
    (QueueState.UNKNOWN, QueueAction.OPEN): _OPENED,
    (QueueState.UNKNOWN, QueueAction.CLOSE): _CLOSED,
}

SHUT: Final = frozenset({QueueState.CLOSED, QueueState.CLOSING})
"""States in which a queue takes no jobs, after a Command to close it."""


def next_state(state: QueueState | None, action: QueueAction, *, groups: int) -> QueueState:
    """Return the state after `action` of a queue with `groups` PodGroups (Q02)."""
    return TABLE[state, action].of(groups)


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
"""The queues that are created at start, and again after a deletion (CA02)."""

_MARKED = "true"


class SetState(msgspec.Struct, frozen=True, kw_only=True):
    """Write the state of a queue."""

    queue: str
    state: QueueState


class SetMark(msgspec.Struct, frozen=True, kw_only=True):
    """Mark a queue as closed by its parent, or remove the mark."""

    queue: str
    closed_by_parent: bool


Change = SetState | SetMark


class RejectedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A Command that is not carried out, and why."""

    why: str


def targets(command: Command, queue: Queue) -> bool:
    """Whether a Command is meant for this very queue."""
    target, meta = command.target, queue.metadata
    return target is not None and target.name == meta.name and target.uid in {"", meta.uid}


def action_of(command: Command) -> QueueAction:
    """Return the action of a Command; an unknown one only syncs, which happens anyway."""
    known = command.action in frozenset(QueueAction)
    return QueueAction(command.action) if known else QueueAction.SYNC


def carry_out(
    action: QueueAction, name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]
) -> tuple[Change, ...] | RejectedCommand:
    """Return the changes of a Command to queue `name`, in order (Q04).

    `groups` has the number of PodGroups by queue.
    """
    if action is QueueAction.CLOSE:
        if name == ROOT_QUEUE:
            return RejectedCommand(
                why=f"queue {ROOT_QUEUE} is the parent of all and cannot be closed"
            )
        return tuple(_closing(name, queues, groups))
    if action is QueueAction.OPEN:
        parent = queues.get(queues[name].spec.parent)
        if parent is not None and parent.status.state in SHUT:
            state = parent.status.state
            return RejectedCommand(
                why=f"parent queue {parent.metadata.name} is {state}: open it first"
            )
        return tuple(_opening(name, queues))
    return ()


def follow_parent(
    name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]
) -> tuple[Change, ...]:
    """Return the changes by which a moved or new queue follows its parent's state (Q04)."""
    queue = queues[name]
    parent = queues.get(queue.spec.parent)
    if parent is None or name == ROOT_QUEUE:
        return ()
    shut = queue.status.state in SHUT
    if parent.status.state in SHUT and not shut:
        mark = () if _is_marked(queue) else (SetMark(queue=name, closed_by_parent=True),)
        return (*mark, *_closing(name, queues, groups))
    if parent.status.state is QueueState.OPEN and shut and _is_marked(queue):
        return tuple(_opening(name, queues))
    return ()


def _closing(name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]) -> Iterator[Change]:
    below = _children(queues)
    seen: dict[str, None] = {}
    worklist = [name]
    while worklist:
        current = worklist.pop()
        if current in seen:
            continue
        if current != name and not _is_marked(queues[current]):
            if queues[current].status.state in SHUT:
                continue  # a person closed it: it stays closed when the parent opens again
            yield SetMark(queue=current, closed_by_parent=True)
        seen[current] = None
        was = queues[current].status.state
        state = next_state(was, QueueAction.CLOSE, groups=groups.get(current, 0))
        if state != was:
            yield SetState(queue=current, state=state)
        worklist += reversed(below.get(current, ()))


def _opening(name: str, queues: Mapping[str, Queue]) -> Iterator[Change]:
    below = _children(queues)
    seen: dict[str, None] = {}
    worklist = [(name, True)]
    while worklist:
        current, comes = worklist.pop()
        if not comes:
            yield SetMark(queue=current, closed_by_parent=False)
            continue
        if current in seen or (current != name and not _is_marked(queues[current])):
            continue
        seen[current] = None
        was = queues[current].status.state
        state = next_state(was, QueueAction.OPEN, groups=0)
        if state != was:
            yield SetState(queue=current, state=state)
        if _is_marked(queues[current]):
            worklist.append((current, False))
        worklist += ((child, True) for child in reversed(below.get(current, ())))


def _children(queues: Mapping[str, Queue]) -> dict[str, list[str]]:
    """Return the names of the queues right below each, sorted; parents may form rings."""
    below: dict[str, list[str]] = {}
    for child, queue in sorted(queues.items()):
        below.setdefault(queue.spec.parent, []).append(child)
    return below


def _is_marked(queue: Queue) -> bool:
    return queue.metadata.annotations.get(CLOSED_BY_PARENT) == _MARKED


def mark_patch(change: SetMark) -> dict[str, object]:
    """Return the merge patch of a mark."""
    value = _MARKED if change.closed_by_parent else None
    return {"metadata": {"annotations": {CLOSED_BY_PARENT: value}}}


def missing(present: Collection[str]) -> tuple[Json, ...]:
    """Return the missing default queues, root first."""
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
