"""The value types of settings: durations as people write them, and secrets that stay secret."""

from typing import NewType

from typing_extensions import override

from shared.model import durations
from shared.runtime.errors import Rejected

Seconds = NewType("Seconds", float)
"""A duration; written `200ms`, `1s`, `5m`, `1m30s` or as a plain number of seconds."""


def seconds(text: str) -> Seconds:
    """Read a duration in Go's notation (K10: `--schedule-period 1s`), or a plain number.

    Raises `Rejected` for anything else, negative durations included.
    """
    found = durations.setting(text)
    if found is None or text[0] in "+-":
        raise Rejected(f"{text!r} is not a duration (write it like 200ms, 1s or 5m)")
    return Seconds(found)


def show_seconds(value: float) -> str:
    """Return the duration as `seconds` reads it, in the largest unit that stays whole."""
    for unit, size in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if value and value % size == 0:
            return f"{value / size:.0f}{unit}"
    return f"{value * 1000:g}ms" if value else "0s"


class Secret:
    """A credential: comes from a file or the environment, never shows itself.

    `reveal()` is the only way to the text, so that each use is visible in the code.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the credential itself, for the one call that needs it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    @override
    def __hash__(self) -> int:
        return hash(self._text)

    @override
    def __repr__(self) -> str:
        return "Secret(***)" if self._text else "Secret()"
