"""RFC 3339 times, as Kubernetes writes them, from and to Unix seconds. Pure: now is an argument.

Object times have whole seconds (`2026-08-20T10:00:00Z`), those of Leases have microseconds.
"""

from datetime import UTC, datetime
from typing import Final

_BEGIN_S: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_END_S: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() + 1
"""The zone of a time may put it outside of the years 1 to 9999, and then it cannot be written."""


def parse(text: str) -> float:
    """Return the Unix seconds of an RFC 3339 time; `ValueError` names the text when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(f"not an RFC 3339 time: {text!r}") from exc
    if moment.tzinfo is None:
        raise ValueError(f"an RFC 3339 time needs a zone: {text!r}")
    unix_s = moment.timestamp()
    if not _BEGIN_S <= unix_s < _END_S:
        raise ValueError(f"not within the years 1 to 9999 of UTC: {text!r}")
    return unix_s


def read(text: str | None) -> float | None:
    """Return the Unix seconds of a time from any source, None when the text is no time."""
    try:
        return None if text is None else parse(text)
    except (ValueError, OverflowError):
        return None


def format_seconds(unix_s: float) -> str:
    """Return the time in whole seconds, cut off, as `metav1.Time` is written."""
    return datetime.fromtimestamp(int(unix_s // 1), UTC).isoformat().removesuffix("+00:00") + "Z"


def format_micro(unix_s: float) -> str:
    """Return the time in microseconds, as `metav1.MicroTime` is written."""
    moment = datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds")
    return moment.removesuffix("+00:00") + "Z"
