"""Verdicts on cases and how they are printed."""

import enum
from typing import NamedTuple


class Grade(enum.StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    UNSUPPORTED = "UNSUPPORTED"


class Verdict(NamedTuple):
    """The outcome of one case."""

    case: str
    grade: Grade
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.grade} {self.case} {self.reason}".rstrip()


class Unsupported(Exception):  # noqa: N818 - the fact
    """The case needs something that is not implemented; the text names it."""


class Mismatch(Exception):  # noqa: N818 - the fact
    """The decision is not the recorded one; the text shows both."""


def expect(what: str, actual: object, wanted: object) -> None:
    """Raise `Mismatch` unless both are equal."""
    if actual != wanted:
        raise Mismatch(f"{what}: {actual!r}, recorded {wanted!r}")


def summary(verdicts: list[Verdict]) -> str:
    counts = [sum(v.grade is grade for v in verdicts) for grade in Grade]
    return f"{counts[0]} passed, {counts[1]} failed, {counts[2]} unsupported of {len(verdicts)}"
