"""The optional file in which the embedded API server keeps its objects from one run to the next.

One line per write, appended as it happens; at the start the file is read and written again without
what has been overwritten since. A last line that was torn by a kill is left out. Nothing is synced
to the disk: a power loss may cost the last writes, as with the etcd of the local stack.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from pumice.embedded.apiserver.replies import Object
from pumice.embedded.apiserver.store import DELETED, ApiStore, ObjectVersion, StoreWrite

_GONE: Final = msgspec.Raw(b"null")


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    resource: str
    key: str
    version: int
    body: msgspec.Raw = _GONE
    """null for a delete."""


_lines = msgspec.json.Decoder(_Line)


class StoreJournal:
    """Writes down each change of a store; `flush` after a burst of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def load(self) -> Iterator[tuple[str, str, ObjectVersion]]:
        """Yield kind, key and last state of each object that is kept, oldest write first."""
        latest: dict[tuple[str, str], _Line] = {}
        newest = 0
        for line in self._read():
            newest = max(newest, line.version)
            latest.pop((line.resource, line.key), None)
            if bytes(line.body) != bytes(_GONE):
                latest[line.resource, line.key] = line
        lines = sorted(latest.values(), key=lambda line: line.version)
        self._rewrite(lines, newest)
        for line in lines:
            yield line.resource, line.key, ObjectVersion(bytes(line.body), line.version)

    def version(self) -> int:
        """Return the version of the last write, deletes included."""
        return max((line.version for line in self._read()), default=0)

    def follow(self, store: ApiStore) -> None:
        """Write down all further changes of a store."""
        self._file = self._path.open("ab")
        store.listeners.append(self._note)

    def flush(self) -> None:
        """Hand all written lines to the kernel."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note(self, change: StoreWrite, obj: Object) -> None:
        del obj
        assert self._file is not None
        gone = change.op == DELETED
        line = _Line(
            resource=change.resource,
            key=change.key,
            version=change.version,
            body=_GONE if gone else msgspec.Raw(change.after.body),
        )
        self._file.write(msgspec.json.encode(line) + b"\n")

    def _read(self) -> Iterator[_Line]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for raw in file:
                try:
                    yield _lines.decode(raw)
                except msgspec.DecodeError:
                    if raw.endswith(b"\n"):
                        raise
                    return  # torn by a kill

    def _rewrite(self, lines: list[_Line], newest: int) -> None:
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            for line in lines:
                file.write(msgspec.json.encode(line) + b"\n")
            mark = _Line(resource="", key="", version=newest)
            file.write(msgspec.json.encode(mark) + b"\n")
        fresh.chmod(0o600)
        fresh.replace(self._path)
