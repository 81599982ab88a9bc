"""How long the scheduler rests between two cycles."""

import pytest

from services.scheduler.cycle import rest_s


@pytest.mark.parametrize(
    ("cycle_s", "rest"),
    [(0.0, 0.0), (0.005, 0.015), (0.05, 0.1), (0.1, 0.1), (0.5, 0.5)],
)
def test_a_short_cycle_rests_thrice_its_time_and_a_long_one_as_long_as_it_took(
    cycle_s: float, rest: float
) -> None:
    assert rest_s(cycle_s) == pytest.approx(rest)
