"""The stream `changes`: server-sent events that say what to ask for again, and what happened.

It is a resource of the group as others are, read with the verb watch: so the API server asks its
authorizer, does not cut it off after a minute, and passes each event on at once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from aiohttp import ClientConnectionError, web

from services.visibility.api.paths import Target
from services.visibility.api.statuses import TOO_MANY, Failure
from services.visibility.interface import LiveAnswers
from shared.api.visibility import Change

_MOST: Final = 200
_LONGEST_S: Final = 600.0
"""Rights are looked at anew when the reader comes again."""
_WRITE_S: Final = 30.0
_BEGIN: Final = b"retry: 2000\n: follows\n\n"
"""A browser comes again two seconds after the end of a stream."""
_QUIET: Final = b": lives\n\n"


class Changes:
    """Streams what changes."""

    def __init__(self, live: LiveAnswers) -> None:
        self._live = live
        self._open = 0

    async def stream(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Send what changes until the reader goes or the time is over. Raises Failure."""
        if self._open >= _MOST:
            raise Failure(TOO_MANY, f"{_MOST} streams are open", retry_after_s=5)
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        self._open += 1
        try:
            with contextlib.suppress(ConnectionError, ClientConnectionError, TimeoutError):
                await response.prepare(request)
                async with contextlib.aclosing(self._live.changes(target.namespace)) as changes:
                    await self._send(response, changes)
        finally:
            self._open -= 1
        return response

    async def _send(
        self, response: web.StreamResponse, changes: AsyncGenerator[Change, None]
    ) -> None:
        await response.write(_BEGIN)
        async with asyncio.timeout(_LONGEST_S):
            async for change in changes:
                async with asyncio.timeout(_WRITE_S):
                    await response.write(_event(change))


def _event(change: Change) -> bytes:
    """Return a change as a server-sent event, an empty one as a comment."""
    if change.entry is None and not change.resources:
        return _QUIET
    name = "happened" if change.entry else "changed"
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(change))
