"""`Requests`: any request to one API server, by its path, bytes in and bytes out.

The part of `Kube` that needs no kind of object. A command that asks one question takes this alone:
the types of all kinds, which `client` imports, take longer to load than the question to answer.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.kube.wire import Query, Request, Stream, Transport

Body = bytes | msgspec.Struct | Mapping[str, Any]


class Requests:
    """A way to one API server."""

    def __init__(self, *, transport: Transport) -> None:
        self._transport = transport

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        return self._transport.host

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def request(
        self, method: str, path: str, *, query: Query = (), body: Body | None = None
    ) -> bytes:
        """Send any request, for what has no verb of a kind (`/version`, reviews, scale)."""
        data = None if body is None else encode(body)
        return await self._transport.exchange(
            Request(method=method, path=path, query=query, body=data)
        )

    async def follow(self, path: str, *, query: Query = ()) -> Stream:
        """Open the watch of any path, for what has no kind here."""
        return await self._transport.open(
            Request(method="GET", path=path, query=[("watch", "true"), *query])
        )


def encode(body: Body) -> bytes:
    """Return the JSON of a body."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)
