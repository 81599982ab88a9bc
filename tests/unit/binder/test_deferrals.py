"""Statuses that may wait are put off for longer where many of them wait."""

import pytest

from services.binder.adapters.desired import DeferredWrites
from tests.support.clock import VirtualClock


def test_a_status_alone_waits_as_long_as_it_says():
    assert DeferredWrites(VirtualClock()).delay_s(2) == pytest.approx(2.0)


def test_statuses_wait_the_longer_the_more_of_them_wait_and_twenty_seconds_at_most():
    deferrals = DeferredWrites(VirtualClock())
    waits = [deferrals.delay_s(2) for _ in range(500)]
    assert waits == sorted(waits)
    assert waits[25] == pytest.approx(4.0)
    assert waits[-1] == pytest.approx(20.0)


async def test_statuses_that_have_waited_make_no_other_wait():
    clock = VirtualClock()
    deferrals = DeferredWrites(clock)
    for _ in range(500):
        deferrals.delay_s(2)
    await clock.advance(20.0)
    assert deferrals.delay_s(2) == pytest.approx(2.0)


def test_a_phase_is_put_off_for_a_second_however_many_wait():
    deferrals = DeferredWrites(VirtualClock())
    for _ in range(500):
        deferrals.delay_s(2)
    assert deferrals.delay_s(1) == 1
