"""Following a stream: what is stored, then what comes, in order, through every kind of failure.

Each interruption opens a new consumer. If the stream is the same one (its `created` time) and
holds what we have read, reading goes on behind the last message; otherwise, or when we were away
longer than tombstones live, a `Reset` tells the reader to forget everything.

With a pace (`shared.bus.pace`) it then reads in batches, and live while queries come.

The replay asks without waiting until the server answers that there is nothing left. That moment
is `CaughtUp`, taken from the server's own reading position: the pending counter in messages, and a
sequence noted beforehand, cannot tell it, because an object that is updated during the replay is
skipped at its old place and comes again at the end.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from shared.api.time import format_micro
from shared.bus.errors import LimitReached
from shared.bus.feed import EXPIRES_S, NANO, Feed, FeedLost, Feeds, position
from shared.bus.pace import FollowerPace, Pace
from shared.bus.values import (
    CaughtUp,
    FollowItem,
    FromSequence,
    FromTime,
    Idle,
    LastPerSubject,
    Message,
    OnlyNew,
    Reset,
    Start,
    Started,
)
from shared.contracts.streams import TOMBSTONE_TTL_S
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger

BATCH: Final = 512
RETRY_S: Final = 0.2
LIMITED_S: Final = 2.0
"""How long to wait when the server has no room for one more consumer."""
IDLE_S: Final = 1.0
AWAY_S: Final = TOMBSTONE_TTL_S / 2
"""After this long without contact a resume could miss a tombstone."""
FORGOTTEN_S: Final = 2 * EXPIRES_S
"""After this long without a reader the server removes the consumer."""


class _Position(msgspec.Struct, kw_only=True):
    """The position of the reader, and the epoch of the stream that it is in."""

    created: str
    sequence: int
    seen_at: float
    """When the server sent something last, monotonic."""
    caught_up: bool = False
    """Whether everything that the stream had at the start has been read."""


class Follower:
    """Follows some subjects of one stream for one reader."""

    def __init__(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        start: Start,
        feeds: Feeds,
        on_refused: Callable[[str, str], None],
        clock: Clock,
        log: Logger,
        pace: Pace | None = None,
    ) -> None:
        self._pace = pace
        self._stream = stream
        self._subjects = list(subjects)
        self._start = start
        self._feeds = feeds
        self._api = feeds.api
        self._on_refused = on_refused
        self._clock = clock
        self._log = log
        self._place: _Position | None = None
        self._is_refused = False
        """Whether the server had no room for a consumer at the last attempt."""
        self._started = Started(last_seq=0, first_seq=0, created="", resumed=False)

    async def items(self) -> AsyncGenerator[FollowItem, None]:
        """Yield until cancelled; see `NatsBus.follow`."""
        try:
            with self._pace.follower() if self._pace else nullcontext() as follower_pace:
                async with aclosing(self._endless(follower_pace)) as items:
                    async for item in items:
                        yield item
        finally:
            self._note_refused("")

    async def _endless(
        self, follower_pace: FollowerPace | None
    ) -> AsyncGenerator[FollowItem, None]:
        while True:
            if follower_pace is not None:
                follower_pace.detach()
            name = self._feeds.name("follow")
            try:
                feed = await self._feeds.open(self._stream, name, wait_s=IDLE_S)
                try:
                    reason = await self._begin(name)
                    if reason:
                        self._log.warning("follower_reset", stream=self._stream, reason=reason)
                        self._place = None
                        yield Reset(reason)
                        continue
                    self._note_refused("")
                    yield self._started
                    async with aclosing(self._read(feed, follower_pace)) as items:
                        async for item in items:
                            yield item
                finally:
                    await feed.close()
            except FeedLost as lost:
                self._log.info("follower_interrupted", stream=self._stream, reason=str(lost))
                yield Idle()
            except LimitReached as exc:
                self._note_refused(str(exc))
                await self._clock.sleep(LIMITED_S)
                yield Idle()
            except Retryable as exc:
                self._log.debug("follower_delayed", stream=self._stream, reason=str(exc))
                await self._clock.sleep(RETRY_S)
                yield Idle()

    def _note_refused(self, reason: str) -> None:
        """Tell that the server has no room for a consumer, or ("") that it has again."""
        if bool(reason) == self._is_refused:
            return
        self._is_refused = bool(reason)
        if reason:
            self._log.warning("follower_refused", stream=self._stream, reason=reason)
        self._on_refused(self._stream, reason)

    async def _begin(self, name: str) -> str:
        """Make the consumer; return why reading cannot go on where it was, or ""."""
        place = self._place
        await self._api.make_consumer(self._stream, name, self._config(place))
        # Read after the consumer was made: a stream recreated in between has lost the consumer.
        info = (await self._api.stream(self._stream)).info
        now = self._clock.monotonic()
        if place is None:
            self._place = _Position(
                created=info.created, sequence=self._base(info.last_seq), seen_at=now
            )
        elif reason := self._broken(place, created=info.created, last=info.last_seq, now=now):
            return reason
        elif not isinstance(self._start, LastPerSubject) and place.sequence + 1 < info.first_seq:
            return f"messages {place.sequence + 1} to {info.first_seq - 1} are gone"
        self._started = Started(
            last_seq=info.last_seq,
            first_seq=info.first_seq,
            created=info.created,
            resumed=place is not None,
        )
        return ""

    def _base(self, last_seq: int) -> int:
        """Return the sequence behind which a resume goes on before anything was read."""
        match self._start:
            case OnlyNew():
                return last_seq
            case FromSequence(sequence):
                return sequence - 1
            case _:
                return 0

    def _broken(self, place: _Position, *, created: str, last: int, now: float) -> str:
        if created != place.created:
            return f"stream was made anew (created {created}, before {place.created})"
        if last < place.sequence:
            return f"stream went back from {place.sequence} to {last}"
        if now - place.seen_at > AWAY_S:
            return f"away for {now - place.seen_at:.0f} s"
        return ""

    def _config(self, place: _Position | None) -> dict[str, Any]:
        config: dict[str, Any] = {
            "ack_policy": "none",
            "filter_subjects": self._subjects,
            "inactive_threshold": int(FORGOTTEN_S * NANO),
            "mem_storage": True,
            "num_replicas": 1,
        }
        new = isinstance(self._start, OnlyNew)  # on an empty stream new is what follows nothing
        if place is not None and (place.sequence > 0 or place.caught_up or new):
            return {
                **config,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": place.sequence + 1,
            }
        return {**config, **_policy(self._start)}

    async def _read(
        self, feed: Feed, follower_pace: FollowerPace | None
    ) -> AsyncGenerator[list[Message] | CaughtUp | Idle, None]:
        """Yield messages; ends by FeedLost only."""
        place = self._place
        assert place is not None, "_begin has set it"
        caught_up = False
        expected = 1
        await feed.request(BATCH, wait=False)
        while True:
            chunk = await feed.take()
            place.seen_at = self._clock.monotonic()
            messages, gap = _in_order(chunk.messages, expected)
            expected += len(messages)
            if not chunk.messages and not chunk.ended:
                yield Idle()
            if messages:
                place.sequence = messages[-1].sequence
                yield messages
            if gap:
                raise FeedLost(gap)
            if chunk.empty and not caught_up:
                caught_up = place.caught_up = True
                # Messages before it that did not come have other subjects.
                place.sequence = max(place.sequence, self._started.last_seq)
                yield CaughtUp()
            elif chunk.empty and not messages:
                yield Idle()
            if chunk.ended:
                wait = caught_up
                if caught_up and follower_pace is not None:
                    wait = await follower_pace.next(empty=chunk.empty)
                await feed.request(BATCH, wait=wait)


def _in_order(msgs: Sequence[Msg], expected: int) -> tuple[list[Message], str]:
    """Return deliveries from `expected` on, and what is wrong with the next one, or ""."""
    messages: list[Message] = []
    for msg in msgs:
        at = position(msg)
        desired = expected + len(messages)
        if at.consumer_seq != desired:
            return messages, f"expected delivery {desired}, got {at.consumer_seq}"
        messages.append(_message(msg, at.stream_seq, at.time))
    return messages, ""


def _policy(start: Start) -> dict[str, Any]:
    match start:
        case LastPerSubject():
            return {"deliver_policy": "last_per_subject"}
        case FromSequence(sequence):
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(sequence, 1)}
        case FromTime(unix_s):
            return {
                "deliver_policy": "by_start_time",
                "opt_start_time": format_micro(unix_s),
            }
        case OnlyNew():
            return {"deliver_policy": "new"}


def _message(msg: Msg, sequence: int, time: float) -> Message:
    return Message(
        subject=msg.subject, sequence=sequence, payload=msg.data, time=time, headers=msg.headers
    )
