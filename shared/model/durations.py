"""Durations in Go's notation (`time.ParseDuration`), as Volcano writes them: `10m`, `1m3s`."""

import re
from typing import Final

_UNIT_S: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
"""Of the two spellings of a microsecond one is the sign, one the Greek letter."""
_TERM: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_DURATION: Final = re.compile(rf"([+-]?)((?:{_TERM.pattern})+|0)")
_MOST_S: Final = (1 << 63) / 1e9
"""Go counts nanoseconds in 64 bits: 292 years."""
_SHOWN: Final = 40


def parse(text: str) -> float | None:
    """Return the seconds of a duration with or without a sign, None when the text is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total_s = sum(float(number) * _UNIT_S[unit] for number, unit in _TERM.findall(match[2]))
    return -total_s if match[1] == "-" else total_s


def setting(text: str) -> float | None:
    """Return the seconds of a duration, or of a plain number, None when the text is neither."""
    return float(text) if _NUMBER.fullmatch(text) else parse(text)


def seconds(text: str) -> float:
    """Return the seconds of a duration without a sign, 0.0 for an empty one.

    Raises ValueError when the text is no duration, or one beyond Go's 64 bits of nanoseconds.
    """
    if not text:
        return 0.0
    total_s = None if text[0] in "+-" else parse(text)
    if total_s is None:
        raise ValueError(f"{_short(text)!r} is no duration such as 30s, 10m or 1h30m")
    if total_s >= _MOST_S:
        raise ValueError(f"{_short(text)!r} is no duration: 292 years are the most")
    return total_s


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def text(whole_s: int) -> str:
    """Return whole seconds as Go prints them: `63` becomes `1m3s`."""
    minutes, rest = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
