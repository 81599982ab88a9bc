"""Forwards requests to the extension API servers of APIServices, and checks their availability.

The server proves who it is by a certificate of the front proxy's authority and names its user in
headers, as kube-apiserver does.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from pumice.embedded.apiserver.aggregation import Aggregation, ExtensionServer, ProxiedRequest
from pumice.embedded.apiserver.replies import Object
from pumice.embedded.apiserver.writing import USER
from pumice.local.authority import REQUEST_HEADERS

GROUPS: Final = ("system:masters", "system:authenticated")
_CHECK_EVERY_S: Final = 1.0
_CONNECT_S: Final = 5.0
_MAX_CONTEXTS: Final = 16
_FORWARDED_HEADERS: Final = ("accept", "content-type", "if-none-match", "user-agent")
_RETURNED_HEADERS: Final = ("Content-Type", "ETag", "Warning", "Retry-After", "Location")
_OK: Final = 200


def request_headers(authority: str) -> Mapping[str, str]:
    """Return the data of the ConfigMap by which extension servers authenticate this one."""
    lists = {
        f"requestheader-{key}": msgspec.json.encode([name]).decode()
        for key, name in REQUEST_HEADERS.items()
    }
    return {"requestheader-client-ca-file": authority, **lists}


class FrontProxy:
    """The client side of aggregation."""

    def __init__(self, aggregation: Aggregation, *, cert: str, key: str) -> None:
        """Take the files of our certificate; without them no extension server authenticates us."""
        self._aggregation = aggregation
        self._cert = cert
        self._key = key
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        """Check the availability of all extension servers every second, until cancelled."""
        unbounded = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        async with aiohttp.ClientSession(timeout=unbounded, auto_decompress=False) as self._session:
            while True:
                for server in list(self._aggregation.extension_servers()):
                    await self._check(server)
                await asyncio.sleep(_CHECK_EVERY_S)

    async def forward(
        self, request: web.BaseRequest, proxied: ProxiedRequest
    ) -> web.StreamResponse:
        """Send a request to its extension server, and stream the response to the client."""
        original = proxied.request
        given = {
            name: original.headers[name] for name in _FORWARDED_HEADERS if name in original.headers
        }
        try:
            async with self._send(
                proxied.server, original.method, request.path_qs, given, original.body
            ) as response:
                return await _returned(request, response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            text = f"error trying to reach service: {error}\n"
            return web.Response(status=503, text=text)

    def _send(
        self,
        server: ExtensionServer,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> Any:  # noqa: ANN401 - a context manager of the library
        assert self._session is not None, "runs"
        pairs = [*headers.items(), (REQUEST_HEADERS["username-headers"], USER)]
        pairs += [(REQUEST_HEADERS["group-headers"], group) for group in GROUPS]
        return self._session.request(
            method,
            f"{server.url}{path}",
            data=body or None,
            headers=pairs,
            ssl=self._context(server.authorities),
            server_hostname=server.server_name,
        )

    def _context(self, authorities: bytes) -> ssl.SSLContext:
        """Return how a server's certificate is checked, and ours shown."""
        if authorities not in self._contexts:
            context = ssl.create_default_context(cadata=authorities.decode() or None)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go is not as strict as Python 3.13
            if self._cert:
                context.load_cert_chain(self._cert, self._key)
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            self._contexts[authorities] = context
        return self._contexts[authorities]

    async def _check(self, server: ExtensionServer) -> None:
        """Read a server's resources, and note whether it is available."""
        resources: Object | None = None
        error = server.error
        if server.url:
            try:
                async with (
                    asyncio.timeout(_CONNECT_S),
                    self._send(server, "GET", server.root, {}) as response,
                ):
                    body = await response.read()
                    error = "" if response.status == _OK else f"bad status {response.status}"
                    resources = None if error else msgspec.json.decode(body)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as failure:
                error = f"failing or missing response from {server.url}{server.root}: {failure}"
        self._aggregation.note(server, error=error, resources=resources)


async def _returned(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = [
        (name, value) for name in _RETURNED_HEADERS for value in answer.headers.getall(name, [])
    ]
    response = web.StreamResponse(status=answer.status)
    for name, value in headers:
        response.headers.add(name, value)
    try:
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    except (ConnectionError, aiohttp.ClientConnectionError):
        pass  # one of the two has closed the connection
    return response
