"""Objects as bytes with their versions, the recent changes, and listeners for them.

One counter gives every write its resourceVersion, as etcd's revision does. Changes are kept for a
while (`keep`), so that a watch can start in the past and a list can be read page by page as of one
version; older versions get 410.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from pumice.embedded.apiserver.replies import Object, expired

Listener = Callable[["StoreWrite", Object], None]
"""Gets each change and the object after it."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class ObjectVersion(msgspec.Struct, frozen=True):
    """One version of one object."""

    body: bytes
    version: int


class StoreWrite(msgspec.Struct, frozen=True):
    """One write; for a delete, `after` is the last state with the version of the delete."""

    op: str
    resource: str
    key: str
    after: ObjectVersion
    before: ObjectVersion | None
    at: float

    @property
    def version(self) -> int:
        """The resourceVersion of the write."""
        return self.after.version


class Collection:
    """All objects of one kind, in the order of their keys (`namespace/name`)."""

    def __init__(self) -> None:
        self.entries: dict[str, ObjectVersion] = {}
        self.changes: deque[StoreWrite] = deque()
        self.compacted = 0
        """Changes up to this version are forgotten."""
        self._keys: list[str] = []

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with a prefix, in order."""
        if not prefix:
            return self._keys
        first = bisect_left(self._keys, prefix)
        return self._keys[first : bisect_left(self._keys, prefix[:-1] + chr(ord(prefix[-1]) + 1))]

    def set(self, key: str, entry: ObjectVersion) -> None:
        """Put an object."""
        if key not in self.entries:
            insort(self._keys, key)
        self.entries[key] = entry

    def drop(self, key: str) -> None:
        """Remove an object."""
        del self.entries[key]
        del self._keys[bisect_left(self._keys, key)]

    def since(self, version: int) -> Iterator[StoreWrite]:
        """Yield the changes after a version. Raises RequestFailure (410) if some are forgotten."""
        self.check(version)
        first = bisect_right(self.changes, version, key=lambda change: change.version)
        for index in range(first, len(self.changes)):
            yield self.changes[index]

    def check(self, version: int) -> None:
        """Raise RequestFailure (410) when the state at a version is not known any more."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")

    def at(self, version: int) -> dict[str, ObjectVersion]:
        """Return all objects as they were at a version. Raises RequestFailure (410)."""
        self.check(version)
        entries = dict(self.entries)
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if change.before is None:
                entries.pop(change.key, None)
            else:
                entries[change.key] = change.before
        return entries


KEEP_S: Final = 300.0
"""How long a change is kept."""


class ApiStore:
    """All collections; `listeners` are called with each change after it is made."""

    def __init__(self, *, now: Callable[[], float], keep: int) -> None:
        self.version = 1
        self.collections: dict[str, Collection] = {}
        self.listeners: list[Listener] = []
        self._now = now
        self._keep = keep

    def collection(self, resource: str) -> Collection:
        """Return the objects of a kind."""
        found = self.collections.get(resource)
        if found is None:
            found = self.collections[resource] = Collection()
        return found

    def get(self, resource: str, key: str) -> ObjectVersion | None:
        """Return an object."""
        return self.collection(resource).entries.get(key)

    def put(self, resource: str, key: str, obj: Object) -> ObjectVersion:
        """Write an object, with a new resourceVersion in it."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        collection = self.collection(resource)
        before = collection.entries.get(key)
        entry = ObjectVersion(_encoded(obj), self.version)
        collection.set(key, entry)
        op = ADDED if before is None else MODIFIED
        self._changed(StoreWrite(op, resource, key, entry, before, self._now()), obj)
        return entry

    def delete(self, resource: str, key: str, obj: Object) -> ObjectVersion:
        """Remove an object; `obj` is its last state."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        collection = self.collection(resource)
        before = collection.entries[key]
        collection.drop(key)
        entry = ObjectVersion(_encoded(obj), self.version)
        self._changed(StoreWrite(DELETED, resource, key, entry, before, self._now()), obj)
        return entry

    def restore(self, resource: str, key: str, entry: ObjectVersion) -> None:
        """Put an object back as a journal kept it."""
        self.version = max(self.version, entry.version)
        self.collection(resource).set(key, entry)

    def compact(self) -> None:
        """Forget all past changes: watches and pages that start in the past get 410."""
        for collection in self.collections.values():
            collection.changes.clear()
            collection.compacted = self.version

    def _changed(self, change: StoreWrite, obj: Object) -> None:
        collection = self.collections[change.resource]
        changes = collection.changes
        changes.append(change)
        horizon = change.at - KEEP_S
        while len(changes) > self._keep or changes[0].at < horizon:
            collection.compacted = changes.popleft().version
        for listener in self.listeners:
            listener(change, obj)


def _encoded(obj: Object) -> bytes:
    """Return an object as JSON, kind and version first, as the real server writes it."""
    head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"]}
    return msgspec.json.encode(head | obj)
