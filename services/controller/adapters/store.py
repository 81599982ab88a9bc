"""A local cache of the objects of one kind, with indexes: what client-go calls an Indexer.

Versions of one uid are ordered by resourceVersion, and an older one changes nothing. Another uid
under a key replaces the object; the `Change` that `put` returns has both.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from typing_extensions import override

from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta


class ObjectRef(NamedTuple):
    """An object: its kind's token and its key."""

    token: str
    key: str


class Touched(msgspec.Struct):
    """What has to be reconciled after some facts, or after the answer to an own write."""

    refs: dict[ObjectRef, bool] = msgspec.field(default_factory=dict)
    """Object → whether a policy may have an answer to it (else a short wait does no harm).

    A PodGroup stands for the bare pods whose group it is, or is to be.
    """

    def __bool__(self) -> bool:
        """Tell whether there is anything to reconcile."""
        return bool(self.refs)

    def add(self, kind: Kind, key: str, *, urgent: bool = False) -> None:
        """Add an object."""
        ref = ObjectRef(kind.token, key)
        self.refs[ref] = self.refs.get(ref, False) or urgent

    def of(self, kind: Kind) -> dict[str, bool]:
        """Return the keys of one kind, and whether each is urgent."""
        return {key: urgent for (token, key), urgent in self.refs.items() if token == kind.token}


class Identity(NamedTuple):
    """Key, uid and resourceVersion of an object; the version is 0 where it has none."""

    key: str
    uid: str
    rv: int


class Held(msgspec.Struct, frozen=True, gc=False):
    """An object of which the store keeps the metadata alone."""

    metadata: ObjectMeta


def identity_of(found: Any) -> Identity:  # noqa: ANN401 - any view with metadata
    """Return the identity of an object that has metadata."""
    meta: ObjectMeta = found.metadata
    return Identity(meta.key, meta.uid, int(meta.resource_version or 0))


T = TypeVar("T")


class Change(NamedTuple, Generic[T]):
    """What a store held under a key before and after; None where it held nothing."""

    key: str
    before: T | None
    after: T | None
    replaced: bool = False
    """Whether the two have different uids."""

    @property
    def present(self) -> T:
        """Return the object as it is, or as it was when it went."""
        found = self.after if self.after is not None else self.before
        assert found is not None, "a change has one side at least"
        return found


class Store(Mapping[str, T]):
    """Objects of one kind by key, and by the values that each indexer yields for them."""

    def __init__(
        self,
        indexers: Mapping[str, Callable[[T], Collection[Hashable]]] | None = None,
        *,
        identity: Callable[[T], Identity] = identity_of,
    ) -> None:
        """`indexers` maps the name of an index to the values that one object is found by."""
        self._identity = identity
        self._objects: dict[str, T] = {}
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[Hashable, dict[str, T]]] = {
            name: {} for name in self._indexers
        }

    @override
    def __getitem__(self, key: str) -> T:
        return self._objects[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    @override
    def __len__(self) -> int:
        return len(self._objects)

    def has(self, key: str, uid: str, rv: int) -> bool:
        """Tell whether this version of an object is held, or a newer one."""
        found = self._objects.get(key)
        known = self._identity(found) if found is not None else None
        return known is not None and known.uid == uid and known.rv >= rv

    def uids(self) -> Iterator[tuple[str, str]]:
        """Yield key and uid of each object."""
        for key, found in self._objects.items():
            yield key, self._identity(found).uid

    def put(self, found: T) -> Change[T] | None:
        """Take an object; returns None for a version that is no news."""
        new, replaced = self._identity(found), False
        before = self._objects.get(new.key)
        if before is not None:
            known = self._identity(before)
            replaced = known.uid != new.uid
            if not replaced and known.rv >= new.rv:
                return None
        self._objects[new.key] = found
        for name, indexer in self._indexers.items():
            self._reindex(
                self._indexes[name],
                new.key,
                found,
                indexer(before) if before is not None else (),
                indexer(found),
            )
        return Change(new.key, before, found, replaced)

    def drop(self, key: str, uid: str | None = None) -> Change[T] | None:
        """Drop an object, of `uid` if that is given; returns None where it is not held."""
        found = self._objects.get(key)
        if found is None or uid not in {None, self._identity(found).uid}:
            return None
        del self._objects[key]
        for name, indexer in self._indexers.items():
            self._reindex(self._indexes[name], key, found, indexer(found), ())
        return Change(key, found, None)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects for which an indexer yields a value, by key."""
        return [found for _, found in sorted(self._indexes[name].get(value, {}).items())]

    def index_values(self, name: str) -> Mapping[Any, Collection[str]]:
        """Return the values of an index that have objects, and the keys of each's objects."""
        return self._indexes[name]

    @staticmethod
    def _reindex(
        index: dict[Hashable, dict[str, T]],
        key: str,
        found: T,
        before: Collection[Hashable],
        after: Collection[Hashable],
    ) -> None:
        for value in before:
            if value not in after:
                objects = index[value]
                del objects[key]
                if not objects:
                    del index[value]
        for value in after:
            index.setdefault(value, {})[key] = found
