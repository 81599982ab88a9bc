"""Bounds of starts learn from the starts that came."""

import math

import numpy as np
import pytest

from services.visibility.forecast.calibration import PROMISES_MAX, Calibration


def after(ratio: float, count: int = 100) -> Calibration:
    """Return a calibration for which each job took `ratio` times as long as the bound said."""
    calibration = Calibration(0.9)
    for number in range(count):
        calibration.promised(f"ns/{number}", 0.0, 10_000.0)
        calibration.started(f"ns/{number}", ratio * 10_000.0)
    return calibration


@pytest.mark.parametrize("ratio", [0.6, 1.0, 2.5])
def test_a_bound_is_stretched_or_shortened_by_what_came(ratio):
    assert after(ratio).stretched(0.0, 0.0, 5_000.0) == pytest.approx(ratio * 5_000.0, rel=0.02)


def test_few_starts_change_nothing():
    assert after(3.0, count=19).factor == 1.0


@pytest.mark.parametrize(("ratio", "factor"), [(0.01, 0.5), (100.0, 4.0)])
def test_there_are_limits(ratio, factor):
    assert after(ratio).factor == factor


def test_a_bound_is_never_before_the_median_and_no_bound_stays_none():
    assert after(0.5).stretched(0.0, 4_000.0, 5_000.0) == 4_000.0
    assert after(2.0).stretched(0.0, 4_000.0, math.inf) == math.inf


def test_stretched_bounds_hold_for_nine_of_ten():
    random, calibration = np.random.default_rng(4), Calibration(0.9)
    held = []
    for number, wait in enumerate(random.lognormal(7.0, 1.0, 3_000)):
        latest = 1_000.0  # it is the drawn bound of every job, far too early
        held.append(wait <= calibration.stretched(0.0, 0.0, latest))
        calibration.promised(str(number), 0.0, latest)
        calibration.started(str(number), wait)
    assert np.mean(held[500:]) == pytest.approx(0.9, abs=0.03)


def test_only_the_first_bound_of_a_job_counts():
    calibration = Calibration(0.9)
    for number in range(50):
        calibration.promised(str(number), 0.0, 1_000.0)
        calibration.promised(str(number), 900.0, 2_000.0)
        calibration.started(str(number), 2_000.0)
    assert calibration.factor == pytest.approx(2.0, rel=0.02)


def test_jobs_that_do_not_start_teach_nothing_and_memory_is_bounded():
    calibration = Calibration(0.9)
    for number in range(PROMISES_MAX + 50):
        calibration.promised(str(number), 0.0, 1_000.0)
    calibration.gone("100")
    for number in range(101):
        calibration.started(str(number), 2_000.0)
    assert calibration.factor == pytest.approx(2.0, rel=0.02)
    for number in range(50, 101):
        calibration.started(str(number), 9.0)
    assert calibration.factor == pytest.approx(2.0, rel=0.02)
