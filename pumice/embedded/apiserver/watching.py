"""One watch: the changes since a version, as the lines that the API server sends."""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import Object, RequestFailure
from pumice.embedded.apiserver.store import ADDED, DELETED, MODIFIED, ObjectVersion, StoreWrite

LONGEST_BACKLOG: Final = 100_000
"""Lines that a watcher may be behind before it is cut off, as the real server does."""
BOOKMARK_EVERY_S: Final = 60.0
LAST_BOOKMARK_S: Final = 2.0
"""How long before the end of a watch its last bookmark comes."""

Accepts = Callable[[str, bytes], bool]
"""Returns by key and body whether an object is selected."""


def line(kind: str, body: bytes) -> bytes:
    """Return one event."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)


class Watch:
    """Hands out events; `on_change` is called when there are some, or when it has ended."""

    content_type = "application/json"

    def __init__(
        self,
        resource: ApiResource,
        *,
        accepts: Accepts | None,
        prefix: str,
        convert: Callable[[bytes], bytes] | None,
        bookmarks: bool,
        now: float,
        ends_at: float | None,
        table: "Callable[[Object, bool], Object] | None" = None,
    ) -> None:
        self.resource = resource
        self.ended = False
        self.bookmarks = bookmarks
        self.ends_at = ends_at
        self.bookmark_at = self.next_bookmark(now)
        self._accepts = accepts
        self._prefix = prefix
        self._convert = convert if table is None else self._as_table(table)
        self._lines: list[bytes] = []
        self._tell: Callable[[], None] | None = None

    @staticmethod
    def _as_table(table: Callable[[Object, bool], Object]) -> Callable[[bytes], bytes]:
        """Return the conversion of objects to tables of one row; only the first names columns."""
        first = [True]

        def convert(body: bytes) -> bytes:
            row = table(msgspec.json.decode(body), first[0])
            first[0] = False
            return msgspec.json.encode(row)

        return convert

    def take(self) -> list[bytes]:
        """Return the events since the last call, each one line of JSON."""
        lines, self._lines = self._lines, []
        return lines

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` (no arguments) whenever `take` has something or the watch has ended."""
        self._tell = callback

    def close(self) -> None:
        """End the watch; lines that are not taken yet can still be taken."""
        if not self.ended:
            self.ended = True
            if self._tell is not None:
                self._tell()

    def fail(self, failure: RequestFailure) -> None:
        """Send an error and end the watch."""
        self._push(line("ERROR", msgspec.json.encode(failure.status)))
        self.close()

    def initial(self, key: str, entry: ObjectVersion) -> None:
        """Send an object that was there before."""
        if self._selects(key, entry.body):
            self._push(self._line(ADDED, entry.body))

    def next_bookmark(self, now: float) -> float:
        """Return when a bookmark is due that follows one of `now`; beyond the end: none is."""
        last = math.inf if self.ends_at is None else self.ends_at - LAST_BOOKMARK_S
        due = min(now + BOOKMARK_EVERY_S, last)
        return due if due > now else math.inf

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Send a bookmark: the version up to which everything has been sent."""
        metadata: Object = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        bookmark = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        self._push(self._line("BOOKMARK", msgspec.json.encode(bookmark)))

    def feed(self, change: StoreWrite, lines: dict[str, bytes]) -> None:
        """Send a change as this watcher sees it; `lines` are shared by all watchers of it."""
        if not change.key.startswith(self._prefix):
            return
        if self._accepts is None:
            op, body = change.op, change.after.body
        else:
            seen = self._seen(change)
            if seen is None:
                return
            op, body = seen
        if self._convert is not None:
            self._push(self._line(op, body))
            return
        shared = lines.get(op)
        if shared is None:
            shared = lines[op] = line(op, body)
        self._push(shared)

    def _seen(self, change: StoreWrite) -> tuple[str, bytes] | None:
        """Return the event of a watcher with a selector: objects come into view and leave it."""
        before = change.before is not None and self._selects(change.key, change.before.body)
        after = change.op != DELETED and self._selects(change.key, change.after.body)
        if after:
            return (MODIFIED if before else ADDED), change.after.body
        if not before:
            return None
        if change.op == DELETED or change.before is None:
            return DELETED, change.after.body
        last = msgspec.json.decode(change.before.body)
        last["metadata"]["resourceVersion"] = str(change.version)
        return DELETED, msgspec.json.encode(last)

    def _selects(self, key: str, body: bytes) -> bool:
        return key.startswith(self._prefix) and (self._accepts is None or self._accepts(key, body))

    def _line(self, op: str, body: bytes) -> bytes:
        return line(op, body if self._convert is None else self._convert(body))

    def _push(self, event: bytes) -> None:
        if self.ended:
            return
        self._lines.append(event)
        if len(self._lines) > LONGEST_BACKLOG:
            self._lines.clear()
            self.close()
        elif self._tell is not None:
            self._tell()
