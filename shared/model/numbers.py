"""Whole numbers and booleans in texts that users write: annotations, arguments, lists of indexes.

`int` takes digits of every script, and refuses more than some thousands of them with an error that
is no error of ours; what is longer than any number we mean is none here.
"""

from typing import Final

_DIGITS_MAX: Final = 18
"""As many fit into 64 bits."""
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def whole(text: str) -> int | None:
    """Return the number that some digits are, None for anything else."""
    if len(text) > _DIGITS_MAX or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 pod`, `2 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_bool(text: str | None) -> bool | None:
    """Return the boolean that Go's `strconv.ParseBool` reads, None where it reads none."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None
