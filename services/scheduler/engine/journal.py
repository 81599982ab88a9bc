"""The journal: every change that a session makes, with its reverse (SS10).

    with journal.trial() as keep:
        if place_gang(session, job):
            keep()

Without `keep()` everything in the block is undone, at any nesting: the outer block also undoes what
an inner block kept. At the end of the session everything is undone; by then the plan contains what
was kept.
"""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Generic, Protocol, Self, TypeVar

_V = TypeVar("_V")


class UndoableChange(Protocol):
    """A change that was made and can be undone."""

    def undo(self, *, final: bool) -> None:
        """Undo it; `final` when the session ends and plugins need no call."""


class Doable(UndoableChange, Protocol):
    """A change that can be made."""

    def do(self) -> None:
        """Make it."""


class BrokenOff(Exception):  # noqa: N818 - reads as the fact it states
    """Making or undoing a change failed half-way: the changed records are in an unknown state."""

    job = ""
    """Key of the job that was handled."""

    @classmethod
    def at(cls, change: UndoableChange, error: Exception) -> Self:
        """Name the change and what it failed with."""
        return cls(f"{type(change).__name__} broke off: {type(error).__name__}: {error}")


class _Written(Generic[_V]):
    """A value that is kept between sessions was written, or deleted (None)."""

    def __init__(self, mapping: MutableMapping[str, _V], key: str, value: _V | None) -> None:
        self._kept = mapping
        self._key = key
        self._before = mapping.get(key)
        self._after = value

    def do(self) -> None:
        """Write the value."""
        self._write(self._after)

    def undo(self, *, final: bool) -> None:
        """Write the previous value; the value at the end of a session stays for the next one."""
        if not final:
            self._write(self._before)

    def _write(self, value: _V | None) -> None:
        if value is None:
            self._kept.pop(self._key, None)
        else:
            self._kept[self._key] = value


class Journal:
    """The changes of one session, oldest first."""

    def __init__(self) -> None:
        self._changes: list[UndoableChange] = []

    def make(self, change: Doable) -> None:
        """Make a change and record it. Raises `BrokenOff`."""
        try:
            change.do()
        except Exception as error:
            raise BrokenOff.at(change, error) from error
        self._changes.append(change)

    def write(self, mapping: MutableMapping[str, _V], key: str, value: _V | None) -> None:
        """Write, or delete (None), a value that is kept from session to session."""
        self.make(_Written(mapping, key, value))

    @property
    def position(self) -> int:
        """Number of changes so far."""
        return len(self._changes)

    def since(self, position: int) -> list[UndoableChange]:
        """Return the changes made since there were `position` of them."""
        return self._changes[position:]

    @contextmanager
    def trial(self) -> Iterator[Callable[[], None]]:
        """Undo the changes of the block unless the block calls the function that it receives."""
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
        """Undo all changes after `position`, newest first. Raises `BrokenOff`."""
        while len(self._changes) > position:
            change = self._changes.pop()
            try:
                change.undo(final=final)
            except Exception as error:
                raise BrokenOff.at(change, error) from error
