"""One stream: stored messages, their limits, and the reply to a publish.

Synchronous and without a clock: the time of each call is an argument (Unix seconds). Limits,
expected sequences and the window for duplicates are nats-server's, in its order: a publish is
measured against what it expects first, and only then against the ids that were seen, so that a
fenced message which is sent again behind a new leader's mark is refused although it is stored.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from pumice.embedded.memory_nats.subjects import Filter, matches

NANO: Final = 1_000_000_000
OVERHEAD: Final = 30
"""Bytes that a message counts beyond subject, headers and payload (of the server's file store)."""

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
TTL: Final = "Nats-TTL"
ROLLUP: Final = "Nats-Rollup"
BATCH: Final = "Nats-Batch-Id"
PLACE: Final = "Nats-Batch-Sequence"
COMMIT: Final = "Nats-Batch-Commit"
ABANDONED_S: Final = 10.0
"""After this long without its next message a batch is given up."""
MOST_BATCHES: Final = 50
MOST_IN_BATCH: Final = 1000

_COMPACT_AFTER: Final = 64


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message as it lies in its stream."""

    sequence: int
    subject: str
    payload: bytes
    headers: dict[str, str] | None
    time: float
    """When it was stored, Unix seconds."""
    size: int
    """Bytes that count against the limit."""


class PublishRefusal(msgspec.Struct, frozen=True):
    """The server's refusals to store, in its own codes."""

    code: int
    err_code: int
    description: str


class Accepted(msgspec.Struct, frozen=True):
    """The reply to a publish that was stored, now or (`duplicate`) before."""

    sequence: int
    duplicate: bool = False
    stored: StoredMessage | None = None
    """Message that was stored by it; a later one of its batch may be in its place."""


class Staged(msgspec.Struct, frozen=True):
    """One message of a batch that is not committed."""

    subject: str
    payload: bytes
    headers: dict[str, str]
    time: float


class MemoryStream:
    """A stream with the server's settings in `config` and `created` as its epoch (RFC 3339)."""

    def __init__(self, config: dict[str, Any], *, created: str) -> None:
        self.config = config
        self.created: Final = created
        self.cluster: dict[str, object] | None = None
        """The part of the reply about its copies, where it has some."""
        self.last_seq = 0
        self.bytes = 0
        self._messages: dict[int, StoredMessage] = {}
        self._order: list[int] = []
        self._oldest = 0
        """Place in `_order` of the oldest message, or one before it that was removed."""
        self._of_subject: dict[str, dict[int, None]] = {}
        self._mortal: list[tuple[float, int]] = []
        self._seen: dict[str, int] = {}
        self._seen_at: deque[tuple[float, str]] = deque()
        self._batches: dict[str, list[Staged]] = {}

    @property
    def is_file(self) -> bool:
        """Return whether it outlives a restart of the server."""
        return bool(self.config["storage"] == "file")

    @property
    def is_queue(self) -> bool:
        """Return whether an acknowledged message leaves it."""
        return bool(self.config["retention"] == "workqueue")

    @property
    def first_seq(self) -> int:
        """Return the sequence of the oldest message, the next one's when it was emptied."""
        self._skip_removed()
        if self._oldest < len(self._order):
            return self._order[self._oldest]
        return self.last_seq + 1 if self.last_seq else 0

    def __len__(self) -> int:
        """Return how many messages are stored."""
        return len(self._messages)

    def takes(self, subject: str) -> bool:
        """Return whether a message with that subject belongs here."""
        return any(matches(pattern, subject) for pattern in self.config["subjects"])

    def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, *, now: float
    ) -> Accepted | PublishRefusal:
        """Store a message, or say why not."""
        self.expire(now)
        given = headers or {}
        if refusal := self._refuses(subject, given):
            return refusal
        identity = given.get(MSG_ID)
        if identity is not None and identity in self._seen:
            return Accepted(self._seen[identity], duplicate=True)
        size = _size(subject, payload, given)
        replaced = self._replaced(subject, rollup=ROLLUP in given)
        limit = self.config["max_bytes"]
        if limit >= 0:
            freed = sum(self._messages[sequence].size for sequence in replaced)
            if self._is_beyond_limit(self.bytes - freed + size):
                return PublishRefusal(503, 10077, "maximum bytes exceeded")
            self._make_room(limit - size)
        for sequence in replaced:
            self.remove(sequence)
        stored = self._store(subject, payload, headers, size=size, now=now)
        if identity is not None:
            self._seen[identity] = self.last_seq
            self._seen_at.append((now, identity))
        return Accepted(self.last_seq, stored=stored)

    def publish_in_batch(
        self, subject: str, payload: bytes, headers: dict[str, str], *, now: float
    ) -> list[Accepted] | PublishRefusal | None:
        """Keep a message of a batch; store all of them with the one that commits, or none.

        Returns None for a message that is kept.
        """
        if not self.config.get("allow_atomic"):
            return PublishRefusal(400, 10174, "atomic publish is disabled")
        self.expire(now)
        for name in [
            n for n, staged in self._batches.items() if staged[-1].time + ABANDONED_S <= now
        ]:
            del self._batches[name]
        name, place = headers[BATCH], int(headers[PLACE])
        staged = self._batches.get(name, [])
        if place != len(staged) + 1 or place > MOST_IN_BATCH:
            self._batches.pop(name, None)
            return PublishRefusal(400, 10176, "atomic publish batch is incomplete")
        if not staged and len(self._batches) >= MOST_BATCHES:
            return PublishRefusal(429, 10210, "atomic publish too many inflight")
        self._batches[name] = staged
        staged.append(Staged(subject, payload, headers, now))
        if COMMIT not in headers:
            return None
        return self._committed(self._batches.pop(name), now=now)

    def staged(self, name: str) -> tuple[Staged, ...]:
        """Return the messages of a batch that are kept so far."""
        return tuple(self._batches.get(name, ()))

    def forget_batches(self, *, but: Collection[str] = ()) -> None:
        """Give up what is not committed, `but` the batches of these names."""
        self._batches = {name: staged for name, staged in self._batches.items() if name in but}

    def _committed(self, batch: list[Staged], *, now: float) -> list[Accepted] | PublishRefusal:
        written: set[str] = set()
        ids: set[str] = set()
        used = self.bytes
        for staged in batch:
            headers = staged.headers
            if EXPECTED in headers and headers.get(EXPECTED_OF, staged.subject) in written:
                return PublishRefusal(400, 10164, "last sequence by subject mismatch")
            if refusal := self._refuses(staged.subject, headers):
                return refusal
            identity = headers.get(MSG_ID)
            if identity is not None:
                if identity in self._seen or identity in ids:
                    return PublishRefusal(
                        400, 10201, "atomic publish batch contains duplicate message id"
                    )
                ids.add(identity)
            used += _size(staged.subject, staged.payload, headers)
            if staged.subject not in written:
                replaced = self._replaced(staged.subject, rollup=ROLLUP in headers)
                used -= sum(self._messages[sequence].size for sequence in replaced)
            if self._is_beyond_limit(used):
                return PublishRefusal(503, 10077, "maximum bytes exceeded")
            written.add(staged.subject)
        answers = []
        for one in batch:
            reply = self.publish(one.subject, one.payload, one.headers, now=now)
            assert isinstance(reply, Accepted), f"a batch was checked and {reply} came"
            answers.append(reply)
        return answers

    def _is_beyond_limit(self, used: int) -> bool:
        """Return whether a stream that discards new messages takes none that makes it so large."""
        limit: int = self.config["max_bytes"]
        discard: str = self.config["discard"]
        return discard == "new" and 0 <= limit <= used

    def remove(self, sequence: int) -> bool:
        """Remove a message; return whether it was there."""
        stored = self._messages.pop(sequence, None)
        if stored is None:
            return False
        self.bytes -= stored.size
        siblings = self._of_subject[stored.subject]
        del siblings[sequence]
        if not siblings:
            del self._of_subject[stored.subject]
        if len(self._order) > 2 * len(self._messages) + _COMPACT_AFTER:
            self._order = [number for number in self._order if number in self._messages]
            self._oldest = 0
        return True

    def expire(self, now: float) -> None:
        """Remove what is too old, and forget the ids beyond the window."""
        while self._mortal and self._mortal[0][0] <= now:
            self.remove(heapq.heappop(self._mortal)[1])
        max_age_s = self.config["max_age"] / NANO
        if max_age_s:
            while (oldest := next(self.messages(), None)) and oldest.time + max_age_s <= now:
                self.remove(oldest.sequence)
        window_s = self.config["duplicate_window"] / NANO
        while self._seen_at and self._seen_at[0][0] + window_s <= now:
            self._seen.pop(self._seen_at.popleft()[1], None)

    def restart(self) -> None:
        """Remember ids as a restarted server does: those of the messages that are still stored.

        The id of a message that was taken from a queue is forgotten with it, so that one which is
        sent again after the restart is stored again.
        """
        self.forget_batches()
        self._seen_at = deque(
            (stored.time, stored.headers[MSG_ID])
            for stored in self.messages()
            if stored.headers and MSG_ID in stored.headers
        )
        self._seen = {
            stored.headers[MSG_ID]: stored.sequence
            for stored in self.messages()
            if stored.headers and MSG_ID in stored.headers
        }

    def get(self, sequence: int) -> StoredMessage | None:
        """Return the message with that sequence."""
        return self._messages.get(sequence)

    def last_of(self, subject: str) -> StoredMessage | None:
        """Return the last message of one subject."""
        siblings = self._of_subject.get(subject)
        return self._messages[next(reversed(siblings))] if siblings else None

    def next_from(self, sequence: int, filter_: Filter) -> StoredMessage | None:
        """Return the first message at or after `sequence` that `filter_` takes."""
        for stored in self.messages(sequence):
            if filter_.takes(stored.subject):
                return stored
        return None

    def first_since(self, time: float) -> int:
        """Return the sequence of the first message stored at or after `time`."""
        for stored in self.messages():
            if stored.time >= time:
                return stored.sequence
        return self.last_seq + 1

    def lasts(self, filter_: Filter) -> list[StoredMessage]:
        """Return the last message of each subject that `filter_` takes, in the stream's order."""
        found = [
            next(reversed(s)) for subject, s in self._of_subject.items() if filter_.takes(subject)
        ]
        return [self._messages[sequence] for sequence in sorted(found)]

    def messages(self, sequence: int = 0) -> Iterator[StoredMessage]:
        """Yield the messages from `sequence` on; do not change the stream meanwhile."""
        self._skip_removed()
        order = self._order
        for place in range(bisect_left(order, sequence, self._oldest), len(order)):
            stored = self._messages.get(order[place])
            if stored is not None:
                yield stored

    def purge(self, subject: str, *, before: int = 0) -> int:
        """Remove the messages of a subject, (if not 0) those below `before`; return how many."""
        filter_ = Filter([subject])
        gone = [
            stored.sequence
            for stored in self.messages()
            if filter_.takes(stored.subject) and (not before or stored.sequence < before)
        ]
        for sequence in gone:
            self.remove(sequence)
        return len(gone)

    def _skip_removed(self) -> None:
        """Step over the removed messages at the beginning, each of them once."""
        order, stored = self._order, self._messages
        while self._oldest < len(order) and order[self._oldest] not in stored:
            self._oldest += 1

    def _refuses(self, subject: str, headers: dict[str, str]) -> PublishRefusal | None:
        expected = headers.get(EXPECTED)
        if expected is not None:
            last = self.last_of(headers.get(EXPECTED_OF, subject))
            actual = last.sequence if last is not None else 0
            if actual != int(expected):
                return PublishRefusal(400, 10071, f"wrong last sequence: {actual}")
        if TTL in headers and not self.config["allow_msg_ttl"]:
            return PublishRefusal(400, 10166, "per-message TTL is disabled")
        if ROLLUP in headers and not self.config.get("allow_rollup_hdrs"):
            return PublishRefusal(500, 10052, "rollup not permitted")
        return None

    def _replaced(self, subject: str, *, rollup: bool) -> list[int]:
        """Return the messages that a new one of `subject` pushes out by their number."""
        most = self.config["max_msgs_per_subject"]
        siblings = self._of_subject.get(subject)
        if rollup and siblings:
            return list(siblings)
        if most < 1 or not siblings:
            return []
        return list(siblings)[: max(0, len(siblings) + 1 - most)]

    def _make_room(self, room: int) -> None:
        while self.config["discard"] == "old" and self.bytes > room and self._messages:
            self.remove(self.first_seq)

    def _store(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, *, size: int, now: float
    ) -> StoredMessage:
        self.last_seq += 1
        self._messages[self.last_seq] = stored = StoredMessage(
            sequence=self.last_seq,
            subject=subject,
            payload=payload,
            headers=headers,
            time=now,
            size=size,
        )
        self._order.append(self.last_seq)
        self._of_subject.setdefault(subject, {})[self.last_seq] = None
        self.bytes += size
        if headers and TTL in headers:
            heapq.heappush(self._mortal, (now + int(headers[TTL]), self.last_seq))
        return stored


def _size(subject: str, payload: bytes, headers: dict[str, str]) -> int:
    """Return the bytes that a message counts."""
    size = len(subject) + len(payload) + OVERHEAD
    return size + sum(len(name) + len(value) + 4 for name, value in headers.items())
