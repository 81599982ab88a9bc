"""CPU of one request to an API server over TLS: our connections (ADR 40), and aiohttp.

aiohttp is measured twice: as the transport uses it for proxies, and without the transport. The
server sends one response to each request, so that only the client is measured: a PATCH of 1 KB with
a response of 1.5 KB. The clients take turns in each round; the best and the median round count.
`python -m benchmarks.kube_requests [REQUESTS]`
"""

import asyncio
import contextlib
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp

from shared.kube.credentials import Access, Credentials
from shared.kube.proxied import ProxiedConnections
from shared.kube.transport import HttpTransport, open_transport
from shared.kube.wire import MERGE_PATCH, Request
from shared.runtime.clock import SystemClock
from shared.runtime.tasks import TaskGroup
from tests.support.certificates import Authority

_ROUNDS = 7
Ask = Callable[[], Awaitable[bytes]]
_PATCH = Request(
    method="PATCH",
    path="/api/v1/namespaces/default/pods/p",
    body=b'{"metadata":{"annotations":{"a":"' + b"x" * 1000 + b'"}}}',
    content_type=MERGE_PATCH,
)
_BODY = b'{"metadata":{"name":"p","annotations":{"a":"' + b"x" * 1500 + b'"}}}'
_HEAD = (
    b"HTTP/1.1 200 OK\r\nAudit-Id: 9d6a7f3c\r\nCache-Control: no-cache, private\r\n"
    b"Content-Type: application/json\r\nDate: Mon, 01 Jan 2029 00:00:00 GMT\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_BODY)
)


class Fixed:
    """A source of one way to connect."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def load(self) -> Access:
        return self._access


async def serve(certificate: str, key: str) -> None:
    """Answer every request, in a process of its own; prints the port."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                writer.write(_HEAD + _BODY)
        writer.close()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = await asyncio.start_server(play, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def cpu_ms(request: Ask, requests: int, flight: int) -> float:
    """Return the CPU time of one request in milliseconds, with so many in flight."""

    async def some() -> None:
        for _ in range(requests // flight):
            assert await request() == _BODY

    began = time.process_time()
    async with TaskGroup() as group:
        for number in range(flight):
            group.create_task(some(), name=f"requests-{number}")
    return (time.process_time() - began) / (requests // flight * flight) * 1e3


async def measure(clients: Mapping[str, Ask], requests: int) -> None:
    for flight in (1, 50):
        rounds: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(_ROUNDS):
            for name, request in clients.items():
                rounds[name].append(await cpu_ms(request, requests, flight))
        for name, found in rounds.items():
            print(
                f"{name:<24}{flight:>3} in flight: {min(found):.3f} ms of CPU per request, "
                f"median {statistics.median(found):.3f}"
            )


async def main(requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        issued = authority.issue("127.0.0.1")
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.kube_requests", str(issued.cert), str(issued.key)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert server.stdout is not None
        host = f"https://127.0.0.1:{int(await server.stdout.readline())}"
        access = Access(host=host, verify=False, authorization="Bearer x")
        source, clock = Fixed(access), SystemClock()
        ours = await open_transport(source, user_agent="b", clock=clock, max_connections=50)
        credentials = await Credentials.open(source, clock=clock)
        through = HttpTransport(
            credentials,
            proxied=ProxiedConnections(credentials, proxy=None, max_connections=50),
            user_agent="b",
            max_connections=50,
            timeout_s=30.0,
            limiter=None,
        )
        connector = aiohttp.TCPConnector(limit=50, ssl=False)
        headers = {"Authorization": "Bearer x", "Content-Type": _PATCH.content_type}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def bare() -> bytes:
                async with session.patch(host + _PATCH.path, data=_PATCH.body) as response:
                    return await response.read()

            clients = {
                "ours": lambda: ours.exchange(_PATCH),
                "transport over aiohttp": lambda: through.exchange(_PATCH),
                "aiohttp": bare,
            }
            await measure(clients, requests)
        await ours.close()
        await through.close()
        server.terminate()
        await server.wait()


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(serve(*words) if len(words) == 2 else main(int(words[0]) if words else 5000))
