"""Subscribing: an endless, typed, resuming iteration over events.

A subscription survives restarts of the server: it resumes after the last event that it delivered.
It raises `PositionGone` when events that it has to deliver are no longer kept.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from typing import Any, Final, Protocol

import msgspec

from pumice.events.envelope import CloudEvent, decode_any, escape
from pumice.events.errors import ClusterGone, PositionGone, Unreachable
from pumice.events.server import Server, find
from pumice.events.stream import EventStream, Position, StreamBroken
from pumice.events.types import Event

RETRY_S: Final = 0.3


class Connection(Protocol):
    """Called when the connection is lost or restored, with a message for the user."""

    def __call__(self, *, is_there: bool, words: str) -> None:
        """Take note."""


def _silent(*, is_there: bool, words: str) -> None:
    """Take no note."""


class Since(msgspec.Struct, frozen=True):
    """Start with the first event at or after a moment."""

    time: float
    """Unix seconds."""


class Start(msgspec.Struct, frozen=True):
    """Start with the event of this sequence: one more than that of the last event seen."""

    sequence: int
    stream: str = ""
    """The stream of that event (`Received.stream`): a sequence of another one means nothing."""


class Received(msgspec.Struct, frozen=True):
    """An event and its place."""

    sequence: int
    """Position in the stream: give `Start(sequence + 1)` to continue behind it."""
    event: CloudEvent
    payload: bytes = b""
    """The event as it is on the stream."""
    stream: str = ""
    """When the stream was made: sequences begin again when it is made again."""


class _Position(msgspec.Struct):
    """The next sequence to deliver, and the stream that it belongs to."""

    created: str
    next_seq: int


def subscribe(
    url: str = "",
    *,
    user: str = "",
    password: str = "",
    ca: str = "",
    cluster: str = "local",
    start: Start | Since | None = None,
    types: Collection[type[Event]] = (),
    namespace: str = "",
    follow: bool = True,
    on_connection: Connection = _silent,
) -> AsyncGenerator[Received, None]:
    """Yield the events of a cluster in order.

    `url` names one server or several, separated by commas, for `user`, `password` and `cluster`;
    `ca` is the file of the authority that must have signed the server's certificate.
    Without it the server is found (`find`): by environment, a mounted Secret, or the local cluster.
    `start`: None begins with what comes next, or, without `follow`, with the oldest event. `types`
    and `namespace` select. With `follow` it reconnects by itself, calls `on_connection`, and
    ends with ClusterGone when a local cluster ends; without, it ends with the last event there is.

    Raises Unreachable when the first contact fails, NotAllowed, and PositionGone when events are
    requested, or were missed while away, that are no longer kept. Leave it early under
    `contextlib.aclosing`, or by cancelling the task.
    """

    def named() -> Server:
        return Server(url=url, user=user, password=password, ca=ca, cluster=cluster)

    return subscribe_at(
        named if url else find,
        start=start,
        types=types,
        namespace=namespace,
        follow=follow,
        on_connection=on_connection,
    )


async def subscribe_at(
    where: Callable[[], Server],
    *,
    start: Start | Since | None = None,
    types: Collection[type[Event]] = (),
    namespace: str = "",
    follow: bool = True,
    on_connection: Connection = _silent,
) -> AsyncGenerator[Received, None]:
    """Yield events as `subscribe` does; `where` returns the server before each connection.

    Raises what `subscribe` does.
    """
    place: _Position | None = None
    server: Server | None = None
    is_lost = False
    while True:
        try:
            server = where()
            filters = _filters(server.cluster, types, namespace)
            async with _stream_of(server) as stream:
                position = await stream.position()
                if is_lost:
                    is_lost = False
                    on_connection(is_there=True, words=f"connected again to {server.url}")
                if place is None:
                    first = _begin(position, start, follow=follow)
                    base = _base(position, start, follow=follow)
                    place = _Position(created=position.created, next_seq=base)
                else:
                    first = _resume(position, place)
                async with aclosing(stream.messages(filters, first)) as batches:
                    async for batch in batches:
                        for sequence, payload in batch:
                            yield Received(sequence, decode_any(payload), payload, place.created)
                            place.next_seq = sequence + 1
                        if not batch and not follow:
                            return
        except (StreamBroken, Unreachable) as exc:
            if place is None or server is None:
                raise Unreachable(str(exc)) from exc
            _raise_if_gone(server, exc)
            if not is_lost:
                is_lost = True
                on_connection(is_there=False, words=f"{exc}; trying again until it is back")
            await asyncio.sleep(RETRY_S)


def _raise_if_gone(server: Server, why: Exception) -> None:
    """Raise ClusterGone when the connection is lost because a local cluster has ended."""
    if server.is_gone:
        raise ClusterGone(f"the local cluster in {server.directory} has ended") from why


def _stream_of(server: Server) -> EventStream:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in server.cluster)
    return EventStream(
        [part.strip() for part in server.url.split(",") if part.strip()],
        user=server.user,
        password=server.password,
        ca=server.ca,
        stream=f"PUMICE_{safe}_EVENTS",
    )


def _filters(cluster: str, types: Collection[type[Event]], namespace: str) -> list[str]:
    where = escape(namespace) if namespace else "*"
    tokens = sorted({each.topic for each in types}) or ["*.*"]
    return [f"pumice.{escape(cluster)}.events.{token}.{where}" for token in tokens]


def _base(position: Position, start: Start | Since | None, *, follow: bool) -> int:
    """Return the sequence from which to resume before any event was delivered."""
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
        case Start(sequence, stream):
            if stream and stream != position.created:
                raise _gone(position, "the stream was made anew; what came before")
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


def _resume(position: Position, place: _Position) -> dict[str, Any]:
    """Return where to continue. Raises PositionGone when events were lost while away."""
    _check_resume(position, place)
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(place.next_seq, 1)}


def _check_resume(position: Position, place: _Position) -> None:
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
