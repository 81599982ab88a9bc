"""Reading a plugin's or action's arguments.

A value of the wrong kind is refused when the configuration is loaded (upstream takes the default
and logs); numbers and booleans may be quoted, as users of Volcano write them.
"""

from typing import Any

from pumice.plugins import Arguments
from shared.model import durations
from shared.model.numbers import parse_bool


class BadArgument(ValueError):  # noqa: N818 - reads as the fact it states
    """An argument that cannot be used; the message names it."""


def integer(arguments: Arguments, key: str, default: int) -> int:
    """Return an integer argument."""
    value = _given(arguments, key, default)
    try:
        return int(str(value))
    except ValueError as error:
        raise BadArgument(f"{key}: {value!r} is no integer") from error


def number(arguments: Arguments, key: str, default: float) -> float:
    """Return a numeric argument."""
    value = _given(arguments, key, default)
    try:
        return float(str(value))
    except ValueError as error:
        raise BadArgument(f"{key}: {value!r} is no number") from error


def boolean(arguments: Arguments, key: str, *, default: bool) -> bool:
    """Return a true or false argument."""
    value = str(_given(arguments, key, default))
    truth = parse_bool(value)
    if truth is None:
        raise BadArgument(f"{key}: {value!r} is neither true nor false")
    return truth


def seconds(arguments: Arguments, key: str, default: float) -> float:
    """Return a duration, `90s`, `5m` or a plain number of seconds; not negative."""
    text = str(_given(arguments, key, default))
    found = float(text) if text.replace(".", "", 1).isdecimal() else durations.parse(text)
    if found is None or found < 0:
        raise BadArgument(f"{key}: {text!r} is no duration such as 300s or 5m")
    return found


def text(arguments: Arguments, key: str, default: str = "") -> str:
    """Return a text argument."""
    value = _given(arguments, key, default)
    if not isinstance(value, str):
        raise BadArgument(f"{key}: {value!r} is no text")
    return value


def names(arguments: Arguments, key: str) -> list[str]:
    """Return a comma separated list."""
    value = arguments.get(key)
    if value is None:
        return []
    return [name.strip() for name in str(value).split(",") if name.strip()]


def _given(arguments: Arguments, key: str, default: object) -> Any:  # noqa: ANN401 - free YAML
    value = arguments.get(key)
    return default if value is None or value == "" else value
