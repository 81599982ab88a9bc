"""`--watch`: waits for the moment at which an answer is worth asking for again.

A watch of the aggregated API tells it where the resource has one; what it tells is not read, since
the answer that is asked for then holds it all. Elsewhere the moment comes every two seconds, and a
line on stderr says so.
"""

import asyncio
import sys
from typing import Final

import msgspec

from pumice.answers.asking import AnswerError, Asker, Watched
from shared.kube.errors import Unreachable
from shared.kube.listwatch import Lines
from shared.kube.wire import Stream

_EVERY_S: Final = 2.0
_SILENCE_S: Final = 90.0
"""Visibility sends a bookmark each half minute."""
_BRIEF_S: Final = 0.5
_PAUSE_S: Final = 1.0
"""After a watch that ended at once with nothing in it."""


class Turns:
    """The moments for one answer; `watched` tells them, None leaves them to the clock."""

    def __init__(self, asker: Asker, watched: Watched | None) -> None:
        self._asker = asker
        self._watched = watched
        self._stream: Stream | None = None
        self._lines = Lines()
        if watched is None:
            _note("there is no watch of this answer")

    async def next(self, raw: bytes) -> None:
        """Wait until the answer may be another one than `raw`."""
        if self._watched is not None and self._stream is None:
            await self._begin(self._watched, raw)
        if self._watched is None:
            await asyncio.sleep(_EVERY_S)
            return
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        if not await self._changes():
            self.close()
            if clock() - begun_s < _BRIEF_S:
                await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _begin(self, watched: Watched, raw: bytes) -> None:
        """Open a watch that goes on from an answer; poll from now on if there is none."""
        version = msgspec.json.decode(raw, type=_Answer).metadata.version
        self._lines = Lines()
        try:
            self._stream = await self._asker.watch(watched, version)
        except AnswerError as error:
            self._watched = None
            _note(f"no watch: {error}")

    async def _changes(self) -> bool:
        """Wait for a change; False at the end of the watch."""
        while self._stream is not None:
            try:
                chunk = await self._stream.read(silence_s=_SILENCE_S)
                lines = self._lines.feed(chunk).splitlines()
            except Unreachable:
                return False
            kinds = {msgspec.json.decode(line, type=_Event).type for line in lines}
            if not chunk or "ERROR" in kinds:
                return False
            if kinds - {"BOOKMARK"}:
                return True
        return False


class _Metadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")


class _Answer(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Event(msgspec.Struct, frozen=True):
    type: str


def _note(why: str) -> None:
    sys.stderr.write(f"note: {why}; asking every {_EVERY_S:g} s\n")
