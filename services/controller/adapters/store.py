"""A local cache of the objects of one kind, with indexes: what client-go calls an Indexer.

Versions of one uid are ordered by resourceVersion, and an older one changes nothing. Another uid
under a key replaces the object; the `Change` that `put` returns has both.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from typing_extensions import override

from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta


class StoreKey(NamedTuple):
    """An object: its kind's token and its key."""

    token: str
    key: str


class Touched(msgspec.Struct):
    """Objects to reconcile after some facts, or after the answer to an own write."""

    refs: dict[StoreKey, bool] = msgspec.field(default_factory=dict)
    """Object → whether a policy may react to the change (else a short delay does no harm).

    A PodGroup stands for the bare pods of its group, existing or not; a ProvisioningRequest has the
    key of the PodGroup that it is made for.
    """

    def __bool__(self) -> bool:
        """Tell whether there is anything to reconcile."""
        return bool(self.refs)

    def add(self, kind: Kind, key: str, *, urgent: bool = False) -> None:
        """Add an object."""
        ref = StoreKey(kind.token, key)
        self.refs[ref] = self.refs.get(ref, False) or urgent

    def of(self, kind: Kind) -> dict[str, bool]:
        """Return the keys of one kind, and whether each is urgent."""
        return {key: urgent for (token, key), urgent in self.refs.items() if token == kind.token}


class Identity(msgspec.Struct, frozen=True, gc=False):
    """Key, uid and resourceVersion of an object; the version is 0 where it has none."""

    key: str
    uid: str
    rv: int


def identity_of(found: Any) -> Identity:  # noqa: ANN401 - any view with metadata
    """Return the identity of an object that has metadata."""
    meta: ObjectMeta = found.metadata
    return Identity(meta.key, meta.uid, int(meta.resource_version or 0))


class RecentDeletions:
    """Uids of deleted objects, kept while a response may still show them.

    The response to a request and the fact of a deletion come by two connections, in either order.
    """

    def __init__(self) -> None:
        self._requests: dict[int, None] = {}
        """Numbers of the requests under way, the oldest first."""
        self._begun = 0
        self._gone_at: dict[str, int] = {}
        """Uid → number of the last request that had begun when it went, the first to go first."""

    def __contains__(self, uid: str) -> bool:
        """Tell whether an object of this uid was deleted during a request in progress."""
        return uid in self._gone_at

    def add(self, uid: str) -> None:
        """Record a deletion, if any request is in progress."""
        if self._requests:
            self._gone_at.setdefault(uid, self._begun)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Keep deletions until this request, and every earlier one, has its response."""
        self._begun += 1
        number = self._begun
        self._requests[number] = None
        try:
            yield
        finally:
            del self._requests[number]
            oldest = next(iter(self._requests), self._begun + 1)
            while self._gone_at and next(iter(self._gone_at.values())) < oldest:
                del self._gone_at[next(iter(self._gone_at))]


T = TypeVar("T")


class ObjectChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A key's object before and after; None where the store held nothing."""

    key: str
    before: T | None
    after: T | None
    replaced: str = ""
    """Uid of the object before, if the one after has another."""

    @property
    def present(self) -> T:
        """Return the current object, or the last one before its deletion."""
        found = self.after if self.after is not None else self.before
        assert found is not None, "a change has one side at least"
        return found


class _Index(Generic[T]):
    """The keys of the objects for which an indexer yields a value, by value."""

    __slots__ = ("indexer", "keys")

    def __init__(self, indexer: Callable[[T], Collection[Hashable]]) -> None:
        self.indexer = indexer
        self.keys: dict[Hashable, dict[str, None]] = {}

    def move(self, key: str, before: T | None, after: T | None) -> None:
        """Update the index for the change of an object; most changes do not alter it."""
        was = self.indexer(before) if before is not None else ()
        now = self.indexer(after) if after is not None else ()
        if was == now:
            return
        for value in was:
            if value not in now:
                keys = self.keys[value]
                del keys[key]
                if not keys:
                    del self.keys[value]
        for value in now:
            self.keys.setdefault(value, {})[key] = None


class IndexedStore(Mapping[str, T]):
    """Objects of one kind by key, and by the values that each indexer yields for them."""

    def __init__(
        self, indexers: Mapping[str, Callable[[T], Collection[Hashable]]] | None = None
    ) -> None:
        """`indexers` maps the name of an index to the values that one object is found by."""
        self._objects: dict[str, T] = {}
        self._identities: dict[str, Identity] = {}
        self._indexes = {name: _Index(indexer) for name, indexer in (indexers or {}).items()}

    @override
    def __getitem__(self, key: str) -> T:
        return self._objects[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    @override
    def __len__(self) -> int:
        return len(self._objects)

    def has(self, identity: Identity) -> bool:
        """Tell whether the store has this version of an object, or a newer one."""
        known = self._identities.get(identity.key)
        return known is not None and known.uid == identity.uid and known.rv >= identity.rv

    def is_at(self, identity: Identity) -> bool:
        """Tell whether the store has exactly this version of an object."""
        return self._identities.get(identity.key) == identity

    def of_uid(self, key: str, uid: str) -> T | None:
        """Return the object of a key if it has that uid."""
        known = self._identities.get(key)
        return self._objects[key] if known is not None and known.uid == uid else None

    def uid_of(self, key: str) -> str:
        """Return the uid of the object of a key, "" for none."""
        known = self._identities.get(key)
        return known.uid if known is not None else ""

    def uids(self) -> Iterator[tuple[str, str]]:
        """Yield key and uid of each object."""
        for key, known in self._identities.items():
            yield key, known.uid

    def newer_than(self, rv: int) -> list[str]:
        """Return the keys of the objects whose resourceVersion is greater than `rv`."""
        return [key for key, known in self._identities.items() if known.rv > rv]

    def put(self, identity: Identity, found: T) -> ObjectChange[T] | None:
        """Store an object; return None for a version that is not newer."""
        key, known, replaced = identity.key, self._identities.get(identity.key), ""
        if known is not None and known.uid != identity.uid:
            replaced = known.uid
        elif known is not None and known.rv >= identity.rv:
            return None
        before = self._objects.get(key)
        self._identities[key] = identity
        self._objects[key] = found
        for index in self._indexes.values():
            index.move(key, before, found)
        return ObjectChange(key, before, found, replaced)

    def drop(
        self, key: str, uid: str | None = None, *, as_of: int | None = None
    ) -> ObjectChange[T] | None:
        """Drop an object, of `uid` if that is given; return None if it is not in the store.

        Nothing of that name existed `as_of` a version, so an older object is dropped, of any uid.
        """
        known = self._identities.get(key)
        if known is None:
            return None
        outlived = as_of is not None and known.rv < as_of
        if uid not in {None, known.uid} and not outlived:
            return None
        del self._identities[key]
        found = self._objects.pop(key)
        for index in self._indexes.values():
            index.move(key, found, None)
        return ObjectChange(key, found, None)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects for which an indexer yields a value, by key."""
        return [self._objects[key] for key in sorted(self._indexes[name].keys.get(value, ()))]

    def index_values(self, name: str) -> Mapping[Any, Collection[str]]:
        """Return the values of an index that have objects, and the keys of each's objects."""
        return self._indexes[name].keys
