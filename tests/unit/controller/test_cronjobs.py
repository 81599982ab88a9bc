"""Looks at CronJobs (X01 to X04), the ends of processes in their middle among them."""

import msgspec
import pytest

from services.controller.cronjob.jobs import job_at
from services.controller.cronjob.steps import (
    CreateJob,
    DeleteJob,
    Failed,
    ReadJob,
    WriteCronJobStatus,
)
from shared.api import time
from shared.api.batch import JobPhase
from shared.api.cron import CronJobStatus
from shared.api.meta import ObjectMeta
from tests.unit.controller.crons import CronWorld, name_at


def test_each_due_time_has_one_job_x01() -> None:
    world = CronWorld()
    assert world.look("10:04:59.5").requeue_after_s == pytest.approx(0.6)
    assert not world.jobs
    assert world.look("10:05:00.1").requeue_after_s == pytest.approx(300.0)
    assert list(world.jobs) == world.active == [name_at("10:05:00")]
    assert world.reasons() == ["SuccessfulCreate"]
    world.look("10:06:00")
    world.look("10:10:00")
    assert list(world.jobs) == [name_at("10:05:00"), name_at("10:10:00")]


def test_a_look_that_finds_nothing_new_writes_nothing() -> None:
    world = CronWorld()
    world.look("10:05:00")
    assert world.writes == 1
    for clock in ("10:05:01", "10:06:00", "10:09:59"):
        world.look(clock)
    assert world.writes == 1
    assert world.reasons() == ["SuccessfulCreate"]


@pytest.mark.parametrize(
    ("zone", "stamp"),
    [
        (None, "2025-03-11T10:05:00Z"),
        ("UTC", "2025-03-11T10:05:00Z"),
        ("Europe/London", "2025-03-11T10:05:00Z"),
        ("Asia/Kolkata", "2025-03-11T15:35:00+05:30"),
    ],
)
def test_a_job_says_when_it_was_due_in_the_time_of_its_zone_x01(
    zone: str | None, stamp: str
) -> None:
    cron = CronWorld(timeZone=zone).cron
    job = job_at(cron, 1_741_687_500)
    assert job.metadata.annotations == {"volcano.sh/cronjob-scheduled-timestamp": stamp}
    assert job.metadata.name == "c-29028125"
    assert job.metadata.namespace == "ns"
    (owner,) = job.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("CronJob", "cron", True)


def test_only_the_latest_missed_time_is_made_up_for_x02() -> None:
    world = CronWorld()
    world.look("10:23:00")
    assert list(world.jobs) == [name_at("10:20:00")]
    assert world.cron.status.last_schedule_time == "2025-03-11T10:20:00Z"


def test_the_latest_time_of_an_uneven_schedule_is_found_x02() -> None:
    """The first two times are four hours apart, the night is longer: nothing is estimated."""
    world = CronWorld("30 6-16/4 * * *")
    world.look("2025-03-12T02:00:00Z")
    assert world.cron.status.last_schedule_time == "2025-03-11T14:30:00Z"


@pytest.mark.parametrize(
    ("deadline_s", "clock", "made"),
    [
        (60, "10:05:59", True),
        (60, "10:06:00", False),
        (180, "10:07:00", True),
        (0, "10:05:00", False),
    ],
)
def test_a_job_may_be_late_by_its_deadline_at_most_x02(
    deadline_s: int, clock: str, *, made: bool
) -> None:
    world = CronWorld(startingDeadlineSeconds=deadline_s)
    world.look(clock)
    assert bool(world.jobs) is made


def test_every_with_a_deadline_counts_from_where_it_began_x02() -> None:
    world = CronWorld("@every 1h", startingDeadlineSeconds=60)
    assert world.look("10:30:00").requeue_after_s == pytest.approx(1800.1)
    world.look("11:00:00.1")
    assert list(world.jobs) == [name_at("11:00:00")]


@pytest.mark.parametrize(
    ("first", "times"),
    [
        # The clock goes from 02:00 to 03:00: that night has no half past two.
        ("2025-03-29", ["2025-03-29T02:30:00+01:00", "2025-03-31T02:30:00+02:00"]),
        # The clock goes from 03:00 back to 02:00: that night has two.
        (
            "2025-10-25",
            [
                "2025-10-25T02:30:00+02:00",
                "2025-10-26T02:30:00+02:00",
                "2025-10-26T02:30:00+01:00",
                "2025-10-27T02:30:00+01:00",
            ],
        ),
    ],
    ids=["spring", "autumn"],
)
def test_a_night_in_which_the_clock_is_set_runs_as_often_as_its_clock_shows_x01(
    first: str, times: list[str]
) -> None:
    world = CronWorld("30 2 * * *", timeZone="Europe/Berlin")
    begin = time.parse(f"{first}T00:00:00Z")
    status = CronJobStatus(last_schedule_time=time.format_seconds(begin))
    world.cron = msgspec.structs.replace(world.cron, status=status)
    for half_hours in range(3 * 48):
        world.look(time.format_seconds(begin + half_hours * 1800.0 + 1.0))
    stamps = [
        job.metadata.annotations["volcano.sh/cronjob-scheduled-timestamp"]
        for _, job in sorted(world.jobs.items())
    ]
    assert stamps == times
    assert len(set(world.made)) == len(world.made) == len(times)


@pytest.mark.parametrize(("clock", "said"), [("18:20:00", False), ("18:25:00", True)])
def test_more_than_a_hundred_missed_times_are_told_x02(clock: str, *, said: bool) -> None:
    world = CronWorld()
    world.look(clock)
    assert ("TooManyMissedTimes" in world.reasons()) is said
    assert len(world.jobs) == 1


def test_a_suspended_cron_job_makes_none_and_still_follows_those_there_are_x02() -> None:
    world = CronWorld()
    world.look("10:05:00")
    spec = msgspec.structs.replace(world.cron.spec, suspend=True)
    world.cron = msgspec.structs.replace(world.cron, spec=spec)
    world.enter(name_at("10:05:00"), JobPhase.COMPLETED, "10:06:00")
    assert world.look("10:10:00").requeue_after_s is None
    assert len(world.jobs) == 1
    assert world.active == []
    assert world.cron.status.last_successful_time == "2025-03-11T10:06:00Z"


def test_forbid_waits_and_starts_when_the_job_before_has_ended_x02() -> None:
    world = CronWorld(concurrencyPolicy="Forbid")
    world.look("10:05:00")
    world.look("10:10:00")
    assert world.reasons() == ["SuccessfulCreate", "ForbidConcurrent"]
    world.enter(name_at("10:05:00"), JobPhase.FAILED)
    world.look("10:12:00")
    assert world.active == [name_at("10:10:00")]


def test_replace_deletes_what_runs_but_not_what_has_ended_meanwhile_x02() -> None:
    world = CronWorld(concurrencyPolicy="Replace")
    world.look("10:05:00")
    world.look("10:10:00")
    assert list(world.jobs) == world.active == [name_at("10:10:00")]
    assert "SuccessfulDelete" in world.reasons()
    world.enter(name_at("10:10:00"), JobPhase.COMPLETED)
    world.hidden = {name_at("10:10:00")}
    world.look("10:15:00")
    assert name_at("10:10:00") in world.jobs
    assert world.active == [name_at("10:15:00")]


def test_the_oldest_jobs_beyond_the_limits_go_and_terminated_ones_stay_x03() -> None:
    world = CronWorld(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=1)
    phases = [
        JobPhase.COMPLETED,
        JobPhase.FAILED,
        JobPhase.TERMINATED,
        JobPhase.COMPLETED,
        JobPhase.FAILED,
        JobPhase.TERMINATED,
    ]
    clocks = [f"10:{minute:02}:00" for minute in range(5, 35, 5)]
    for clock, phase in zip(clocks, phases, strict=True):
        world.look(clock)
        world.enter(name_at(clock), phase)
    world.look("10:31:00")
    assert list(world.jobs) == [name_at(clocks[i]) for i in (2, 3, 4, 5)]


@pytest.mark.parametrize(
    "seam", [CreateJob, WriteCronJobStatus, DeleteJob], ids=lambda seam: seam.__name__
)
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
@pytest.mark.parametrize("end", [None, JobPhase.COMPLETED, JobPhase.FAILED], ids=str)
def test_a_process_that_dies_anywhere_runs_no_time_twice(
    seam: type, policy: str, end: JobPhase | None
) -> None:
    """The next process may come after the job's end, and after the next due time."""
    limits = {"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0}
    world = CronWorld(concurrencyPolicy=policy, **limits)
    world.look("10:05:00")
    if policy == "Forbid":
        world.enter(name_at("10:05:00"), JobPhase.COMPLETED)
    world.look("10:10:00", die_at=seam)
    if end is not None and name_at("10:10:00") in world.jobs:
        world.enter(name_at("10:10:00"), end)
    for clock in ("10:11:00", "10:15:00", "10:16:00"):
        world.look(clock)
    due = [name_at(clock) for clock in ("10:05:00", "10:10:00", "10:15:00")]
    assert set(world.jobs) <= set(due)
    assert len(world.made) == len(set(world.made)), "no time has had two jobs"
    before = world.jobs.get(name_at("10:10:00"))
    waits = policy == "Forbid" and before is not None and before.status.state.phase is None
    assert (name_at("10:15:00") in world.made) is not waits


def test_a_job_that_was_made_and_not_noted_joins_the_active_ones_x03() -> None:
    world = CronWorld(concurrencyPolicy="Forbid")
    world.look("10:05:00", die_at=WriteCronJobStatus)
    assert world.active == []
    world.look("10:10:00")
    assert world.active == list(world.jobs) == [name_at("10:05:00")]
    assert "OrphanedJob" not in world.reasons()


def test_a_job_that_somebody_took_off_the_list_is_told_of_and_left_alone_x04() -> None:
    world = CronWorld()
    world.look("10:05:00")
    status = msgspec.structs.replace(world.cron.status, active=())
    world.cron = msgspec.structs.replace(world.cron, status=status)
    world.reasons()
    world.look("10:06:00")
    assert world.reasons() == ["OrphanedJob"]
    assert world.active == []


def test_an_active_job_that_is_gone_leaves_the_list_and_one_that_is_only_unseen_stays_x04() -> None:
    world = CronWorld()
    world.look("10:05:00")
    world.hidden = set(world.jobs)
    world.look("10:06:00")
    assert world.active == [name_at("10:05:00")]
    world.jobs.clear()
    world.look("10:07:00")
    assert world.active == []
    assert world.reasons()[-1] == "StaleReference"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failed(reason="no"), "FailedCreate"),
        (Failed(reason="ends", namespace_ends=True), "NamespaceTerminating"),
    ],
)
def test_a_refused_create_is_told_and_tried_again_x04(answer: Failed, reason: str) -> None:
    world = CronWorld()
    world.failing[CreateJob] = answer
    assert world.look("10:05:00").failed == answer.reason
    assert world.reasons() == [reason]
    world.failing.clear()
    assert not world.look("10:05:10").failed
    assert world.active == [name_at("10:05:00")]


@pytest.mark.parametrize(("ask", "reason"), [(ReadJob, "FailedGet"), (DeleteJob, "FailedDelete")])
def test_a_job_that_cannot_be_replaced_holds_the_next_one_back_x04(ask: type, reason: str) -> None:
    world = CronWorld(concurrencyPolicy="Replace")
    world.look("10:05:00")
    world.failing[ask] = Failed(reason="no")
    assert world.look("10:10:00").failed == "no"
    assert reason in world.reasons()
    assert world.active == [name_at("10:05:00")]


def test_a_name_that_a_stranger_has_is_told_and_not_taken_over_x04() -> None:
    world = CronWorld()
    name = name_at("10:05:00")
    stranger = msgspec.structs.replace(
        job_at(world.cron, 0), metadata=ObjectMeta(name=name, namespace="ns", uid="other")
    )
    world.jobs[name] = stranger
    world.hidden = {name}
    world.look("10:05:00")
    assert world.reasons() == ["ForeignJob"]
    assert world.active == []
    assert world.cron.status.last_schedule_time is None


@pytest.mark.parametrize(
    ("spec", "reason", "invalid"),
    [
        ({"schedule": "* * * * 7"}, None, "day of week"),
        ({"timeZone": "Mars/Base"}, "InvalidTimeZone", "unknown time zone 'Mars/Base'"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule", ""),
        ({"schedule": "TZ=UTC 0 0 1 1 *"}, "UnsupportedSchedule", ""),
    ],
)
def test_a_spec_that_is_wrong_is_told_and_not_tried_again_x04(
    spec: dict[str, str], reason: str | None, invalid: str
) -> None:
    world = CronWorld(**spec)
    outcome = world.look("10:05:00")
    assert not outcome.failed
    assert invalid in outcome.invalid
    assert bool(outcome.invalid) is bool(invalid)
    assert world.reasons() == ([reason] if reason else [])
    assert not world.jobs


def test_a_cron_job_that_is_being_deleted_makes_no_more() -> None:
    world = CronWorld()
    meta = msgspec.structs.replace(world.cron.metadata, deletion_timestamp="2025-03-11T10:01:00Z")
    world.cron = msgspec.structs.replace(world.cron, metadata=meta)
    world.look("10:05:00")
    assert not world.jobs
