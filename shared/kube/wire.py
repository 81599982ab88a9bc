"""What a transport to an API server takes and gives: requests, response bodies and streams.

`transport` sends them over HTTP and handles credentials, proxies and connections. The simulation,
which has its API server in the same process, has a transport of its own.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
"""Accepted form of an object of which only the metadata is read."""

Query = Sequence[tuple[str, str]]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request; `path` is already quoted."""

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def doing(self) -> str:
        """Return what an error message says was tried."""
        return f"{self.method} {self.path}"


class Stream(Protocol):
    """An answer that is read while it arrives (a watch)."""

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next bytes, b"" at the orderly end.

        Raises Unreachable when the connection breaks, Silence when nothing comes for `silence_s`.
        """
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Transport(Protocol):
    """The transport to one API server."""

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        ...

    async def exchange(self, request: Request) -> bytes:
        """Send a request and return the body of its answer.

        Raises the errors of `shared.kube.errors`; Unreachable also when the server may or may not
        have done what was asked.
        """
        ...

    async def open(self, request: Request) -> Stream:
        """Send a request and return its answer as a stream, which the caller closes.

        Raises what `exchange` raises.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
