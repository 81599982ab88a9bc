"""The leader's own words about gangs that wait: the last ones per gang, from events. Pure.

The leading scheduler announces a wait once it has lasted, and once per cause. As long as a session
here finds the same gate, the explanation is the leader's; else the replica knows more by now.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from pumice.events.types import GangAdmitted, GangPlaced, GangUnschedulable

DECISIONS_MOST: Final = 50_000
"""Gangs that are remembered, those that were spoken of last."""


class Decided(NamedTuple):
    """The gate that stops a gang, as the leader said."""

    uid: str
    gate: str
    at: float
    """Unix seconds."""


class Decisions:
    """The last word on each gang that waits, by the key of its PodGroup."""

    def __init__(self, most: int = DECISIONS_MOST) -> None:
        self._most = most
        self._by_gang: OrderedDict[str, Decided] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_gang)

    def hear(self, event: object, at: float) -> None:
        """Take in an event that happened at `at`; those that end a wait end what was said of it."""
        match event:
            case GangUnschedulable():
                self._by_gang[event.gang] = Decided(event.uid, event.gate, at)
                self._by_gang.move_to_end(event.gang)
                if len(self._by_gang) > self._most:
                    self._by_gang.popitem(last=False)
            case GangAdmitted() | GangPlaced():
                self._by_gang.pop(event.gang, None)
            case _:
                pass

    def forget(self) -> None:
        """Begin anew."""
        self._by_gang.clear()

    def at(self, gang: str, uid: str, gate: str) -> float | None:
        """Return since when the leader says that this gate stops a gang; None if it does not."""
        said = self._by_gang.get(gang)
        return said.at if said is not None and (said.uid, said.gate) == (uid, gate) else None
