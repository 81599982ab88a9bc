"""Cron schedules (X01): what they admit, when they are due, what is wrong with a bad one."""

import re
from datetime import UTC, datetime

import pytest

from shared.model import schedules
from shared.model.schedules import missed, names_zone, parse, zone

NEW_YORK = "America/New_York"


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def shown(moment: int | None, *, within: str = "") -> str:
    if moment is None:
        return "never"
    return datetime.fromtimestamp(moment, schedules.zone(within)).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("*/5 * * * *", "2025-03-11T10:03:00Z", "2025-03-11 10:05"),
        ("*/5 * * * *", "2025-03-11T10:05:00Z", "2025-03-11 10:10"),
        ("7/20 * * * *", "2025-03-11T10:28:00Z", "2025-03-11 10:47"),
        ("0 10 * * *", "2025-03-11T10:00:00Z", "2025-03-12 10:00"),
        ("30 6-16/4 * * 1-5", "2025-03-14T14:30:00Z", "2025-03-17 06:30"),
        ("0 0 1 JAN ?", "2025-03-11T10:00:00Z", "2026-01-01 00:00"),
        ("0 0 * * sun,Wed", "2025-03-11T10:00:00Z", "2025-03-12 00:00"),
        ("0 0 29 2 *", "2097-01-01T00:00:00Z", "2104-02-29 00:00"),
        ("0 0 31 2 *", "2025-03-11T10:00:00Z", "never"),
        ("@hourly", "2025-03-11T10:00:00Z", "2025-03-11 11:00"),
        ("@weekly", "2025-03-11T10:00:00Z", "2025-03-16 00:00"),
        ("@monthly", "2025-03-11T10:00:00Z", "2025-04-01 00:00"),
        ("@yearly", "2025-03-11T10:00:00Z", "2026-01-01 00:00"),
        ("  1,,2  * * * *", "2025-03-11T10:01:00Z", "2025-03-11 10:02"),
    ],
)
def test_a_schedule_is_due_next_when_the_clock_shows_what_it_admits(
    text: str, after: str, due: str
) -> None:
    assert shown(parse(text).following(0, at(after))) == due


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("0 0 13 * 5", ["2025-06-06", "2025-06-13", "2025-06-20", "2025-06-27", "2025-07-04"]),
        ("0 0 13 * *", ["2025-06-13", "2025-07-13", "2025-08-13", "2025-09-13", "2025-10-13"]),
        ("0 0 * * 5", ["2025-06-06", "2025-06-13", "2025-06-20", "2025-06-27", "2025-07-04"]),
        ("0 0 */14 * 5", ["2025-06-01", "2025-06-06", "2025-06-13", "2025-06-15", "2025-06-20"]),
    ],
)
def test_either_day_field_decides_unless_one_is_a_bare_star(text: str, due: list[str]) -> None:
    schedule, moment, found = parse(text), at("2025-05-31T12:00:00Z"), []
    for _ in due:
        following = schedule.following(0, moment)
        assert following is not None
        moment = following
        found.append(shown(moment)[:10])
    assert found == due


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        # The clock goes from 01:59 to 03:00 on 9 March 2025.
        ("30 2 * * *", "2025-03-08T12:00:00Z", ["03-10 02:30", "03-11 02:30"]),
        ("30 1 * * *", "2025-03-08T12:00:00Z", ["03-09 01:30", "03-10 01:30"]),
        ("0 */1 9 3 *", "2025-03-09T06:00:00Z", ["03-09 03:00", "03-09 04:00"]),
        # The clock shows 01:00 to 01:59 twice on 2 November 2025.
        ("30 1 * * *", "2025-11-01T12:00:00Z", ["11-02 01:30", "11-02 01:30", "11-03 01:30"]),
    ],
)
def test_a_time_that_the_clock_skips_is_skipped_and_one_shown_twice_is_due_twice(
    text: str, after: str, due: list[str]
) -> None:
    schedule, moment, found = parse(text, within=zone(NEW_YORK)), at(after), []
    for _ in due:
        following = schedule.following(0, moment)
        assert following is not None
        assert following > moment
        moment = following
        found.append(shown(moment, within=NEW_YORK)[5:])
    assert found == due


@pytest.mark.parametrize("prefix", ["TZ=Pacific/Honolulu ", "CRON_TZ=Pacific/Honolulu "])
def test_a_zone_in_the_schedule_comes_before_the_one_given(prefix: str) -> None:
    schedule = parse(prefix + "0 10 * * *", within=zone(NEW_YORK))
    assert shown(schedule.following(0, at("2025-03-11T10:00:00Z"))) == "2025-03-11 20:00"
    assert names_zone(prefix + "0 10 * * *")
    assert not names_zone("0 10 * * *")


def test_every_counts_from_where_it_began() -> None:
    schedule, began = parse("@every 1h30m"), at("2025-03-11T10:10:00Z")
    assert shown(schedule.following(began, began)) == "2025-03-11 11:40"
    assert shown(schedule.following(began, at("2025-03-11T11:40:00Z"))) == "2025-03-11 13:10"
    assert schedule.latest(began, at("2025-03-11T11:39:59Z")) is None
    assert shown(schedule.latest(began, at("2025-03-11T14:00:00Z"))) == "2025-03-11 13:10"


def test_every_is_never_shorter_than_a_second() -> None:
    assert parse("@every 10ms").following(100, 100) == 101


@pytest.mark.parametrize(
    ("since", "until", "due"),
    [
        ("2025-03-11T10:00:00Z", "2025-03-11T10:07:00Z", "2025-03-11 10:05"),
        ("2025-03-11T10:00:00Z", "2025-03-11T10:05:00Z", "2025-03-11 10:05"),
        ("2025-03-11T10:05:00Z", "2025-03-11T10:09:59Z", "never"),
        ("2015-03-11T10:00:00Z", "2025-03-11T10:07:00Z", "2025-03-11 10:05"),
    ],
)
def test_the_latest_due_time_is_the_last_one_not_after_now(
    since: str, until: str, due: str
) -> None:
    assert shown(parse("*/5 * * * *").latest(at(since), at(until))) == due


def test_missed_times_are_counted_up_to_a_bound() -> None:
    schedule, since = parse("*/5 * * * *"), at("2025-03-11T10:00:00Z")

    def count(until: str, most: int) -> int:
        return missed(schedule, since=since, after=since, at=at(until), most=most)

    assert count("2025-03-11T10:04:00Z", 100) == 0
    assert count("2025-03-11T11:00:00Z", 100) == 12
    assert count("2026-03-11T11:00:00Z", 100) == 101


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty schedule"),
        ("wrong shcedlue", "expected exactly 5 fields, found 2: [wrong shcedlue]"),
        ("* * * * * *", "expected exactly 5 fields, found 6"),
        ("60 * * * *", "minute: end of range (60) above maximum (59)"),
        ("* 24 * * *", "hour: end of range (24) above maximum (23)"),
        ("* * 0 * *", "day of month: beginning of range (0) below minimum (1)"),
        ("* * * 13 *", "month: end of range (13) above maximum (12)"),
        ("* * * * 7", "day of week: end of range (7) above maximum (6)"),
        ("9-3 * * * *", "minute: beginning of range (9) beyond end of range (3)"),
        ("*/0 * * * *", "minute: step of range should be a positive number"),
        ("a * * * *", "minute: failed to parse int from 'a'"),
        ("-1 * * * *", "minute: failed to parse int"),
        ("1-2-3 * * * *", "minute: failed to parse int from '2-3'"),
        ("*/5/2 * * * *", "minute: failed to parse int from '5/2'"),
        ("² * * * *", "minute: failed to parse int"),
        (", * * * *", "minute is empty"),
        ("@never", "unrecognized descriptor: @never"),
        ("@every soon", "failed to parse duration @every soon"),
        ("TZ=Mars/Base 0 0 * * *", "unknown time zone 'Mars/Base'"),
        ("TZ=UTC", "expected exactly 5 fields, found 0"),
    ],
)
def test_a_bad_schedule_is_refused_with_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse(text)


@pytest.mark.parametrize(
    "name", ["Local", "Mars/Base", "New York", "UTC!", "Asia/./Shanghai", "../passwd", "\0", "Asia"]
)
def test_an_unknown_time_zone_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        zone(name)


def test_no_time_zone_is_utc() -> None:
    assert zone("") is UTC


@pytest.mark.parametrize("text", ["0 0 * * *", "@every 1h", "0 0 29 2 *"])
@pytest.mark.parametrize("year", [1, 2, 9998, 9999])
def test_nothing_is_due_where_the_calendar_ends(text: str, year: int) -> None:
    """The status of a CronJob, which its owner may write, says any time of RFC 3339."""
    schedule = parse(text, within=zone("Pacific/Kiritimati"))
    for month, day in ((1, 1), (12, 31)):
        at = int(datetime(year, month, day, 12, tzinfo=UTC).timestamp())
        for found in (schedule.following(at, at), schedule.latest(at - 1, at)):
            assert found is None or found >= at - 1
