"""What an order to a queue changes, in that queue and in those below it (Q02, Q04, Q05).

Closing a queue closes the open queues below it too and marks them as closed by their parent;
opening it opens exactly the marked ones. The changes come in an order that survives a crash
between any two of them, because the Command is deleted after the last one and carried out again
until then: a mark is set before its queue closes and taken away after it opened, and a parent
changes before its children.

A queue that comes below a closed one, made there or moved there, closes as if it had been there; a
marked one that comes below an open one opens (`follow_parent`).
"""

from collections.abc import Iterator, Mapping

import msgspec

from services.controller.queue.phases import SHUT, QueueAction, next_state
from shared.api.bus import Command
from shared.api.keys import CLOSED_BY_PARENT
from shared.api.scheduling import ROOT_QUEUE, Queue, QueueState

_MARKED = "true"


class SetState(msgspec.Struct, frozen=True, kw_only=True):
    """Write the state of a queue."""

    queue: str
    state: QueueState


class SetMark(msgspec.Struct, frozen=True, kw_only=True):
    """Say on a queue that its parent closed it, or take that back."""

    queue: str
    closed_by_parent: bool


Change = SetState | SetMark


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An order that is not carried out, and why."""

    why: str


def targets(command: Command, queue: Queue) -> bool:
    """Whether a Command is meant for this very queue."""
    target, meta = command.target, queue.metadata
    return target is not None and target.name == meta.name and target.uid in {"", meta.uid}


def action_of(command: Command) -> QueueAction:
    """Return the action of a Command; one that no queue knows only syncs, which is done anyway."""
    known = command.action in frozenset(QueueAction)
    return QueueAction(command.action) if known else QueueAction.SYNC


def carry_out(
    action: QueueAction, name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]
) -> tuple[Change, ...] | Refusal:
    """Return the changes that an order to queue `name` asks for, in order (Q04).

    `groups` has the number of PodGroups by queue.
    """
    if action is QueueAction.CLOSE:
        if name == ROOT_QUEUE:
            return Refusal(why=f"queue {ROOT_QUEUE} is the parent of all and cannot be closed")
        return tuple(_closing(name, queues, groups, {}))
    if action is QueueAction.OPEN:
        parent = queues.get(queues[name].spec.parent)
        if parent is not None and parent.status.state in SHUT:
            state = parent.status.state
            return Refusal(why=f"parent queue {parent.metadata.name} is {state}: open it first")
        return tuple(_opening(name, queues, {}))
    return ()


def follow_parent(
    name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]
) -> tuple[Change, ...]:
    """Return the changes by which a queue does as its parent did before it came there (Q04)."""
    queue = queues[name]
    parent = queues.get(queue.spec.parent)
    if parent is None or name == ROOT_QUEUE:
        return ()
    shut = queue.status.state in SHUT
    if parent.status.state in SHUT and not shut:
        mark = () if _is_marked(queue) else (SetMark(queue=name, closed_by_parent=True),)
        return (*mark, *_closing(name, queues, groups, {}))
    if parent.status.state is QueueState.OPEN and shut and _is_marked(queue):
        return tuple(_opening(name, queues, {}))
    return ()


def _closing(
    name: str,
    queues: Mapping[str, Queue],
    groups: Mapping[str, int],
    seen: dict[str, None],
) -> Iterator[Change]:
    seen[name] = None
    was = queues[name].status.state
    state = next_state(was, QueueAction.CLOSE, groups=groups.get(name, 0))
    if state != was:
        yield SetState(queue=name, state=state)
    for child in _children(name, queues, seen):
        if queues[child].status.state in SHUT and not _is_marked(queues[child]):
            continue  # somebody closed it: it stays closed when the parent opens again
        if not _is_marked(queues[child]):
            yield SetMark(queue=child, closed_by_parent=True)
        yield from _closing(child, queues, groups, seen)


def _opening(name: str, queues: Mapping[str, Queue], seen: dict[str, None]) -> Iterator[Change]:
    seen[name] = None
    was = queues[name].status.state
    state = next_state(was, QueueAction.OPEN, groups=0)
    if state != was:
        yield SetState(queue=name, state=state)
    for child in _children(name, queues, seen):
        if _is_marked(queues[child]):
            yield from _opening(child, queues, seen)
    if _is_marked(queues[name]):
        yield SetMark(queue=name, closed_by_parent=False)


def _children(name: str, queues: Mapping[str, Queue], seen: dict[str, None]) -> Iterator[str]:
    """Yield the queues right below; a queue met already (parents in a ring) is left out."""
    for child, queue in sorted(queues.items()):
        if queue.spec.parent == name and child not in seen:
            yield child


def _is_marked(queue: Queue) -> bool:
    return queue.metadata.annotations.get(CLOSED_BY_PARENT) == _MARKED


def mark_patch(change: SetMark) -> dict[str, object]:
    """Return the merge patch of a mark."""
    value = _MARKED if change.closed_by_parent else None
    return {"metadata": {"annotations": {CLOSED_BY_PARENT: value}}}
