"""An informer without its cache: the state of a kind first, then its changes.

`ListWatch.items()` yields `Listed` (the whole state, which replaces everything before it), then
`Changed`, `Malformed` and `Bookmark`. When the connection is lost it yields `Unavailable`, then a
`Listed` if changes may have been missed, or else a `Bookmark` and further changes. It never ends,
and raises for nothing that the server or the network does; the delay between attempts grows.

The state is streamed (WatchList, KEP-3157: `sendInitialEvents`), or listed in pages by a server
that cannot stream it. Both start from the newest state, not from an old one of a watch cache.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.kube.client import Kube, Selection
from shared.kube.decode import (
    Bookmark,
    Changed,
    ChangeOp,
    KindDecoder,
    Listed,
    Malformed,
    WatchError,
    WatchEvent,
)
from shared.kube.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    TOO_MANY,
    UNPROCESSABLE,
    Expired,
    Refusal,
    Refused,
    Silence,
    Unreachable,
    refusal,
)
from shared.kube.wire import Stream
from shared.runtime.backoff import Backoff
from shared.runtime.errors import PumiceError, Retryable

__all__ = [
    "Bookmark",
    "ChangeOp",
    "Changed",
    "LineBuffer",
    "ListWatch",
    "Listed",
    "Malformed",
    "Unavailable",
]

LINE_MAX: Final = 64 * 1024 * 1024
"""Longest line in bytes; etcd limits objects to 1.5 MiB by default, so a longer one is no event."""


class ListWatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times in seconds; tests make them short."""

    silence_s: float = 90.0
    """A watch without a byte for so long is opened again: bookmarks come each minute."""
    initial_silence_s: float = 15.0
    """The same while the initial state is streamed."""
    watch_least_s: int = 300
    watch_most_s: int = 480
    """The server ends a watch after a random time between the two, so that load spreads."""
    bookmark_watch_s: int = 3
    """Length of a watch of which a bookmark is wanted: one comes two seconds before its end."""
    first_retry_s: float = 0.1
    last_retry_s: float = 5.0
    longest_asked_s: float = 30.0
    """Upper bound of a wait that an overloaded server (429) asks for."""
    absent_retry_s: float = 3.0
    """How often a kind is tried again that the server does not know or does not let us see."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """The kind cannot be watched now; tried again in `retry_in_s`."""

    status: int
    """HTTP status: 404 or 501 the kind is not served, 403 no right to see it; 0 no answer."""
    message: str
    retry_in_s: float

    @property
    def is_absent(self) -> bool:
        """Tell whether the server says that it does not know the kind."""
        return self.status in NOT_SERVED


Item = Listed | Changed | Malformed | Bookmark | Unavailable

NOT_SERVED: Final = frozenset({NOT_FOUND, NOT_IMPLEMENTED})
"""Answers of a server without the kind: not installed, or beyond what (the embedded one) does."""
_NO_STREAMING: Final = frozenset({BAD_REQUEST, UNPROCESSABLE})
"""Answers of a server that cannot stream a list."""
_PAGED_AFTER: Final = 2
"""Streamed lists that broke off in a row, after which the next one is paged."""
_RELIST_AFTER: Final = 6
"""Watches that the server ended with an error in a row, after which the state is listed again."""
_TOO_SHORT_S: Final = 1.0
"""A watch that ends in order but sooner and with nothing in it counts as a failure."""


class LineBuffer:
    """Cuts a stream of bytes into complete lines, and keeps the unfinished last one."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return all lines that `chunk` completes, each with its newline, or b"".

        Raises Unreachable when a line grows beyond `LINE_MAX`. A giant line costs one copy, not
        one per chunk.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._size += len(chunk)
            if self._size > LINE_MAX:
                raise Unreachable(f"a line of the watch has more than {LINE_MAX} bytes")
            self._pieces.append(chunk)
            return b""
        complete = b"".join((*self._pieces, chunk[:end])) if self._pieces else chunk[:end]
        rest = chunk[end:]
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        return complete


class _Reader:
    """The events of one connection, block by block."""

    def __init__(self, stream: Stream, decoder: KindDecoder) -> None:
        self._stream = stream
        self._decoder = decoder
        self._lines = LineBuffer()

    async def block(self, silence_s: float) -> Sequence[WatchEvent] | None:
        """Return the next events (perhaps none yet), or None at the end of the stream."""
        chunk = await self._stream.read(silence_s=silence_s)
        if not chunk:
            return None
        lines = self._lines.feed(chunk)
        return self._decoder.events(lines) if lines else ()


class ListWatch:
    """The list and watch of one kind and selection."""

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        times: ListWatchTimes | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._selection = Selection(
            namespace=namespace, field_selector=field_selector, label_selector=label_selector
        )
        self._times = times or ListWatchTimes()
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._backoff = Backoff(
            first_s=self._times.first_retry_s,
            cap_s=self._times.last_retry_s,
            jitter=0.5,
            rng=self._rng,
        )
        self._version = ""
        """Last version delivered; empty: the state has to be listed."""
        self._can_stream = True
        self._broken_lists = 0
        self._cut_off = False
        self.wants_bookmark = False
        """Whether the next connections are short, so that bookmarks come soon."""

    async def items(self) -> AsyncGenerator[Item, None]:
        """Yield without end; close the iterator (`contextlib.aclosing`) to end the watch.

        Another one goes on where it was left, so close it only while it waits for more.
        """
        while True:
            try:
                async with aclosing(self._connection()) as connection:
                    async for item in connection:
                        yield item
            except Expired:
                self._version = ""
                wait_s = self._backoff.next_s()
            except PumiceError as exc:
                unavailable = self._explain(exc)
                wait_s = unavailable.retry_in_s
                if wait_s:
                    self._cut_off = True
                    yield unavailable
            else:
                wait_s = self._backoff.next_s() if self._backoff.attempts else 0.0
            await asyncio.sleep(wait_s)

    async def _connection(self) -> AsyncGenerator[Item, None]:
        """Yield what one connection delivers; returns at its orderly end, raises at any other."""
        if not self._version and not self._streams_list:
            yield self._delivered_all(await self._kube.list(self._kind, self._selection))
        opened_at = asyncio.get_running_loop().time()
        stream = await self._kube.watch(self._kind, self._selection, self._query())
        try:
            reader = _Reader(stream, self._kube.decoder(self._kind))
            first_block: Sequence[WatchEvent] = ()
            if not self._version:
                listed, first_block = await self._initial(reader)
                yield listed
            elif self._cut_off:
                yield Bookmark(resource_version=self._version)
            self._cut_off = False
            async for item in self._changes(reader, first_block):
                yield item
        finally:
            stream.close()
        if asyncio.get_running_loop().time() - opened_at < _TOO_SHORT_S:
            self._backoff.attempts += 1

    @property
    def _streams_list(self) -> bool:
        return self._can_stream and self._broken_lists < _PAGED_AFTER

    def _query(self) -> list[tuple[str, str]]:
        times = self._times
        lasts_s = self._rng.randint(times.watch_least_s, times.watch_most_s)
        if self.wants_bookmark and self._version:
            lasts_s = times.bookmark_watch_s
        query = [("allowWatchBookmarks", "true"), ("timeoutSeconds", str(lasts_s))]
        if self._version:
            return [*query, ("resourceVersion", self._version)]
        return [
            *query,
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
        ]

    async def _initial(self, reader: _Reader) -> tuple[Listed, Sequence[WatchEvent]]:
        """Collect the streamed state; return it and the events behind its end in the same block."""
        items: dict[str, Any] = {}
        malformed: dict[str, Malformed] = {}
        self._broken_lists += 1
        while True:
            block = await reader.block(self._times.initial_silence_s)
            if block is None:
                raise Unreachable(f"the streamed list of {self._kind.plural} broke off")
            for index, event in enumerate(block):
                match event:
                    case Bookmark(resource_version=version, initial_end=True):
                        listed = Listed(
                            items=list(items.values()),
                            malformed=list(malformed.values()),
                            resource_version=version,
                        )
                        return self._delivered_all(listed), block[index + 1 :]
                    case Bookmark():
                        pass
                    case WatchError(status=status):
                        raise refusal(f"list of {self._kind.plural}", status)
                    case Changed(op=op, object=obj):
                        _apply(items, obj.metadata, obj, op)
                    case Malformed(metadata=metadata, op=op):
                        _apply(malformed, metadata, event, op)

    async def _changes(
        self, reader: _Reader, first_block: Sequence[WatchEvent]
    ) -> AsyncGenerator[Changed | Malformed | Bookmark, None]:
        block: Sequence[WatchEvent] | None = first_block
        while block is not None:
            for event in block:
                match event:
                    case WatchError(status=status):
                        raise refusal(f"watch of {self._kind.plural}", status)
                    case Bookmark(resource_version=version):
                        self._delivered(version)
                    case Changed(object=obj):
                        self._delivered(obj.metadata.resource_version)
                    case Malformed(metadata=metadata):
                        self._delivered(metadata.resource_version)
                yield event
            try:
                block = await reader.block(self._times.silence_s)
            except Silence:
                return  # a quiet kind has no bookmarks; a new watch shows whether the server lives

    def _delivered_all(self, listed: Listed) -> Listed:
        self._broken_lists = 0
        self._cut_off = False
        self._delivered(listed.resource_version)
        return listed

    def _delivered(self, version: str) -> None:
        self._version = version or self._version
        self._backoff.reset()

    def _explain(self, exc: PumiceError) -> Unavailable:
        """Return what a failure means, and note what it says about the server.

        A retry after 0 s is not reported: a server that refuses `sendInitialEvents` (400, 422)
        is simply listed in pages.
        """
        status = exc.status.code if isinstance(exc, Refusal) else 0
        if isinstance(exc, Refused) and status in _NO_STREAMING and self._streams_list:
            if not self._version:
                self._can_stream = False
                return Unavailable(status=status, message=str(exc), retry_in_s=0.0)
            self._version = ""
        if status in NOT_SERVED:
            self._version = ""
        if status in NOT_SERVED or status == FORBIDDEN:
            wait_s = self._times.absent_retry_s * self._rng.uniform(0.8, 1.2)
            return Unavailable(status=status, message=str(exc), retry_in_s=wait_s)
        wait_s = self._backoff.next_s()
        if status and self._backoff.attempts > _RELIST_AFTER:
            self._version = ""
        # A 503's Retry-After is the guess of a server that starts: our own ladder is shorter.
        if status == TOO_MANY and isinstance(exc, Retryable) and exc.retry_after_s is not None:
            wait_s = max(wait_s, min(exc.retry_after_s, self._times.longest_asked_s))
        return Unavailable(status=status, message=str(exc), retry_in_s=wait_s)


def _apply(state: dict[str, Any], metadata: ObjectMeta, value: object, op: ChangeOp) -> None:
    if op is ChangeOp.DELETED:
        state.pop(metadata.key, None)
    else:
        state[metadata.key] = value
