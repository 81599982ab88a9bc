"""Subscribing: an endless, typed, resuming iteration over events.

A subscription survives restarts of the server: it goes on behind the last event that it gave. What
it cannot hide it says: `PositionGone` when events that it should give are no longer kept.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, Final

import msgspec

from pumice.events.envelope import CloudEvent, decode_any, escape
from pumice.events.errors import PositionGone, Unreachable
from pumice.events.stream import Broken, EventStream, Position
from pumice.events.types import Event

RETRY_S: Final = 0.3


class Since(msgspec.Struct, frozen=True):
    """Start with the first event at or after a moment."""

    time: float
    """Unix seconds."""


class Start(msgspec.Struct, frozen=True):
    """Start with the event of this sequence: one more than that of the last event seen."""

    sequence: int


class Received(msgspec.Struct, frozen=True):
    """An event and its place."""

    sequence: int
    """Place on the stream: give `Start(sequence + 1)` to go on behind it."""
    event: CloudEvent


class _Place(msgspec.Struct):
    """What has been given, and of which stream."""

    created: str
    next_seq: int


async def subscribe(
    url: str,
    *,
    user: str = "",
    password: str = "",
    cluster: str = "local",
    start: Start | Since | None = None,
    types: Collection[type[Event]] = (),
    namespace: str = "",
    follow: bool = True,
) -> AsyncGenerator[Received, None]:
    """Yield the events of a cluster in order.

    `url` names one server or several, separated by commas. `start`: None begins with what comes
    next, or, without `follow`, with the oldest event. `types` and `namespace` select. With `follow`
    it never ends and reconnects by itself; without, it ends with the last event that there is.

    Raises Unreachable when the first contact fails, NotAllowed, and PositionGone when events are
    asked for, or were missed while away, that are no longer kept. Leave it early under
    `contextlib.aclosing`, or by cancelling the task.
    """
    servers = [part.strip() for part in url.split(",") if part.strip()]
    filters = _filters(cluster, types, namespace)
    place: _Place | None = None
    while True:
        stream = EventStream(servers, user=user, password=password, stream=_stream_name(cluster))
        try:
            async with stream:
                position = await stream.position()
                if place is None:
                    first = _begin(position, start, follow=follow)
                    base = _base(position, start, follow=follow)
                    place = _Place(created=position.created, next_seq=base)
                else:
                    _check_resume(position, place)
                    first = _resume(place)
                async with aclosing(stream.messages(filters, first)) as batches:
                    async for batch in batches:
                        for sequence, payload in batch:
                            yield Received(sequence, decode_any(payload))
                            place.next_seq = sequence + 1
                        if not batch and not follow:
                            return
        except (Broken, Unreachable) as exc:
            if place is None:
                raise Unreachable(str(exc)) from exc
            await asyncio.sleep(RETRY_S)


def _stream_name(cluster: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster)
    return f"PUMICE_{safe}_EVENTS"


def _filters(cluster: str, types: Collection[type[Event]], namespace: str) -> list[str]:
    where = f"{escape(namespace)}.*" if namespace else ">"
    tokens = sorted({each.topic for each in types}) or ["*.*"]
    return [f"pumice.{escape(cluster)}.events.{token}.{where}" for token in tokens]


def _base(position: Position, start: Start | Since | None, *, follow: bool) -> int:
    """Return the sequence from which a resume goes on before anything was given."""
    match start:
        case Start(sequence):
            return sequence
        case None if follow:
            return position.last_seq + 1
        case _:
            return position.first_seq


def _begin(position: Position, start: Start | Since | None, *, follow: bool) -> dict[str, Any]:
    """Return where the consumer begins. Raises PositionGone."""
    match start:
        case Start(sequence):
            if sequence < position.first_seq:
                raise _gone(position, f"event {sequence}")
            if sequence > position.last_seq + 1:
                raise PositionGone(
                    f"event {sequence} is not there yet: the last is {position.last_seq} "
                    f"(was the stream made anew?)",
                    oldest=position.first_seq,
                    oldest_time=position.first_time,
                )
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(sequence, 1)}
        case Since(time):
            if position.first_seq > 1 and time < position.first_time:
                raise _gone(position, f"events since {_shown(time)}")
            stamp = _shown(time).replace("+00:00", "Z")
            return {"deliver_policy": "by_start_time", "opt_start_time": stamp}
        case None:
            return {"deliver_policy": "new" if follow else "all"}


def _resume(place: _Place) -> dict[str, Any]:
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(place.next_seq, 1)}


def _check_resume(position: Position, place: _Place) -> None:
    """Raise PositionGone when events were lost while the connection was away."""
    if position.created != place.created:
        raise _gone(position, "the stream was made anew; what came before")
    if place.next_seq < position.first_seq:
        raise _gone(position, f"events {place.next_seq} to {position.first_seq - 1}")


def _gone(position: Position, what: str) -> PositionGone:
    return PositionGone(
        f"{what}: no longer kept; the oldest event is {position.first_seq} "
        f"of {_shown(position.first_time)}",
        oldest=position.first_seq,
        oldest_time=position.first_time,
    )


def _shown(unix_s: float) -> str:
    return dt.datetime.fromtimestamp(unix_s, tz=dt.UTC).isoformat()
