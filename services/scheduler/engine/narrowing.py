"""The engine's own types of the records that plugins know by protocols only."""

from typing import TypeVar

_T = TypeVar("_T")


def engine_record(record: object, kind: type[_T]) -> _T:
    """Return a record as the engine's own type; plugins receive records only from the engine."""
    assert isinstance(record, kind), f"{record!r} is not of this engine"
    return record
