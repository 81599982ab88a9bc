"""States of a queue: what each action makes of each, as one table (Q02).

`OpenQueue` opens from any state. `CloseQueue` closes, and is not done before the queue's last
PodGroup is gone. `SyncQueue` only follows the PodGroups: a queue that closes is closed once it is
empty, one that was closed closes again while it holds any, a queue without a state is opened, and
an unknown state stays until an order sets another.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from shared.api.scheduling import QueueState


class QueueAction(enum.StrEnum):
    """Actions on a queue; a Command names the latter two."""

    SYNC = "SyncQueue"
    OPEN = "OpenQueue"
    CLOSE = "CloseQueue"


Key = tuple[QueueState | None, QueueAction]


class NextState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an action leads to."""

    empty: QueueState
    """Of a queue without PodGroups."""
    held: QueueState
    """Of a queue that has some."""

    def of(self, groups: int) -> QueueState:
        """Return the state of a queue with so many PodGroups."""
        return self.held if groups else self.empty


_OPENED: Final = NextState(empty=QueueState.OPEN, held=QueueState.OPEN)
_CLOSED: Final = NextState(empty=QueueState.CLOSED, held=QueueState.CLOSING)
_UNKNOWN: Final = NextState(empty=QueueState.UNKNOWN, held=QueueState.UNKNOWN)

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
"""States in which a queue takes no jobs, after an order to close it."""


def next_state(state: QueueState | None, action: QueueAction, *, groups: int) -> QueueState:
    """Return the state after `action` of a queue that holds `groups` PodGroups (Q02)."""
    return TABLE[state, action].of(groups)
