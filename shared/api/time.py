"""RFC 3339 times, as Kubernetes writes them, from and to Unix seconds. Pure: now is an argument.

Object times have whole seconds (`2026-08-20T10:00:00Z`), those of Leases have microseconds.
"""

from datetime import UTC, datetime


def parse(text: str) -> float:
    """Return the Unix seconds of an RFC 3339 time; `ValueError` names the text when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(f"not an RFC 3339 time: {text!r}") from exc
    if moment.tzinfo is None:
        raise ValueError(f"an RFC 3339 time needs a zone: {text!r}")
    return moment.timestamp()


def read(text: str | None) -> float | None:
    """Return the Unix seconds of a time from any source, None when the text is no time."""
    try:
        return None if text is None else parse(text)
    except (ValueError, OverflowError):
        return None


def format_seconds(unix_s: float) -> str:
    """Return the time in whole seconds, cut off, as `metav1.Time` is written."""
    return datetime.fromtimestamp(int(unix_s // 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(unix_s: float) -> str:
    """Return the time in microseconds, as `metav1.MicroTime` is written."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
