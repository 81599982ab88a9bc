"""The history of the last hours: waits and use, from events and from the jobs of now."""

from datetime import UTC, datetime

import pytest

from pumice.events import CloudEvent, Event, GangAdmitted, GangPlaced, JobPhaseChanged
from services.visibility import usage_history as module
from services.visibility.usage_history import HOURS, STEP_S, GangRuns, usage_history
from shared.api.meta import ObjectMeta
from shared.api.time import format_seconds
from shared.api.visibility import ObjectRef, PendingJob, RunningJob, UsageHistory

NOW_S = 1_700_000_000.0
TOTAL = {"cpu": "64", "memory": "256Gi"}


def event(at_s: float, data: Event) -> CloudEvent:
    time = datetime.fromtimestamp(at_s, tz=UTC)
    return CloudEvent(id="1", source="test", type="t", subject="s", time=time, data=data)


def life(
    name: str, *, created_s: float, placed_s: float | None = None, ended_s: float | None = None
) -> list[CloudEvent]:
    """Return the events of a job of 8 CPUs and 1 GiB."""
    gang = {"gang": f"ns/{name}-u", "uid": f"{name}-g", "job": f"ns/{name}", "queue": "q"}
    needs = {"cpu": "8", "memory": "1Gi"}
    admitted = GangAdmitted(**gang, created=format_seconds(created_s), min_resources=needs)
    found = [event(created_s + 1, admitted)]
    if placed_s is not None:
        found.append(event(placed_s, GangPlaced(**gang, pods=2)))
    if ended_s is not None:
        phase = JobPhaseChanged(job=f"ns/{name}", uid="u", phase="Completed", queue="q")
        found.append(event(ended_s, phase))
    return found


def history(*events: CloudEvent, waiting=(), running=()) -> UsageHistory:
    runs = GangRuns()
    for each in events:
        runs.fold(each)
    return usage_history(runs, waiting=waiting, running=running, total=TOTAL, now_s=NOW_S)


def at(found: UsageHistory, seconds_ago: float):
    """Return the step that ends so long ago."""
    return found.points[-1 - round(seconds_ago / STEP_S)]


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(namespace="ns", name=name)


def owner(name: str) -> ObjectRef:
    return ObjectRef(kind="Job", namespace="ns", name=name)


def test_the_steps_cover_the_hours_and_the_last_one_ends_now() -> None:
    found = history()
    assert len(found.points) == HOURS * 3600 // STEP_S
    assert found.points[-1].at == format_seconds(NOW_S)
    assert (found.total, found.is_partial) == (TOTAL, False)


def test_a_job_waits_until_it_is_placed_and_holds_its_minimum_until_its_end() -> None:
    found = history(*life("a", created_s=NOW_S - 4000, placed_s=NOW_S - 2950, ended_s=NOW_S - 1300))
    waits, runs, gone = at(found, 3600), at(found, 2100), at(found, 900)
    assert (waits.waiting, waits.in_use) == (1, {})
    assert (runs.waiting, runs.in_use) == (0, {"cpu": "8", "memory": "1Gi"})
    assert (gone.waiting, gone.in_use) == (0, {})
    started = at(found, 2700)
    assert (started.started, started.waited_p50_seconds) == (1, 1050.0)


@pytest.mark.parametrize(("count", "half", "nine"), [(1, 10, 10), (2, 10, 20), (10, 50, 90)])
def test_percentiles_are_waits_that_jobs_had(count: int, half: int, nine: int) -> None:
    placed_s = NOW_S - 10
    lives = [
        life(f"j{number}", created_s=placed_s - 10 * (number + 1), placed_s=placed_s)
        for number in range(count)
    ]
    last = history(*(each for one in lives for each in one)).points[-1]
    assert last.started == count
    assert (last.waited_p50_seconds, last.waited_p90_seconds) == (half, nine)


def test_jobs_of_now_come_from_the_state_and_are_counted_once() -> None:
    events = life("a", created_s=NOW_S - 900, placed_s=NOW_S - 700)
    running = RunningJob(
        metadata=meta("a"), owner=owner("a"), pod_group="a-u", queue="q",
        allocated={"cpu": "12", "pods": "3"}, running_since=format_seconds(NOW_S - 690),
    )  # fmt: skip
    waiting = PendingJob(
        metadata=meta("b"), owner=owner("b"), pod_group="b-u", queue="q",
        waiting_since=format_seconds(NOW_S - 400),
    )  # fmt: skip
    last = history(*events, waiting=[waiting], running=[running]).points[-1]
    assert (last.in_use, last.waiting) == ({"cpu": "12"}, 1)


def test_events_that_come_again_change_nothing() -> None:
    events = life("a", created_s=NOW_S - 4000, placed_s=NOW_S - 2950, ended_s=NOW_S - 1300)
    assert history(*events, *events).points[:-5] == history(*events).points[:-5]


def test_more_gangs_than_are_remembered_make_the_history_partial(monkeypatch) -> None:
    monkeypatch.setattr(module, "GANGS_MAX", 10)
    lives = [life(f"j{number}", created_s=NOW_S - 100) for number in range(11)]
    runs = GangRuns()
    for each in lives:
        runs.fold(each[0])
    assert len(list(runs.all())) == 10
    found = usage_history(runs, waiting=(), running=(), total=TOTAL, now_s=NOW_S)
    assert found.is_partial


def test_gangs_that_were_over_long_ago_are_dropped() -> None:
    runs = GangRuns()
    for each in life("a", created_s=NOW_S - 9000, placed_s=NOW_S - 8000, ended_s=NOW_S - 7000):
        runs.fold(each)
    runs.forget_before(NOW_S - 7001)
    assert list(runs.all())
    runs.forget_before(NOW_S - 6999)
    assert not list(runs.all())
