"""Which subjects a filter of NATS takes: tokens between dots, `*` for one, `>` for the rest."""

from collections.abc import Iterable
from typing import Final

_REMEMBERED: Final = 20_000
"""Subjects that a filter remembers: those of pods are ever new ones."""


def matches(pattern: str, subject: str) -> bool:
    """Return whether `subject` (without wildcards) is one of those that `pattern` takes."""
    expected, actual = pattern.split("."), subject.split(".")
    for place, part in enumerate(expected):
        if part == ">":
            return len(actual) > place
        if place >= len(actual) or part not in ("*", actual[place]):
            return False
    return len(expected) == len(actual)


def overlap(one: str, two: str) -> bool:
    """Return whether some subject is taken by both patterns."""
    for left, right in zip(one.split("."), two.split("."), strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return one.count(".") == two.count(".")


class Filter:
    """Several patterns at once, remembering what it found (subjects come again and again)."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._known: dict[str, bool] = {}

    def takes(self, subject: str) -> bool:
        """Return whether one of the patterns takes `subject`; without patterns all are taken."""
        if not self.patterns:
            return True
        known = self._known.get(subject)
        if known is None:
            known = any(matches(pattern, subject) for pattern in self.patterns)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[subject] = known
        return known
