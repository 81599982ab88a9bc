"""The journal: every change that a session makes, with its reverse (SS10).

    with journal.trial() as keep:
        if place_gang(session, job):
            keep()

Nothing kept means everything undone, at any nesting: an inner `keep()` is undone by the outer
block. At the end of the session everything is undone, kept or not; what was kept is in the plan by
then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Change(Protocol):
    """Something that was done and can be taken back."""

    def undo(self, *, final: bool) -> None:
        """Take it back; `final` when the session ends and plugins need not hear of it."""


class Journal:
    """The changes of one session, oldest first."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def record(self, change: Change) -> None:
        """Note a change that was just made."""
        self._changes.append(change)

    @property
    def position(self) -> int:
        """Number of changes so far."""
        return len(self._changes)

    def since(self, position: int) -> list[Change]:
        """Return the changes made since there were `position` of them."""
        return self._changes[position:]

    @contextmanager
    def trial(self) -> Iterator[Callable[[], None]]:
        """Undo what happens in the block unless it calls what it was given."""
        position = self.position
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        try:
            yield keep
        finally:
            if not kept:
                self.undo_to(position)

    def undo_to(self, position: int, *, final: bool = False) -> None:
        """Take back all changes beyond `position`, newest first."""
        while len(self._changes) > position:
            self._changes.pop().undo(final=final)
