"""Forecasts among jobs that state no duration and of which no similar one has ended."""

from services.visibility.forecast.durations import HistoricJob, History
from tests.unit.visibility.test_forecasts import (
    asked,
    crowded,
    pending,
    running,
    starts,
    two_nodes,
)

NOTHING_KNOWN = (
    "no similar job has ended here, and the jobs before it do not state how long they run"
)


def test_no_start_is_made_up_from_durations_of_which_nothing_is_known():
    found = asked(crowded(), draws=4)
    assert {(each.median, each.latest) for each in found.values()} == {(None, None)}
    assert found["ns/new0"].unknown == NOTHING_KNOWN


def test_a_start_that_waits_for_no_unknown_end_is_known_beside_jobs_of_unknown_durations():
    world = two_nodes().node("n3", cpu="4").node("n4", cpu="4")
    running(world, "unknown", 0, "n3")
    pending(world, "a", 0)
    pending(world, "b", 0, at="01")
    found = starts(asked(world, draws=8))
    assert found["a"] == 0.0
    assert found["b"] is not None
    assert 0.0 < found["b"] <= 100.0


def test_a_start_by_the_durations_of_other_jobs_is_a_guess():
    history = History()
    for seconds in (60.0, 70.0, 80.0):
        history.ended(HistoricJob("elsewhere", "other", "elsewhere/x"), seconds)
    found = asked(crowded(), history, draws=4)["ns/new0"]
    assert found.median is not None
    assert (found.basis, found.is_guess) == ("others", True)
