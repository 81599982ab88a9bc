"""Facts and outcomes that wait to be folded, gathered by the loop while a cycle computes.

Bounded: when `limit` facts wait, the readers wait too, and the bus holds back the rest.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from shared.contracts.messages import Fact, Outcome

LIMIT: Final = 100_000


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that came since the last cycle."""

    forget: bool
    """STATE began anew: what was folded before is void."""
    facts: list[Fact]
    last_seq: int
    """Sequence in STATE up to which facts have come."""
    outcomes: list[Outcome]


class Inbox:
    """Filled by the followers, emptied by the cycle."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._room = asyncio.Event()
        self._room.set()
        self.changed = asyncio.Event()
        self._forget = False
        self._facts: list[Fact] = []
        self._last_seq = 0
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        return len(self._facts)

    async def facts(self, facts: Sequence[Fact], last_seq: int) -> None:
        """Add facts, up to a sequence of STATE; waits while the inbox is full."""
        await self._room.wait()
        self._facts += facts
        self._last_seq = last_seq
        if len(self._facts) >= self._limit:
            self._room.clear()
        self.changed.set()

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes; one per command of our own, so their number is bounded by ours."""
        self._outcomes += outcomes
        self.changed.set()

    def forget(self) -> None:
        """Note that STATE begins anew."""
        self._forget = True
        self._facts = []
        self._last_seq = 0
        self._room.set()
        self.changed.set()

    def take(self) -> Gathered:
        """Return everything and start empty."""
        gathered = Gathered(
            forget=self._forget,
            facts=self._facts,
            last_seq=self._last_seq,
            outcomes=self._outcomes,
        )
        self._forget, self._facts, self._outcomes = False, [], []
        self._room.set()
        self.changed.clear()
        return gathered
