"""The comparison that decides what is published: the world as shown against the stream as written.

Watchers say what the API server shows (`listed`, `put`, `deleted`, `absent`), a leader what the
stream holds when its term begins (`begin`) and what became of each publication (`confirmed`,
`failed`). Where the two differ the object is queued, and `next` gives the fact to publish. So an
object that changes five times while its fact is in flight is published once more, not five times; a
process that starts publishes the differences only; and a publication that was lost is repeated.

A standby holds what is shown and publishes nothing. Since what it holds may lag (it may have been
frozen), a new leader publishes only what is newer than the stream. It publishes that an object is
gone only when its watch is past the version of the stream's last fact about it, or a list that was
made in its term lacks it. A kind is current in a term from a list made in it on, or once its watch
has reached the version that the API server had when it was asked in the term (`expect`).

⚠ Nothing goes back in time: a version below the one held or published is ignored, as a watch cache
of a restarting API server may show old ones (CA10). After etcd was restored from a backup, purge
STATE and restart all replicas of the cache.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from services.cache.fold.objects import Published, ShownObject, older, reached, remains
from shared.contracts.digests import UidIndex
from shared.contracts.messages import Fact, Op

_ENDED: Final = 16_384
"""Pods that succeeded and went whose tombstones may be outstanding: a standby cannot know which."""
Slot = tuple[str, str]
"""Token of the kind, and key."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One fact on its way to the stream."""

    slot: Slot
    fact: Fact
    digest: bytes = b""

    @property
    def is_tombstone(self) -> bool:
        """Tell whether it says that the object is gone."""
        return self.fact.op is Op.DELETE

    def without_body(self) -> "Publication":
        """Return it as the fact that the object is there (or gone), but too large to publish."""
        op = Op.DELETE if self.is_tombstone else Op.OVERSIZED
        fact = msgspec.structs.replace(self.fact, op=op, body=msgspec.Raw(b"null"))
        return msgspec.structs.replace(self, fact=fact)


class _KindState:
    """Everything about one kind."""

    def __init__(self) -> None:
        self.held: dict[str, ShownObject] = {}
        self.published: dict[str, Published] = {}
        self.uids = UidIndex()
        """Of what is published."""
        self.quarantined: set[str] = set()
        """Keys of objects that the server refuses in any form."""
        self.gone: dict[str, str] = {}
        """Keys known to be gone, with the version as of which: they may get tombstones."""
        self.initial: set[str] = set()
        """Keys that have to be published before the kind is complete."""
        self.outstanding = 0
        """Number of keys that are pending or in flight."""
        self.is_current = False
        """Whether what is held is known to be as new as the term, if there is one."""
        self.expected = ""
        """Version with which it will be; empty: that takes a list."""
        self.unreadable: set[str] = set()
        """Keys of objects that could not be read when they were shown last."""
        self.seen = ""
        """Version up to which changes have been taken in."""
        self.covered = ""
        """Version up to which they have been published."""

    def publish(self, key: str, published: Published | None) -> None:
        """Note what the stream says of an object; None: nothing."""
        if published is None:
            self.published.pop(key, None)
            self.uids.drop(key)
        else:
            self.published[key] = published
            self.uids.put(key, published.uid)


class PublishQueue:
    """The facts of all kinds that are to be published; synchronous, owned by one event loop."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds: Final = {kind: _KindState() for kind in kinds}
        self._sorted: Final = sorted(self._kinds.items())
        self._pending: dict[Slot, None] = {}
        self._in_flight: set[Slot] = set()
        self._leads = False
        self._ended: dict[str, bytes] = {}
        """Uid of a pod that had succeeded and is gone → the body that says so; the newest ones."""
        self.ignored = 0
        """Versions that were ignored because they were old."""

    @property
    def waiting(self) -> int:
        """Return how many facts are pending or in flight."""
        return len(self._pending) + len(self._in_flight)

    def count(self, kind: str) -> int:
        """Return how many objects of a kind are held."""
        return len(self._kinds[kind].held)

    def is_current(self, kind: str) -> bool:
        """Tell whether what is held of a kind is known to be as new as the term."""
        return self._kinds[kind].is_current

    def listed(
        self,
        kind: str,
        shown: Mapping[str, ShownObject],
        unreadable: Collection[str],
        version: str,
        *,
        is_current: bool = True,
    ) -> None:
        """Replace what is held of a kind; an unreadable object stays as it was last read.

        A list that began before the term is not current.
        """
        state = self._kinds[kind]
        before = state.held
        state.held = {
            key: self._newer(before.get(key), held) for key, held in sorted(shown.items())
        }
        for key in sorted(unreadable):
            if key in before:
                state.held[key] = before[key]
        for key, was in before.items():
            if was.done and (key not in state.held or state.held[key].uid != was.uid):
                self._keep_tombstone_body(was.uid, was.done)
        state.seen = version
        state.is_current = is_current or reached(version, state.expected)
        state.unreadable = set(unreadable)
        self._find_gone(kind, state)
        self._enqueue_changed(kind, state)

    def expect(self, kind: str, version: str) -> None:
        """Take in that a kind is current once all changes up to `version` have been taken in."""
        state = self._kinds[kind]
        state.expected = version
        self._observe_version(kind, state, state.seen)

    def unreadable(self, kind: str, key: str) -> None:
        """Take in that an object is there, and stays as it was last read."""
        self._kinds[kind].unreadable.add(key)

    def put(self, kind: str, key: str, held: ShownObject) -> None:
        """Take in a new or changed object."""
        state = self._kinds[kind]
        state.held[key] = self._newer(state.held.get(key), held)
        state.gone.pop(key, None)
        state.unreadable.discard(key)
        self._enqueue_if_changed((kind, key), state)
        self._observe_version(kind, state, held.rv)

    def deleted(self, kind: str, key: str, uid: str, rv: str) -> None:
        """Take in that nothing of that name was there as of `rv`; a younger namesake stays."""
        state = self._kinds[kind]
        held = state.held.get(key)
        if held is None or held.uid == uid or reached(rv, held.rv):
            state.held.pop(key, None)
            state.unreadable.discard(key)
            if held is not None and held.done:
                self._keep_tombstone_body(held.uid, held.done)
            if self._leads:
                state.gone[key] = rv
            self._enqueue_if_changed((kind, key), state)
        self._observe_version(kind, state, rv)

    def absent(self, kind: str) -> None:
        """Take in that the API server does not know the kind: it has no objects."""
        self.listed(kind, {}, (), "")

    def bookmark(self, kind: str, version: str) -> None:
        """Take in that all changes up to `version` have been delivered."""
        self._observe_version(kind, self._kinds[kind], version)

    def begin(self, published: Iterable[tuple[Slot, Published]]) -> None:
        """Start to publish, given what the stream holds at this moment.

        What has become current since the last `end` is current in this term.
        """
        self._leads = True
        for (kind, key), what in published:
            if kind in self._kinds:
                self._kinds[kind].publish(key, what)
        for kind, state in self._kinds.items():
            self._find_gone(kind, state)
            self._enqueue_changed(kind, state)

    def end(self) -> None:
        """Stop publishing, and forget which kinds are current: another may write from now on.

        A new term begins with this as well, before it asks which kinds are.
        """
        self._leads = False
        self._pending.clear()
        self._in_flight.clear()
        for state in self._kinds.values():
            state.published.clear()
            state.uids.clear()
            state.quarantined.clear()
            state.gone.clear()
            state.initial.clear()
            state.outstanding = 0
            state.is_current = False
            state.expected = ""
            state.covered = ""

    def next(self) -> Publication | None:
        """Return the next fact to publish, None when stream and world are equal."""
        while self._pending:
            slot = next(iter(self._pending))
            del self._pending[slot]
            state = self._kinds[slot[0]]
            if self._differs(slot, state):
                self._in_flight.add(slot)
                return self._publication(slot, state)
            self._skip_unchanged(slot, state)
        return None

    def confirmed(self, publication: Publication) -> None:
        """Take in that a fact is in the stream."""
        slot, fact = publication.slot, publication.fact
        state = self._kinds[slot[0]]
        state.quarantined.discard(slot[1])
        if publication.is_tombstone:
            state.publish(slot[1], None)
            self._ended.pop(fact.uid, None)
        else:
            state.publish(slot[1], Published(uid=fact.uid, rv=fact.rv, digest=publication.digest))
        state.initial.discard(slot[1])
        self._settled(slot, state)

    def failed(self, publication: Publication) -> None:
        """Take in that it is unknown whether a fact is in the stream: it is published again."""
        slot, fact = publication.slot, publication.fact
        state = self._kinds[slot[0]]
        before = state.published.get(slot[1])
        done = before.done if before is not None and before.uid == fact.uid else b""
        state.publish(slot[1], Published(uid=fact.uid, rv=fact.rv, done=done))
        if publication.is_tombstone:
            state.gone.setdefault(slot[1], fact.rv)
        self._settled(slot, state)

    def quarantine(self, publication: Publication) -> None:
        """Take in that a fact cannot be published: it is left out until its object changes."""
        self.confirmed(publication)
        self._kinds[publication.slot[0]].quarantined.add(publication.slot[1])

    def complete(self) -> tuple[str, ...]:
        """Return the kinds that are current in this term and wholly published; sorted."""
        if not self._leads:
            return ()
        return tuple([k for k, state in self._sorted if state.is_current and not state.initial])

    def covered(self) -> dict[str, str]:
        """Return per kind the version up to which every change is published."""
        for state in self._kinds.values():
            if not state.outstanding:
                state.covered = state.seen
        return {k: state.covered for k, state in self._sorted if state.covered}

    def digests(self) -> dict[str, str]:
        """Return the digest of each kind of which the stream holds just what is published."""
        return {
            kind: state.uids.digest
            for kind, state in self._sorted
            if not state.outstanding and not state.quarantined
        }

    def published_uids(self) -> dict[str, dict[str, str]]:
        """Return the uid of each object that the stream holds, by kind and key.

        It is empty where the fact in the stream could not be read. What the server refuses is left
        out.
        """
        return {
            kind: {key: uid for key, uid in state.uids.uids.items() if key not in state.quarantined}
            for kind, state in self._sorted
        }

    def on_their_way(self) -> frozenset[Slot]:
        """Return the slots of facts that are pending or in flight."""
        return frozenset(self._in_flight.union(self._pending))

    def _observe_version(self, kind: str, state: _KindState, version: str) -> None:
        """Record the version up to which changes were taken in; it may be the one expected."""
        state.seen = version or state.seen
        if state.is_current or not reached(state.seen, state.expected):
            return
        state.is_current = True
        self._find_gone(kind, state)
        self._enqueue_changed(kind, state)

    def _find_gone(self, kind: str, state: _KindState) -> None:
        """Note what the stream holds, or is about to, and the API server does not.

        Of a kind that may lag only what was published before the version that it has reached.
        """
        in_flight = (key for of, key in self._in_flight if of == kind)
        for key in (*state.published, *in_flight):
            if key in state.held or key in state.unreadable:
                continue
            published = state.published.get(key)
            if state.is_current or (published is not None and reached(state.seen, published.rv)):
                state.gone[key] = state.seen

    def _newer(self, before: ShownObject | None, shown: ShownObject) -> ShownObject:
        if before is None or not older(shown.rv, before.rv):
            if before is not None and before.uid == shown.uid and before.done and not shown.done:
                return msgspec.structs.replace(shown, done=before.done)
            return shown
        self.ignored += 1
        return before

    def _keep_tombstone_body(self, uid: str, done: bytes) -> None:
        """Keep the body of a pod's tombstone for a while: there may be none to publish."""
        self._ended[uid] = remains(done)
        if len(self._ended) > _ENDED:
            del self._ended[next(iter(self._ended))]

    def _enqueue_changed(self, kind: str, state: _KindState) -> None:
        """Queue everything of a kind that differs; once published, the kind is complete."""
        for key in (*state.held, *(key for key in state.published if key not in state.held)):
            self._enqueue_if_changed((kind, key), state)
        if self._leads:
            keys = (*state.held, *state.published) if state.outstanding else ()
            state.initial = {key for key in keys if self._is_outstanding((kind, key))}

    def _enqueue_if_changed(self, slot: Slot, state: _KindState) -> None:
        """Queue a slot if it differs and is not in flight (compared again once answered)."""
        if not self._leads or self._is_outstanding(slot):
            return
        if self._differs(slot, state):
            self._pending[slot] = None
            state.outstanding += 1
        else:
            state.gone.pop(slot[1], None)

    def _is_outstanding(self, slot: Slot) -> bool:
        return slot in self._pending or slot in self._in_flight

    def _settled(self, slot: Slot, state: _KindState) -> None:
        self._in_flight.discard(slot)
        state.outstanding -= 1
        self._enqueue_if_changed(slot, state)
        if not self._is_outstanding(slot):
            state.initial.discard(slot[1])

    def _skip_unchanged(self, slot: Slot, state: _KindState) -> None:
        """Take a slot out of the queue without a publication: what differed is equal again."""
        state.outstanding -= 1
        state.initial.discard(slot[1])
        state.gone.pop(slot[1], None)

    def _differs(self, slot: Slot, state: _KindState) -> bool:
        """Tell whether the stream differs from what is shown, and may be corrected."""
        key = slot[1]
        held, published = state.held.get(key), state.published.get(key)
        if held is not None:
            if published is None:
                return True
            return published.digest != held.digest and not older(held.rv, published.rv)
        return (
            published is not None and key in state.gone and not older(state.gone[key], published.rv)
        )

    def _publication(self, slot: Slot, state: _KindState) -> Publication:
        """Return the fact by which the stream follows what is shown, for a slot that differs."""
        kind, key = slot
        held = state.held.get(key)
        if held is None:
            published = state.published[key]
            rv = state.gone[key] or published.rv
            body = msgspec.Raw(self._ended.get(published.uid) or published.done or b"null")
            fact = Fact(kind=kind, key=key, uid=published.uid, rv=rv, op=Op.DELETE, body=body)
            return Publication(slot=slot, fact=fact)
        fact = Fact(kind=kind, key=key, uid=held.uid, rv=held.rv, body=msgspec.Raw(held.body))
        return Publication(slot=slot, fact=fact, digest=held.digest)
