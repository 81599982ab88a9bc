"""The journal: every change that a session makes, with its reverse (SS10).

    with journal.trial() as keep:
        if place_gang(session, job):
            keep()

Nothing kept means everything undone, at any nesting: an inner `keep()` is undone by the outer
block. At the end of the session everything is undone, kept or not; what was kept is in the plan by
then.
"""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Generic, Protocol, Self, TypeVar

_V = TypeVar("_V")


class UndoableChange(Protocol):
    """Something that was done and can be taken back."""

    def undo(self, *, final: bool) -> None:
        """Take it back; `final` when the session ends and plugins need no call."""


class Doable(UndoableChange, Protocol):
    """A change that can be made."""

    def do(self) -> None:
        """Make it."""


class BrokenOff(Exception):  # noqa: N818 - reads as the fact it states
    """A change, or taking it back, failed half-way: what it acted on is in no known state."""

    job = ""
    """Key of the job that was at hand."""

    @classmethod
    def at(cls, change: UndoableChange, error: Exception) -> Self:
        """Name the change and what it failed with."""
        return cls(f"{type(change).__name__} broke off: {type(error).__name__}: {error}")


class _Written(Generic[_V]):
    """A value that outlives sessions was written, or deleted (None)."""

    def __init__(self, mapping: MutableMapping[str, _V], key: str, value: _V | None) -> None:
        self._kept = mapping
        self._key = key
        self._before = mapping.get(key)
        self._after = value

    def do(self) -> None:
        """Write the value."""
        self._write(self._after)

    def undo(self, *, final: bool) -> None:
        """Write the value before; what stands at the end of a session stays for the next one."""
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
        """Make a change and note it. Raises `BrokenOff`."""
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
        """Take back all changes beyond `position`, newest first. Raises `BrokenOff`."""
        while len(self._changes) > position:
            change = self._changes.pop()
            try:
                change.undo(final=final)
            except Exception as error:
                raise BrokenOff.at(change, error) from error
