"""Digest of a set of objects of one kind, over their keys and uids.

The cache has one per kind of published objects, and puts them into its markers; a reader has the
same for what it has read. Adding or removing an object costs one hash.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

_BYTES: Final = 8


def _hash(key: str, uid: str) -> int:
    return int.from_bytes(blake2b(f"{key}\0{uid}".encode(), digest_size=_BYTES).digest())


class UidIndex:
    """The uid of each object of one kind by key, and their digest."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._digest = 0

    @property
    def uids(self) -> Mapping[str, str]:
        """The uid of each object, by key."""
        return self._uids

    @property
    def digest(self) -> str:
        """The digest; it does not depend on the order in which objects came."""
        return f"{self._digest:016x}"

    def difference(self, digest: str) -> int:
        """Return a digest of the objects that are in only one of two indexes, 0 for none.

        It does not change while other objects are added or removed in both.
        """
        return self._digest ^ int(digest, 16)

    def put(self, key: str, uid: str) -> None:
        """Add an object; most facts are about a known one."""
        before = self._uids.get(key)
        if before == uid:
            return
        if before is not None:
            self._digest ^= _hash(key, before)
        self._uids[key] = uid
        self._digest ^= _hash(key, uid)

    def drop(self, key: str) -> None:
        """Remove the object of a key."""
        before = self._uids.pop(key, None)
        if before is not None:
            self._digest ^= _hash(key, before)

    def clear(self) -> None:
        """Forget all objects."""
        self._uids.clear()
        self._digest = 0
