"""Moments and durations in Volcano's forms. Pure: `now_s` is an argument."""

import datetime as dt
from typing import Final

UNKNOWN: Final = "<unknown>"
_INVALID: Final = "<invalid>"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below so many seconds: in which unit, and in which smaller one the rest is told."""


def parsed(moment: str) -> dt.datetime | None:
    """Return a moment of the API server's, None for an empty one."""
    return dt.datetime.fromisoformat(moment) if moment else None


def age(moment: str, now_s: float) -> str:
    """Return how long ago a moment was; `<unknown>` if there is none."""
    then = parsed(moment)
    return span(now_s - then.timestamp()) if then else UNKNOWN


def event_age(moment: str, now_s: float) -> str:
    """Return the age of an event: ⚠ Volcano tells the days beside whole years there (`2y0d`)."""
    told = age(moment, now_s)
    then = parsed(moment)
    years = then is not None and 2 * _YEAR <= now_s - then.timestamp() < 8 * _YEAR
    return f"{told}0d" if years and told.endswith("y") else told


def span(seconds: float) -> str:
    """Return a duration in one or two units, more exact the shorter it is."""
    whole = int(seconds)
    if whole < -1:
        return _INVALID
    whole = max(whole, 0)
    for below, unit, sign, smaller, small_sign in _STEPS:
        if whole < below:
            rest = whole % unit // smaller if smaller else 0
            return f"{whole // unit}{sign}" + (f"{rest}{small_sign}" if rest else "")
    return f"{whole // _YEAR}y"


def stamp(moment: str) -> str:
    """Return a moment in local time as Go prints it."""
    then = parsed(moment)
    if then is None:
        return "0001-01-01 00:00:00 +0000 UTC"
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")


def day(moment: str) -> str:
    """Return the local day of a moment."""
    then = parsed(moment)
    return then.astimezone().strftime("%Y-%m-%d") if then else "0001-01-01"
