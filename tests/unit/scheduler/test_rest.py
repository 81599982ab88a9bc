"""How long the scheduler rests between two cycles."""

import asyncio
from types import SimpleNamespace

import pytest
from typing_extensions import override

from services.scheduler.cycle import NEVER, Scheduler, rest_s
from shared.election.leader_elector import LeadershipTerm


@pytest.mark.parametrize(
    ("cycle_s", "rest"),
    [(0.0, 0.0), (0.005, 0.015), (0.05, 0.1), (0.1, 0.1), (0.5, 0.5)],
)
def test_a_short_cycle_rests_thrice_its_time_and_a_long_one_as_long_as_it_took(
    cycle_s: float, rest: float
) -> None:
    assert rest_s(cycle_s) == pytest.approx(rest)


class Timed(Scheduler):
    """Rounds whose parts take a known time on a clock of their own."""

    def __init__(self, *, is_synced: bool) -> None:
        self.now = 0.0
        self._clock = SimpleNamespace(monotonic=lambda: self.now)
        self._scheduler_state = SimpleNamespace(is_consistent=True)
        self._installation = SimpleNamespace(held=True, term="t")
        self._state = SimpleNamespace(synced=asyncio.Event(), epoch=1)
        self._decided_in, self._recovered_epoch, self._cycle_s = "", NEVER, 0.0
        if is_synced:
            self._state.synced.set()

    @override
    async def _fold(self) -> None:
        self.now += 4.0

    @override
    async def _recover(self) -> None:
        self.now += 1.0
        self._recovered_epoch = 1

    @override
    async def _run_cycle(self, term: LeadershipTerm) -> None:
        self.now += 0.5

    async def rounds(self) -> list[float]:
        """Play two rounds; return the seconds of each by which the rest is measured."""
        found = []
        for _ in range(2):
            await self._step(LeadershipTerm(number=1, tokens={}))
            found.append(self._cycle_s)
        return found


async def test_reading_the_state_for_the_first_time_asks_for_no_rest() -> None:
    """⚠ With 50,000 pods it takes seconds; what waits then has waited for long enough."""
    assert await Timed(is_synced=True).rounds() == pytest.approx([0.5, 4.5])


async def test_a_round_that_does_not_decide_asks_for_no_rest() -> None:
    assert await Timed(is_synced=False).rounds() == [0.0, 0.0]
