"""Regular expressions of users, as Volcano reads them: RE2, the language of Go.

Python's patterns can take exponential time, so that one HyperNode could stop a scheduler; RE2 takes
linear time.
"""

from collections.abc import Callable
from typing import Any, Final

import re2

PATTERN_MAX: Final = 4096
"""Letters of a pattern; the names that it is for have 253 at most."""

_WORDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "pattern too large - compile failed": "expression too large",
}
"""The library's error texts → those of Go's RE2, which Volcano's users know."""


class BadPattern(ValueError):  # noqa: N818 - reads as the fact it states
    """A pattern that cannot be read; the message is Go's."""


def finder(pattern: str) -> Callable[[str], bool]:
    """Return a predicate: whether a text contains a match. Raises `BadPattern`."""
    if len(pattern) > PATTERN_MAX:
        raise BadPattern("error parsing regexp: expression too large")
    found = compiled(pattern)
    return lambda text: found.search(text) is not None


def compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    """Return a compiled pattern of any length. Raises `BadPattern`."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(f"error parsing regexp: {_text_of(error)}") from error


def _text_of(error: Exception) -> str:
    reason = error.args[0] if error.args else b""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    fault, colon, where = text.partition(": ")
    message = _WORDS.get(fault, fault)
    return f"{message}: `{where}`" if colon else message
