"""Quarantine of objects that exceeded their time budget, or whose handling killed a process. Pure.

A quarantined object is excluded from decisions for `FIRST_S`; each further offence doubles that, up
to `LONGEST_S`. It is released early when its owner changes its spec or deletes it; after `FORGIVEN`
offences only when its time is over. Offences are forgotten `LONGEST_S` after the end of the last
quarantine.

A process that dies while it handles an object may have been killed for any reason. So the first
death is a suspicion only, unless the handling was slow already; the second one quarantines.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.engine.progress import Step
from shared.contracts import messages as m
from shared.model.backoff import delay_s

FIRST_S: Final = 60.0
LONGEST_S: Final = 3600.0
FORGIVEN: Final = 3
ENTRIES_MAX: Final = 200
"""The quarantine that ends first makes room for a new one."""
_PODGROUPS: Final = "podgroups"


class OverrunEntry(Struct, frozen=True, kw_only=True):
    """One object, and until when it is left out."""

    kind: str
    key: str
    uid: str
    stage: str
    """The step that handled it: an action, `status`, `fold`."""
    plugin: str = ""
    reason: str
    """One line for a person."""
    offences: int
    until: float
    """Unix seconds; in the past for a mere suspicion, or when it may be tried again."""
    asks: str = ""
    """Digest of the object's spec, once a fact of it was read in quarantine."""


class OverrunQuarantine:
    """The entries of one process; used from one thread."""

    def __init__(self, entries: Iterable[OverrunEntry] = ()) -> None:
        self._entries: dict[tuple[str, str], OverrunEntry] = {}
        self.changes = 0
        """How often something changed; the part that stores the entries compares it."""
        self.merge(entries)

    def put(self, step: Step, *, plugin: str, why: str, now: float) -> OverrunEntry:
        """Quarantine the object of a step for one more offence, and return its entry."""
        before = self._before(step)
        offences = before.offences + 1 if before is not None else 1
        wait_s = _wait_s(offences)
        by = f"plugin {plugin} in " if plugin else ""
        entry = OverrunEntry(
            kind=step.kind,
            key=step.key,
            uid=step.uid,
            stage=step.stage,
            plugin=plugin,
            reason=f"quarantined for {wait_s:.0f} s: {by}{step.stage} {why}",
            offences=offences,
            until=now + wait_s,
        )
        self._set(entry)
        return entry

    def note_death(self, step: Step, *, now: float) -> OverrunEntry:
        """Record that a process died while it handled an object; return the entry of the object.

        It is a suspicion at first, and a quarantine when it is suspected already.
        """
        if self._before(step) is not None:
            return self.put(step, plugin="", why="was under way when a process died", now=now)
        entry = OverrunEntry(
            kind=step.kind,
            key=step.key,
            uid=step.uid,
            stage=step.stage,
            reason="a process died while it was handled",
            offences=1,
            until=now,
        )
        self._set(entry)
        return entry

    def merge(self, entries: Iterable[OverrunEntry]) -> None:
        """Store what another process has found; the later end of a quarantine counts."""
        for entry in entries:
            known = self._entries.get((entry.kind, entry.key))
            if known is None or (known.offences, known.until) < (entry.offences, entry.until):
                self._set(entry)

    def observe(self, facts: Iterable[m.Fact], *, now: float) -> None:
        """Release objects that their owners have deleted, recreated or changed."""
        for fact in facts if self._entries else ():
            entry = self._entries.get((fact.kind, fact.key))
            if entry is not None:
                self._observe(entry, fact, now)

    def _observe(self, entry: OverrunEntry, fact: m.Fact, now: float) -> None:
        if fact.op is m.Op.DELETE or (entry.uid and fact.uid and fact.uid != entry.uid):
            del self._entries[entry.kind, entry.key]
            self.changes += 1
            return
        asks = _digest(fact)
        if not entry.asks:
            self._set(replace(entry, asks=asks))
        elif entry.asks != asks:
            is_forgiven = entry.offences < FORGIVEN
            until = min(entry.until, now) if is_forgiven else entry.until
            self._set(replace(entry, asks=asks, until=until))

    def jobs(self, now: float) -> dict[str, str]:
        """Return the keys of the PodGroups that are left out at `now`, with reasons."""
        return {
            entry.key: entry.reason
            for entry in self.entries()
            if entry.kind == _PODGROUPS and entry.until > now
        }

    def review(self, now: float) -> None:
        """Forget offences that are long past, and cut ends that lie too far ahead.

        Such an end comes from a wall clock that was wrong: of another host, or of this one before
        it was set back.
        """
        for at, entry in list(self._entries.items()):
            latest = now + _wait_s(entry.offences)
            if entry.until + LONGEST_S <= now:
                del self._entries[at]
                self.changes += 1
            elif entry.until > latest:
                self._set(replace(entry, until=latest))

    def entries(self) -> list[OverrunEntry]:
        """Return everything, by kind and key."""
        return [entry for _, entry in sorted(self._entries.items())]

    def _before(self, step: Step) -> OverrunEntry | None:
        found = self._entries.get((step.kind, step.key))
        return found if found is not None and found.uid in ("", step.uid) else None

    def _set(self, entry: OverrunEntry) -> None:
        self._entries[entry.kind, entry.key] = entry
        self.changes += 1
        if len(self._entries) > ENTRIES_MAX:
            first = min(self._entries.values(), key=lambda e: (e.until, e.kind, e.key))
            del self._entries[first.kind, first.key]


def encode(entries: Iterable[OverrunEntry]) -> bytes:
    """Return entries as they are stored on the bus and in a file."""
    return msgspec.json.encode(list(entries))


def decode(payload: bytes) -> list[OverrunEntry]:
    """Return stored entries; none if they are unreadable, as of another release."""
    try:
        return msgspec.json.decode(payload, type=list[OverrunEntry])
    except ValueError:  # a `DecodeError`, or one about bytes that are not UTF-8
        return []


def _wait_s(offences: int) -> float:
    """Return how long an object is quarantined for its latest offence, in seconds."""
    return delay_s(offences - 1, first_s=FIRST_S, cap_s=LONGEST_S)


def _digest(fact: m.Fact) -> str:
    """Return a digest of an object's spec, without its status, which we write ourselves."""
    try:
        body: Any = msgspec.json.decode(fact.body)
    except msgspec.DecodeError:
        return "unreadable"
    body = body if isinstance(body, dict) else {}
    meta = body.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    parts = [body.get("spec"), meta.get("labels"), meta.get("annotations")]
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:32]
