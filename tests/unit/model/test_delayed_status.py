"""The rule for statuses that are held back, over drawn histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.delayed_status import (
    BacklogDelay,
    DelayedStatus,
    DelayedStatuses,
    DueTimes,
    ExpiringStatuses,
    hold,
)

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
        is_due = now >= min(unchanged_since + DELAY_S, values[0][0] + LONGEST_S)
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


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 3))))
def test_statuses_of_many_objects_wait_like_one_alone_and_those_that_are_due_go(history):
    delayed, alone, now = ExpiringStatuses(), {}, 0.0
    for key, status, step_s in history:
        now += step_s
        delayed.forget_due(now=now)
        for other, held in list(alone.items()):
            if held.is_due(now=now, delay_s=DELAY_S, longest_s=LONGEST_S):
                del alone[other]
        alone[key] = hold(alone.get(key), status, now=now)
        left_s = delayed.hold(key, status, now=now, delay_s=DELAY_S, longest_s=LONGEST_S)
        assert left_s == alone[key].left_s(now=now, delay_s=DELAY_S, longest_s=LONGEST_S)
        assert len(delayed) == len(alone)


def test_a_status_that_is_forgotten_starts_a_new_delay():
    delayed = DelayedStatuses()
    delayed.hold("a", "status", now=0.0, delay_s=DELAY_S)
    delayed.hold("b", "status", now=0.0, delay_s=DELAY_S)
    delayed.begin_pass()
    assert delayed.hold("a", "status", now=1.0, delay_s=DELAY_S) == 1.0
    delayed.begin_pass()
    assert delayed.hold("a", "status", now=2.0, delay_s=DELAY_S) == 0.0
    assert delayed.hold("b", "status", now=2.0, delay_s=DELAY_S) == DELAY_S
    delayed.forget("a")
    assert delayed.hold("a", "status", now=2.0, delay_s=DELAY_S) == DELAY_S


def test_due_times_that_are_set_often_take_no_more_room_than_their_keys():
    due = DueTimes()
    for at in range(10_000):
        due.set("a", at)
        due.set(f"{at}", at)
        due.discard(f"{at}")
        assert due.entries <= 200
    assert due.take(now=1e6) == ["a"]
