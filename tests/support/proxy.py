"""A TCP proxy that a test can cut or silence: what is behind it is away, and comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml


class Proxy:
    """Forwards to one port of the loopback as long as it is not cut."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._cut = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._late_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break all connections and accept no new ones."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Hold everything back and close nothing, as a network that drops packets does."""
        self._passes.clear()

    def delay(self, seconds: float) -> None:
        """Let what is sent through arrive later, as on the way to a server that is slow."""
        self._late_s = seconds

    def mend(self) -> None:
        """Let connections and what was held back pass again, at once."""
        self._cut = False
        self._late_s = 0.0
        self._passes.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        if self._cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # its target is down: the client sees a connection that ends
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}
            for end in (writer, far_writer):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._passes.wait()
                await asyncio.sleep(self._late_s)
                writer.write(data)
                await writer.drain()
        if not writer.is_closing():
            with contextlib.suppress(OSError, NotImplementedError):
                writer.close()


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[Proxy]:
    """Open a proxy to `port` on a free port."""
    forwarder = Proxy(port)
    server = await asyncio.start_server(forwarder.serve, "127.0.0.1", 0)
    forwarder.port = server.sockets[0].getsockname()[1]
    try:
        yield forwarder
    finally:
        server.close()
        forwarder.mend()
        forwarder.cut()
        await asyncio.sleep(0)


def kubeconfig_through(forwarder: Proxy, kubeconfig: Path, target: Path) -> Path:
    """Write a kubeconfig that reaches the same API server through a proxy."""
    document = yaml.safe_load(kubeconfig.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{forwarder.port}"
    target.write_text(yaml.safe_dump(document))
    return target
