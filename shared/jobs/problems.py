"""Problems of an object, by field; and the forms that names must have."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from shared.api.base import describe_decode_error

LABEL_MAX: Final = 63
NAME_MAX: Final = 253
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN: Final = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
_TEXT_MAX: Final = 1024
"""Most letters of a reported fault; a value or path in it may be as long as an object."""
_LISTED_MAX: Final = 10
_FAULTS_MAX: Final = 20
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class Problem(msgspec.Struct, frozen=True):
    """One fault: the path of the field and what is wrong with it.

    `reason` holds Volcano's words where it has some, so that a search for them finds them.
    """

    path: str
    reason: str

    @override
    def __str__(self) -> str:
        text = f"{self.path}: {self.reason}"
        return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."


Problems = Iterator[Problem]


def unqualified(name: str) -> str:
    """Return why `name` can be no label's value, which names of jobs and pods become, or ""."""
    if not name:
        return "name part must be non-empty"
    if not _QUALIFIED.fullmatch(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and"
            " end with an alphanumeric character"
        )
    if len(name) > LABEL_MAX:
        return (
            f"name part must be no more than {LABEL_MAX} characters: has {len(name)} letters, and"
            f" pods carry it as a label, {LABEL_MAX} at most"
        )
    return ""


def unreadable(error: msgspec.ValidationError) -> Problem:
    """Return the fault of an object that a view cannot be made of: a value of a wrong type."""
    path, _, why = describe_decode_error(error).rpartition(": ")
    return Problem(path, why)


def texts(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the first faults as texts, and how many more there are: it may be thousands."""
    texts = [str(problem) for problem in problems[:_FAULTS_MAX]]
    left = len(problems) - _FAULTS_MAX
    return (*texts, f"and {left} more faults") if left > 0 else tuple(texts)


def some(names: Sequence[str]) -> str:
    """Return the first of the names, for a sentence that must not become a book."""
    shown = ", ".join(names[:_LISTED_MAX])
    left = len(names) - _LISTED_MAX
    return f"{shown} and {left} more" if left > 0 else shown


def listed(names: Iterable[str]) -> str:
    """Return names in alphabetical order, for a sentence."""
    return ", ".join(sorted(names))
