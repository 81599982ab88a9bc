"""The engine's own records behind what plugins hand back; plugins know them by protocols."""

from typing import TypeVar

_T = TypeVar("_T")


def own(record: object, kind: type[_T]) -> _T:
    """Return a record as what it is: what plugins get comes from the engine and nowhere else."""
    assert isinstance(record, kind), f"{record!r} is not of this engine"
    return record
