"""The queue of facts to publish: a level-triggered comparison of the API server and STATE.

Inputs:

- Watchers report what they observe: `listed`, `put`, `deleted`, `absent`, `bookmark`.
- The leader reports what STATE holds when its term starts (`begin`), and the result of each
  publication (`confirmed`, `failed`, `quarantine`).

Where the two sides differ, the object is queued, and `next` returns the fact to publish. So an
object that changes five times while its fact is in flight is published once more, a process that
starts publishes only differences, and a lost publication is repeated.

A standby observes and publishes nothing. Its objects may be old because it may have been frozen. A
new leader therefore publishes only what is newer than STATE. It publishes a tombstone only if a
list of its term lacks the object, or its watch has passed the version of the last fact about it. A
kind is current from a list of the term on, or once its watch has reached the version that the API
server reported in the term (`expect`).

⚠ Versions never decrease: one below the observed or published version is ignored, because the watch
cache of a restarting API server may serve old versions (CA10). After a restore of etcd from a
backup, purge STATE and restart all replicas of the cache.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from services.cache.fold.objects import ObservedObject, Published, older, reached, tombstone_body
from shared.contracts.digests import UidIndex
from shared.contracts.messages import Fact, Op

TOMBSTONE_BODIES_MAX: Final = 16_384
"""Bodies kept for tombstones of succeeded pods. A standby cannot know which are still needed."""
Slot = tuple[str, str]
"""(token of the kind, key of the object)."""


def without_body(fact: Fact) -> Fact:
    """Return the same fact without a body, for an object that is too large to publish."""
    op = Op.DELETE if fact.op is Op.DELETE else Op.OVERSIZED
    return msgspec.structs.replace(fact, op=op, body=msgspec.Raw(b"null"))


class _KindState:
    """The state of one kind: the observed objects, and those in STATE."""

    def __init__(self) -> None:
        self.observed: dict[str, ObservedObject] = {}
        self.published: dict[str, Published] = {}
        self.uids = UidIndex()
        """Uids of the published objects."""
        self.quarantined: set[str] = set()
        """Keys of objects that NATS refuses even without a body."""
        self.gone: dict[str, str] = {}
        """Key of a deleted object → resourceVersion of the deletion; these may get tombstones."""
        self.initial: set[str] = set()
        """Keys that have to be published before the kind is complete."""
        self.outstanding = 0
        """Number of keys that are pending or in flight."""
        self.is_current = False
        """Whether the observed objects are at least as new as the current term."""
        self.expected = ""
        """resourceVersion from which on the kind is current; empty: only after a list."""
        self.unreadable: set[str] = set()
        """Keys of objects whose last version could not be decoded."""
        self.observed_version = ""
        """resourceVersion up to which changes were observed."""
        self.published_version = ""
        """resourceVersion up to which changes were published."""

    def publish(self, key: str, published: Published | None) -> None:
        """Record what STATE holds of an object; None: nothing."""
        if published is None:
            self.published.pop(key, None)
            self.uids.drop(key)
        else:
            self.published[key] = published
            self.uids.put(key, published.uid)


class PublishQueue:
    """The facts of all kinds that have to be published. Synchronous; used by one event loop."""

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds: Final = tuple(sorted(kinds))
        """Tokens of the kinds."""
        self._kinds: Final = {kind: _KindState() for kind in kinds}
        self._sorted: Final = sorted(self._kinds.items())
        self._pending: dict[Slot, None] = {}
        self._in_flight: dict[Slot, bytes] = {}
        """Slots of facts that were sent, with the digest of the object; empty for a tombstone."""
        self._leads = False
        self._tombstone_bodies: dict[str, bytes] = {}
        """Uid of a deleted pod that had succeeded → body of its tombstone; the newest ones."""
        self.ignored = 0
        """Number of versions that were ignored because they were old."""

    @property
    def waiting(self) -> int:
        """Return the number of facts that are pending or in flight."""
        return len(self._pending) + len(self._in_flight)

    def count(self, kind: str) -> int:
        """Return the number of observed objects of a kind."""
        return len(self._kinds[kind].observed)

    def is_current(self, kind: str) -> bool:
        """Return whether the observed objects of a kind are at least as new as the term."""
        return self._kinds[kind].is_current

    def listed(
        self,
        kind: str,
        shown: Mapping[str, ObservedObject],
        unreadable: Collection[str],
        version: str,
        *,
        is_current: bool = True,
    ) -> None:
        """Replace the observed objects of a kind by those of a list of `version`.

        Objects in `unreadable` keep their last readable version. `is_current` is False for a list
        that began before the term.
        """
        state = self._kinds[kind]
        before = state.observed
        state.observed = {
            key: self._newer(before.get(key), observed) for key, observed in sorted(shown.items())
        }
        for key in sorted(unreadable):
            if key in before:
                state.observed[key] = before[key]
        for key, was in before.items():
            if was.succeeded_body and (
                key not in state.observed or state.observed[key].uid != was.uid
            ):
                self._keep_tombstone_body(was.uid, was.succeeded_body)
        state.observed_version = version
        state.is_current = is_current or reached(version, state.expected)
        state.unreadable = set(unreadable)
        self._find_gone(kind, state)
        self._enqueue_changed(kind, state)

    def expect(self, kind: str, version: str) -> None:
        """Set the version from which on a kind is current."""
        state = self._kinds[kind]
        state.expected = version
        self._observe_version(kind, state, state.observed_version)

    def unreadable(self, kind: str, key: str) -> None:
        """Record that an object exists but could not be decoded; it keeps its last version."""
        self._kinds[kind].unreadable.add(key)

    def put(self, kind: str, key: str, observed: ObservedObject) -> None:
        """Record a new or changed object."""
        state = self._kinds[kind]
        state.observed[key] = self._newer(state.observed.get(key), observed)
        state.gone.pop(key, None)
        state.unreadable.discard(key)
        self._enqueue_if_changed((kind, key), state)
        self._observe_version(kind, state, observed.rv)

    def deleted(self, kind: str, key: str, uid: str, rv: str) -> None:
        """Record that no object of that name existed as of `rv`; a newer namesake is kept."""
        state = self._kinds[kind]
        observed = state.observed.get(key)
        if observed is None or observed.uid == uid or reached(rv, observed.rv):
            state.observed.pop(key, None)
            state.unreadable.discard(key)
            if observed is not None and observed.succeeded_body:
                self._keep_tombstone_body(observed.uid, observed.succeeded_body)
            if self._leads:
                state.gone[key] = rv
            self._enqueue_if_changed((kind, key), state)
        self._observe_version(kind, state, rv)

    def absent(self, kind: str) -> None:
        """Record that the API server does not serve the kind, so it has no objects."""
        self.listed(kind, {}, (), "")

    def bookmark(self, kind: str, version: str) -> None:
        """Record that all changes up to `version` were delivered."""
        self._observe_version(kind, self._kinds[kind], version)

    def begin(self, published: Iterable[tuple[Slot, Published]]) -> None:
        """Start to publish. `published` is what STATE holds at this moment.

        Kinds that became current since the last `end` are current in this term.
        """
        self._leads = True
        for (kind, key), what in published:
            if kind in self._kinds:
                self._kinds[kind].publish(key, what)
        for kind, state in self._kinds.items():
            self._find_gone(kind, state)
            self._enqueue_changed(kind, state)

    def end(self) -> None:
        """Stop publishing and forget which kinds are current, because another leader may write.

        A new term also starts with this, before `revalidate`.
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
            state.published_version = ""

    def next(self) -> Fact | None:
        """Return the next fact to publish; None if STATE agrees with the observed objects."""
        while self._pending:
            slot = next(iter(self._pending))
            del self._pending[slot]
            state = self._kinds[slot[0]]
            if self._differs(slot, state):
                observed = state.observed.get(slot[1])
                self._in_flight[slot] = observed.digest if observed is not None else b""
                return self._fact(slot, state)
            self._skip_unchanged(slot, state)
        return None

    def confirmed(self, fact: Fact) -> None:
        """Record that a fact is in STATE."""
        slot = (fact.kind, fact.key)
        state = self._kinds[slot[0]]
        state.quarantined.discard(slot[1])
        if fact.op is Op.DELETE:
            state.publish(slot[1], None)
            self._tombstone_bodies.pop(fact.uid, None)
        else:
            digest = self._in_flight.get(slot, b"")
            state.publish(slot[1], Published(uid=fact.uid, rv=fact.rv, digest=digest))
        state.initial.discard(slot[1])
        self._settled(slot, state)

    def failed(self, fact: Fact) -> None:
        """Record that it is unknown whether a fact is in STATE; it is published again."""
        slot = (fact.kind, fact.key)
        state = self._kinds[slot[0]]
        before = state.published.get(slot[1])
        succeeded_body = (
            before.succeeded_body if before is not None and before.uid == fact.uid else b""
        )
        state.publish(slot[1], Published(uid=fact.uid, rv=fact.rv, succeeded_body=succeeded_body))
        if fact.op is Op.DELETE:
            state.gone.setdefault(slot[1], fact.rv)
        self._settled(slot, state)

    def quarantine(self, fact: Fact) -> None:
        """Record that a fact cannot be published; its object is skipped until it changes."""
        self.confirmed(fact)
        self._kinds[fact.kind].quarantined.add(fact.key)

    def complete(self) -> tuple[str, ...]:
        """Return the kinds that are current in this term and fully published, sorted."""
        if not self._leads:
            return ()
        return tuple([k for k, state in self._sorted if state.is_current and not state.initial])

    def published_versions(self) -> dict[str, str]:
        """Return per kind the resourceVersion up to which all changes are published."""
        for state in self._kinds.values():
            if not state.outstanding:
                state.published_version = state.observed_version
        return {k: state.published_version for k, state in self._sorted if state.published_version}

    def digests(self) -> dict[str, str]:
        """Return the digest of each kind whose facts are all in STATE."""
        return {
            kind: state.uids.digest
            for kind, state in self._sorted
            if not state.outstanding and not state.quarantined
        }

    def published_uids(self) -> dict[str, dict[str, str]]:
        """Return the uid of each object in STATE, by kind and key.

        The uid is empty if the fact in STATE could not be decoded. Quarantined objects are skipped.
        """
        return {
            kind: {key: uid for key, uid in state.uids.uids.items() if key not in state.quarantined}
            for kind, state in self._sorted
        }

    def unconfirmed(self) -> frozenset[Slot]:
        """Return the slots of facts that are pending or in flight, so not yet in STATE."""
        return frozenset((*self._in_flight, *self._pending))

    def _observe_version(self, kind: str, state: _KindState, version: str) -> None:
        """Record the version up to which changes were observed; it may make the kind current."""
        state.observed_version = version or state.observed_version
        if state.is_current or not reached(state.observed_version, state.expected):
            return
        state.is_current = True
        self._find_gone(kind, state)
        self._enqueue_changed(kind, state)

    def _find_gone(self, kind: str, state: _KindState) -> None:
        """Find the objects that are in STATE, or in flight, and no longer in the API server.

        For a kind that is not current, only those published before the observed version.
        """
        in_flight = (key for of, key in self._in_flight if of == kind)
        for key in (*state.published, *in_flight):
            if key in state.observed or key in state.unreadable:
                continue
            published = state.published.get(key)
            if state.is_current or (
                published is not None and reached(state.observed_version, published.rv)
            ):
                state.gone[key] = state.observed_version

    def _newer(self, before: ObservedObject | None, observed: ObservedObject) -> ObservedObject:
        """Return the newer version of an object; a pod keeps the body with which it succeeded."""
        if before is None or not older(observed.rv, before.rv):
            if (
                before is not None
                and before.uid == observed.uid
                and before.succeeded_body
                and not observed.succeeded_body
            ):
                return msgspec.structs.replace(observed, succeeded_body=before.succeeded_body)
            return observed
        self.ignored += 1
        return before

    def _keep_tombstone_body(self, uid: str, succeeded_body: bytes) -> None:
        """Keep the tombstone body of a pod; its published fact may not have one."""
        self._tombstone_bodies[uid] = tombstone_body(succeeded_body)
        if len(self._tombstone_bodies) > TOMBSTONE_BODIES_MAX:
            del self._tombstone_bodies[next(iter(self._tombstone_bodies))]

    def _enqueue_changed(self, kind: str, state: _KindState) -> None:
        """Queue all objects of a kind that differ; the kind is complete once they are published."""
        for key in (
            *state.observed,
            *(key for key in state.published if key not in state.observed),
        ):
            self._enqueue_if_changed((kind, key), state)
        if self._leads:
            keys = (*state.observed, *state.published) if state.outstanding else ()
            state.initial = {key for key in keys if self._is_outstanding((kind, key))}

    def _enqueue_if_changed(self, slot: Slot, state: _KindState) -> None:
        """Queue a slot that differs. One in flight is compared again after its reply."""
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
        self._in_flight.pop(slot, None)
        state.outstanding -= 1
        self._enqueue_if_changed(slot, state)
        if not self._is_outstanding(slot):
            state.initial.discard(slot[1])

    def _skip_unchanged(self, slot: Slot, state: _KindState) -> None:
        """Remove a slot from the queue without a publication, because it no longer differs."""
        state.outstanding -= 1
        state.initial.discard(slot[1])
        state.gone.pop(slot[1], None)

    def _differs(self, slot: Slot, state: _KindState) -> bool:
        """Return whether STATE differs from the observed object and may be overwritten."""
        key = slot[1]
        observed, published = state.observed.get(key), state.published.get(key)
        if observed is not None:
            if published is None:
                return True
            return published.digest != observed.digest and not older(observed.rv, published.rv)
        return (
            published is not None and key in state.gone and not older(state.gone[key], published.rv)
        )

    def _fact(self, slot: Slot, state: _KindState) -> Fact:
        """Return the fact that brings STATE to the observed object, for a slot that differs."""
        kind, key = slot
        observed = state.observed.get(key)
        if observed is None:
            published = state.published[key]
            rv = state.gone[key] or published.rv
            body = msgspec.Raw(
                self._tombstone_bodies.get(published.uid) or published.succeeded_body or b"null"
            )
            return Fact(kind=kind, key=key, uid=published.uid, rv=rv, op=Op.DELETE, body=body)
        return Fact(
            kind=kind, key=key, uid=observed.uid, rv=observed.rv, body=msgspec.Raw(observed.body)
        )
