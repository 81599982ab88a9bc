"""Durations in Go's notation, as Volcano writes them: `timeout: 10m`, `1m3s`."""

import re
from typing import Final

_UNIT_S: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
_TERM: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_TERM.pattern})+")


def seconds(text: str) -> float:
    """Return the seconds of a duration, 0.0 for an empty one; ValueError when it is none."""
    if text in {"", "0"}:
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration such as 30s, 10m or 1h30m")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _TERM.findall(text))


def text(whole_s: int) -> str:
    """Return whole seconds as Go prints them: `63` becomes `1m3s`."""
    minutes, rest = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
