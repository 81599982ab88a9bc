"""What tells two sets of objects of one kind apart: a digest over the key and uid of each.

The cache keeps one per kind of what it has published, and its markers carry them; a reader keeps
the same of what it has read. An object costs one hash when it comes and one when it goes.
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
        """Return a digest of the objects that either this or another index has, 0 for none.

        It stays the same while other objects come and go in both.
        """
        return self._digest ^ int(digest, 16)

    def put(self, key: str, uid: str) -> None:
        """Take in that an object is there; most facts tell of one that is known."""
        before = self._uids.get(key)
        if before == uid:
            return
        if before is not None:
            self._digest ^= _hash(key, before)
        self._uids[key] = uid
        self._digest ^= _hash(key, uid)

    def drop(self, key: str) -> None:
        """Take in that nothing of that name is there."""
        before = self._uids.pop(key, None)
        if before is not None:
            self._digest ^= _hash(key, before)

    def clear(self) -> None:
        """Forget all objects."""
        self._uids.clear()
        self._digest = 0
