"""The first write of a status is deferred, for longer where many of them wait."""

import pytest

from services.binder.adapters.desired import LONGEST_S, deferral_left_s
from shared.bus.values import Message
from shared.model.delayed_status import ExpiringStatuses


def defer(delayed: ExpiringStatuses, subject: str, *, asked_s: int = 2, now: float = 0.0) -> float:
    """Return for how long a new message of a subject is deferred."""
    message = Message(subject=subject, sequence=int(now * 1000) + 1, payload=b"", time=0.0)
    return deferral_left_s(delayed, message, asked_s=asked_s, now=now)


def defer_many(delayed: ExpiringStatuses) -> list[float]:
    return [defer(delayed, f"group-{number}") for number in range(500)]


def test_a_status_alone_waits_as_long_as_it_asks():
    assert defer(ExpiringStatuses(), "group") == pytest.approx(2.0)


def test_statuses_wait_the_longer_the_more_of_them_wait_and_twenty_seconds_at_most():
    waits = defer_many(ExpiringStatuses())
    assert waits == sorted(waits)
    assert waits[25] == pytest.approx(4.0)
    assert waits[-1] == pytest.approx(20.0)


def test_statuses_that_are_due_delay_no_other():
    delayed = ExpiringStatuses()
    defer_many(delayed)
    assert defer(delayed, "group", now=20.0) == pytest.approx(2.0)
    assert len(delayed) == 1, "the others are forgotten"


def test_a_phase_is_deferred_for_a_second_however_many_wait():
    delayed = ExpiringStatuses()
    defer_many(delayed)
    assert defer(delayed, "group", asked_s=1) == 1


def test_a_status_that_keeps_changing_is_written_after_the_longest_time():
    delayed, every_s = ExpiringStatuses(), 1.5
    changes = [every_s * number for number in range(30)]
    due = [now + defer(delayed, "group", now=now) for now in changes]
    written = [at for at, now in zip(due, changes, strict=True) if at < now + every_s]
    assert written == [LONGEST_S, 21.0 + LONGEST_S], "a newer one replaces those that wait"
