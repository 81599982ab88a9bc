"""Cron schedules: when a CronJob is due (X01). Admission checks them, the controller follows them.

A schedule is five fields (minute, hour, day of the month, month, day of the week), or `@hourly`
and its like, or `@every 1h30m`, with or without `TZ=Zone` in front. Grammar and meaning are those
of the Go library that Volcano and Kubernetes use:

- `?` is `*`; months and weekdays have English names; Sunday is 0 and nothing is 7; `5/15` is
  `5-59/15`;
- a day matches when both day fields match, or either one if neither begins with a bare `*`;
- a due time is an instant whose *wall clock* matches: a time that the clock skips in spring is
  skipped, one that it shows twice in autumn is due twice.

Instants are whole Unix seconds. Nothing here reads the clock; time zones are those of the system
or, where it has none, of the package tzdata.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from shared.model import durations

_HORIZON_DAYS: Final = 9 * 366
"""Further than that no due time is searched: 29 February is at most eight years away."""
_DAY_S: Final = 86_400
_YEARS: Final = range(2, 9999)
"""Years all of whose days have neighbours in Python's calendar; nothing is due outside of them."""
_FIRST_S: Final = int(datetime(_YEARS[0], 1, 1, tzinfo=UTC).timestamp())
_LAST_S: Final = int(datetime(_YEARS[-1], 12, 31, tzinfo=UTC).timestamp())
_MONTHS: Final = {name: n for n, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
)}  # fmt: skip
_WEEKDAYS: Final = {
    name: n for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
}
_SHORTHANDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_DIGITS_MAX: Final = 18
"""Of a number that Go's 64 bits surely hold."""
_ZONE_PREFIXES: Final = ("TZ=", "CRON_TZ=")


class Schedule(Protocol):
    """When something is due. `since` is where `@every` counts from; the others do without it."""

    def following(self, since: int, at: int) -> int | None:
        """Return the first due time after `at`; None when there is none for years."""
        ...

    def latest(self, since: int, at: int) -> int | None:
        """Return the last due time after `since` and not after `at`, if there is one."""
        ...


def zone(name: str) -> tzinfo:
    """Return a time zone of the IANA database, UTC for ""; ValueError names one that is unknown."""
    if not name:
        return UTC
    if name == "Local":
        raise ValueError("unknown time zone 'Local': name one of the IANA database")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


def names_zone(text: str) -> bool:
    """Tell whether a schedule names its own time zone, which Volcano takes but warns of."""
    return "TZ" in text


def parse(text: str, *, within: tzinfo = UTC) -> Schedule:
    """Return the schedule that `text` stands for; ValueError says what is wrong with it.

    `within` is the zone of its wall clock, unless it names one itself.
    """
    text = text.strip()
    if not text:
        raise ValueError("empty schedule")
    if text.startswith(_ZONE_PREFIXES):
        head, _, text = text.partition(" ")
        within = zone(head.partition("=")[2])
        text = text.strip()
    if text.startswith(_EVERY):
        return _Every(_interval_s(text.removeprefix(_EVERY)))
    if text.startswith("@") and text not in _SHORTHANDS:
        raise ValueError(f"unrecognized descriptor: {text}")
    fields = _SHORTHANDS.get(text, text).split()
    if len(fields) != len(_FIELDS):
        found = " ".join(fields)
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{found}]")
    return _WallClock(*(_field(field, form) for field, form in zip(fields, _FIELDS, strict=True)),
                      within=within)  # fmt: skip


def missed(schedule: Schedule, *, since: int, after: int, at: int, most: int) -> int:
    """Count the due times after `after` and not after `at`; stops counting beyond `most`."""
    count = 0
    due = schedule.following(since, after)
    while due is not None and due <= at and count <= most:
        count += 1
        due = schedule.following(since, due)
    return count


class _Form:
    """Values that one of the five fields may hold."""

    def __init__(self, name: str, least: int, most: int, names: Mapping[str, int]) -> None:
        self.name = name
        self.least = least
        self.most = most
        self.names = names


_FIELDS: Final = (
    _Form("minute", 0, 59, {}),
    _Form("hour", 0, 23, {}),
    _Form("day of month", 1, 31, {}),
    _Form("month", 1, 12, _MONTHS),
    _Form("day of week", 0, 6, _WEEKDAYS),
)


class _Field:
    """The values that a field admits."""

    def __init__(self, values: frozenset[int], *, free: bool) -> None:
        self.values = values
        self.free = free
        """Whether it holds a bare `*`, which leaves the decision to the other day field."""


def _field(text: str, form: _Form) -> _Field:
    values: set[int] = set()
    free = False
    for part in filter(None, text.split(",")):
        found, is_free = _range(part, form)
        values.update(found)
        free = free or is_free
    if not values:
        raise ValueError(f"{form.name} is empty: {text!r}")
    return _Field(frozenset(values), free=free)


def _range(text: str, form: _Form) -> tuple[range, bool]:
    """Return the values of `*`, `7`, `1-5`, each with or without `/2`, and whether it is bare."""
    ends, slash, step_text = text.partition("/")
    step = _number(step_text, form, {}) if slash else 1
    if step == 0:
        raise ValueError(f"{form.name}: step of range should be a positive number: {text}")
    if ends in {"*", "?"}:
        return range(form.least, form.most + 1, step), step == 1
    low_text, hyphen, high_text = ends.partition("-")
    low = _number(low_text, form, form.names)
    high = low
    if hyphen:
        high = _number(high_text, form, form.names)
    elif slash:
        high = form.most
    if low < form.least:
        raise ValueError(
            f"{form.name}: beginning of range ({low}) below minimum ({form.least}): {text}"
        )
    if high > form.most:
        raise ValueError(f"{form.name}: end of range ({high}) above maximum ({form.most}): {text}")
    if low > high:
        raise ValueError(
            f"{form.name}: beginning of range ({low}) beyond end of range ({high}): {text}"
        )
    return range(low, high + 1, step), False


def _number(text: str, form: _Form, names: Mapping[str, int]) -> int:
    if (named := names.get(text.lower())) is not None:
        return named
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise ValueError(f"{form.name}: failed to parse int from {text!r}")
    return int(text)


def _interval_s(text: str) -> int:
    try:
        return max(1, int(durations.seconds(text.strip())))
    except ValueError as error:
        raise ValueError(f"failed to parse duration {_EVERY}{text}: {error}") from error


class _Every:
    """`@every`: due again and again after the same time."""

    def __init__(self, interval_s: int) -> None:
        self._interval_s = interval_s

    def following(self, since: int, at: int) -> int | None:
        past = max(0, at - since) // self._interval_s
        return since + (past + 1) * self._interval_s

    def latest(self, since: int, at: int) -> int | None:
        past = max(0, at - since) // self._interval_s
        return since + past * self._interval_s if past else None


class _WallClock:
    """Five fields: due whenever the clock on the wall shows what they admit."""

    def __init__(
        self,
        minute: _Field,
        hour: _Field,
        day: _Field,
        month: _Field,
        weekday: _Field,
        *,
        within: tzinfo,
    ) -> None:
        self._day = day
        self._month = month
        self._weekday = weekday
        self._zone = within
        self._seconds = sorted(
            h * 3600 + m * 60 for h, m in itertools.product(hour.values, minute.values)
        )

    def following(self, since: int, at: int) -> int | None:
        at = max(since, at)
        for day in self._days(at, step=1):
            times = self._times(day)
            place = bisect_right(times, at)
            if place < len(times):
                return times[place]
        return None

    def latest(self, since: int, at: int) -> int | None:
        for day in self._days(at, step=-1):
            times = self._times(day)
            place = bisect_right(times, at)
            if place:
                return times[place - 1] if times[place - 1] > since else None
            if times and times[0] <= since:
                return None
        return None

    def _days(self, at: int, *, step: int) -> Iterator[date]:
        """Yield the days that match, from the day of `at` on, forwards or backwards."""
        if not _FIRST_S <= at <= _LAST_S:
            return
        first = datetime.fromtimestamp(at, self._zone).date()
        for number in range(_HORIZON_DAYS):
            day = first + timedelta(days=step * number)
            if not _YEARS[0] <= day.year <= _YEARS[-1]:
                return
            if day.month in self._month.values and self._admits(day):
                yield day

    def _admits(self, day: date) -> bool:
        by_day = day.day in self._day.values
        by_weekday = day.isoweekday() % 7 in self._weekday.values
        if self._day.free or self._weekday.free:
            return by_day and by_weekday
        return by_day or by_weekday

    def _times(self, day: date) -> list[int]:
        """Return the due times of a day in their order."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self._zone)
        begin, end = _instant(midnight), _instant(midnight + timedelta(days=1))
        if end - begin == _DAY_S and midnight.fold == 0:
            return [begin + second for second in self._seconds]
        times = {
            instant
            for second in self._seconds
            for fold in (0, 1)
            if (instant := self._shown(midnight, second, fold)) is not None
        }
        return sorted(times)

    def _shown(self, midnight: datetime, second: int, fold: int) -> int | None:
        """Return when the clock shows a time of the day, the second time with `fold`; or never."""
        wall = (midnight + timedelta(seconds=second)).replace(fold=fold)
        instant = _instant(wall)
        shown = datetime.fromtimestamp(instant, self._zone)
        return instant if shown.replace(tzinfo=None) == wall.replace(tzinfo=None) else None


def _instant(wall: datetime) -> int:
    return int(wall.timestamp())
