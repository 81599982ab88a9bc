"""Delays between attempts grow to a cap, however many attempts there were."""

import pytest

from shared.model.backoff import delay_s


@pytest.mark.parametrize(
    ("attempt", "factor", "delay"),
    [
        (0, 2.0, 0.5),
        (1, 2.0, 1.0),
        (3, 2.0, 4.0),
        (4, 2.0, 5.0),
        (2, 1.5, 1.125),
        (10**6, 2.0, 5.0),
    ],
)
def test_a_delay_grows_by_its_factor_up_to_the_cap(attempt: int, factor: float, delay: float):
    assert delay_s(attempt, first_s=0.5, cap_s=5.0, factor=factor) == delay
