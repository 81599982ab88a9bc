"""`--watch`: waits until a result may have changed, so that the command reads it again.

Where the resource can be watched, an event of the watch is the sign; its content is not read, since
the command reads the whole result. An explanation, a timeline and the line of a queue cannot be
watched: the watch of the waiting jobs or the stream `changes` stands in for them, and its bookmarks
and comments, which come when nothing changes, count as signs as well. Where a watch is refused, the
result is read every two seconds, and a line on stderr reports it.
"""

import asyncio
import sys
from typing import Final

import msgspec

from pumice.queries.client import QueryClient, QueryError, WatchTarget
from shared.api.visibility import Change
from shared.kube.errors import Unreachable
from shared.kube.listwatch import LineBuffer
from shared.kube.wire import Stream

_EVERY_S: Final = 2.0
_DATA: Final = b"data: "
_KEEP_ALIVE: Final = b": lives"
"""The server's comment when nothing has changed."""
_SILENCE_S: Final = 90.0
"""Visibility sends a bookmark each half minute."""
_TOO_SHORT_S: Final = 0.5
_PAUSE_S: Final = 1.0
"""After a watch that ended at once with nothing in it, and for hints to come together."""


class RefreshTimes:
    """Decides when to read a result again: after an event of `watched`, or by the clock."""

    def __init__(self, client: QueryClient, watched: WatchTarget) -> None:
        self._client = client
        self._watched: WatchTarget | None = watched
        self._stream: Stream | None = None
        self._lines = LineBuffer()

    async def next(self, raw: bytes) -> None:
        """Wait until the result may differ from `raw`."""
        if self._watched is not None and self._stream is None:
            await self._begin(self._watched, raw)
        if self._watched is None:
            await asyncio.sleep(_EVERY_S)
            return
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        if await self._changes(self._watched):
            if self._watched.is_hint:
                await asyncio.sleep(_PAUSE_S)
        else:
            self.close()
            if clock() - begun_s < _TOO_SHORT_S:
                await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _begin(self, watched: WatchTarget, raw: bytes) -> None:
        """Open a watch from the version of a result; if that fails, poll from now on."""
        version = (
            "" if watched.is_hint else msgspec.json.decode(raw, type=_ReadResult).metadata.version
        )
        self._lines = LineBuffer()
        try:
            self._stream = await self._client.watch(watched, version)
        except QueryError as error:
            self._watched = None
            _note(f"no watch: {error}")

    async def _changes(self, watched: WatchTarget) -> bool:
        """Wait for a change; False at the end of the watch."""
        while self._stream is not None:
            try:
                chunk = await self._stream.read(silence_s=_SILENCE_S)
                lines = self._lines.feed(chunk).splitlines()
            except Unreachable:
                return False
            if watched.about:
                moments = [_is_about(line, watched.about) for line in lines]
            else:
                events = [msgspec.json.decode(line, type=_Event) for line in lines]
                chunk = b"" if any(event.type == "ERROR" for event in events) else chunk
                moments = [_may_change(event, watched) for event in events]
            if not chunk:
                return False
            if any(moments):
                return True
        return False


class _Metadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")


class _ReadResult(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Object(msgspec.Struct, frozen=True):
    queue: str = ""


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Object = _Object()


def _may_change(event: _Event, watched: WatchTarget) -> bool:
    """Return whether the result may have changed after an event of its watch."""
    if event.type == "BOOKMARK":
        return watched.is_hint
    return watched.queue in ("", event.object.queue)


def _is_about(line: bytes, job: str) -> bool:
    """Return whether a line of the stream `changes` is about a job, or a keep-alive.

    Pods and PodGroups that controllers make have names that begin with that of the job.
    """
    if not line.startswith(_DATA):
        return line == _KEEP_ALIVE
    entry = msgspec.json.decode(line.removeprefix(_DATA), type=Change).entry
    return entry is not None and f"{entry.about.name}-".startswith(f"{job}-")


def _note(why: str) -> None:
    sys.stderr.write(f"note: {why}; asking every {_EVERY_S:g} s\n")
