"""Compares the forms of two releases: which fields of a writer does a reader not take as meant?"""

from collections.abc import Iterator
from typing import Any, NamedTuple

Shape = Any
ANYTHING = ("any", "raw")


class Difference(NamedTuple):
    """Something that a reader does not take as its writer meant it."""

    how: str
    """`refused` with the whole message, `ignored`, `missing` to a reader who needs it, or another
    `type`."""
    where: str
    """`Struct.field`, or the struct alone."""


def differences(writer: Shape, reader: Shape) -> set[Difference]:
    """Return how what one release writes is not what another reads.

    Both are forms as `describe` prints them; types that only one of them has do not matter.
    """
    pair = _Pair(writer["structs"], reader["structs"])
    found: set[Difference] = set()
    for name in writer["types"].keys() & reader["types"].keys():
        found |= set(pair.between(writer["types"][name], reader["types"][name], name))
    return found


class _Pair:
    def __init__(self, writer: Shape, reader: Shape) -> None:
        self._writer = writer
        self._reader = reader
        self._seen: set[tuple[str, str]] = set()

    def between(self, written: Shape, read: Shape, where: str) -> Iterator[Difference]:
        """Yield the differences between two forms of one value."""
        if read in ANYTHING:
            return
        written_kind, wrote = _parts(written)
        read_kind, reads = _parts(read)
        if written_kind == "union" or read_kind == "union":
            for each in wrote if written_kind == "union" else [written]:
                yield from self._one_of(each, reads if read_kind == "union" else [read], where)
        elif written_kind == read_kind == "struct":
            yield from self._structs(wrote, reads)
        elif written_kind == read_kind == "enum":
            if not set(wrote) <= set(reads):
                yield Difference("refused", where)
        elif written_kind == read_kind in ("list", "map"):
            yield from self.between(wrote, reads, where)
        elif written != read and (written, read) != ("int", "float"):
            yield Difference("type", where)

    def _one_of(self, written: Shape, reads: list, where: str) -> Iterator[Difference]:
        """Compare a value with the one of several forms that is meant for it."""
        kind, wrote = _parts(written)
        if kind == "struct":
            tag = self._writer[wrote]["tag"]
            meant = [r for r in reads if _parts(r)[0] == "struct" and self._tag(r) == tag]
            where = _bare(wrote)
        else:
            meant = [r for r in reads if _parts(r)[0] == kind]
        if not meant and not any(r in ANYTHING for r in reads):
            yield Difference("refused", where)
        for form in meant[:1]:
            yield from self.between(written, form, where)

    def _tag(self, form: Shape) -> str | None:
        return self._reader[form["struct"]]["tag"]

    def _structs(self, wrote: str, reads: str) -> Iterator[Difference]:
        if (wrote, reads) in self._seen:
            return
        self._seen.add((wrote, reads))
        writer, reader = self._writer[wrote], self._reader[reads]
        for name, field in writer["fields"].items():
            where = f"{_bare(wrote)}.{name}"
            known = reader["fields"].get(name)
            if known is None:
                yield Difference("refused" if reader["strict"] else "ignored", where)
            else:
                yield from self.between(field["type"], known["type"], where)
        for name, field in reader["fields"].items():
            given = writer["fields"].get(name)
            always = given is not None and (given["required"] or writer["fills"])
            if field["required"] and not always:
                yield Difference("missing", f"{_bare(reads)}.{name}")


def _parts(form: Shape) -> tuple[str, Any]:
    return next(iter(form.items())) if isinstance(form, dict) else (form, None)


def _bare(struct: str) -> str:
    return struct.rpartition(".")[2]
