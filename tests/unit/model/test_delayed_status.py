"""The rule for statuses that are held back, over drawn histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.delayed_status import BacklogDelay, DelayedStatus, DueTimes, hold

DELAY_S, LONGEST_S = 2.0, 10.0
HISTORIES = st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(0, 2)), min_size=1, max_size=60)


@given(HISTORIES)
def test_a_status_is_due_once_it_stood_for_its_delay_or_waited_for_the_longest_time(history):
    now, held, values = 0.0, None, []
    for step_s, status in history:
        now += step_s
        values.append((now, status))
        held = hold(held, status, now=now)
        last_other = max((at for at, value in values if value != status), default=0.0)
        unchanged_since = min(at for at, value in values if at > last_other)
        is_due = now - unchanged_since >= DELAY_S or now - values[0][0] >= LONGEST_S
        assert held.is_due(now=now, delay_s=DELAY_S, longest_s=LONGEST_S) == is_due
        if is_due:  # it is written
            held, values = None, []


def test_it_tells_when_it_is_due():
    held = hold(DelayedStatus("a", 1.0, 1.0), "b", now=4.0)
    assert held.left_s(now=5.0, delay_s=DELAY_S) == pytest.approx(1.0)
    assert held.left_s(now=7.0, delay_s=DELAY_S) == 0.0


@given(st.integers(0, 10_000))
def test_a_delay_grows_with_those_that_wait_up_to_its_limit(waiting):
    delay = BacklogDelay(first_s=2.0, doubled_by=25, longest_s=20.0)
    assert delay.behind(0) == 2.0
    assert delay.behind(25) == 4.0
    assert delay.behind(waiting) <= delay.behind(waiting + 1) <= 20.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=30))
def test_a_key_is_due_once_at_the_last_time_that_was_set_for_it(settings):
    due, last = DueTimes(), {}
    for key, at in settings:
        due.set(key, at)
        last[key] = at
    for now in range(0, 22, 2):
        assert set(due.take(now=now)) == {k for k, at in last.items() if now - 2 < at <= now}
