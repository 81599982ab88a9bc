"""What a client notices of a nats-server that dies: nats-py's JetStream beside our bus (ADR 2).

`python -m benchmarks.nats_client` kills a server (kill -9), starts it again two seconds later and
measures, from the kill: until publishes that were made meanwhile have ended, in an acknowledgement
or an error, and until a reader has the next message. Both have the defaults that they have here.
"""

import asyncio
import contextlib
import math
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import nats
from nats.errors import Error

from pumice.local.parts import nats_server_binary
from pumice.local.ports import free_port
from pumice.local.process import Process, ProcessSpec
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.runtime.tasks import TaskGroup
from tests.support.nats_servers import admin_bus
from tests.support.stack import running_nats

AWAY_S = 2.0
PATIENCE_S = 60.0
PENDING = 100
STREAM, SUBJECT = streams("local").outcome.name, Subjects(cluster="local").outcome(0)
Publish = Callable[[], Awaitable[object]]


class Client(NamedTuple):
    """One client of a server, with a reader that has nothing left to read."""

    server: Process
    publish: Publish
    """Publishes a message; ends when it is acknowledged, or failed."""
    read: Publish
    """Ends when the reader has the next message."""


async def noticed(client: Client) -> tuple[float, float]:
    """Return the seconds from the kill until all publishes ended, and until the reader read."""
    client.server.kill()
    begun = time.monotonic()

    async def timed(*calls: Awaitable[object]) -> float:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*calls, return_exceptions=True)
        except TimeoutError:
            return math.inf
        return time.monotonic() - begun

    async with TaskGroup() as tasks:
        reading = tasks.create_task(timed(client.read()), name="read")
        pending = [client.publish() for _ in range(PENDING)]
        ended = tasks.create_task(timed(*pending), name="publishes")
        await asyncio.sleep(AWAY_S)
        client.server.start()
        while not reading.done():  # the next message may be any of these
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.publish(), 1)
            await asyncio.wait([reading], timeout=0.1)
    return ended.result(), reading.result()


@asynccontextmanager
async def of_nats_py(directory: Path) -> AsyncIterator[Client]:
    """Open nats-py: reconnect, `publish_async`, an ordered consumer."""
    port = free_port()
    argv = (str(nats_server_binary()), "-js", "-sd", str(directory), "-p", str(port))
    server = Process(ProcessSpec(name="nats-server", argv=argv, log=directory / "log"))
    server.start()
    while True:
        with contextlib.suppress(Error, OSError):
            connection = await nats.connect(
                f"nats://127.0.0.1:{port}", max_reconnect_attempts=-1, error_cb=_ignored
            )
            break
    js = connection.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    reader = await js.subscribe("s", ordered_consumer=True)

    async def publish() -> object:
        return await (await js.publish_async("s", b"x"))

    try:
        yield Client(server, publish, lambda: reader.next_msg(timeout=2 * PATIENCE_S))
    finally:
        await connection.close()
        await server.stop()


async def _ignored(_: Exception) -> None:
    """Take an error that the measurement shows anyway."""


@asynccontextmanager
async def of_our_bus(directory: Path) -> AsyncIterator[Client]:
    """Open the bus of the services."""
    async with running_nats(directory) as server, admin_bus(server) as bus:
        publisher = bus.publisher(STREAM)
        async with aclosing(bus.follow(STREAM, [SUBJECT])) as items:

            async def read() -> object:
                async for item in items:
                    if isinstance(item, list):
                        return item
                raise AssertionError("a follower never ends")

            await publisher.publish(SUBJECT, b"x")
            await read()
            yield Client(server.process, lambda: publisher.publish(SUBJECT, b"x"), read)


async def main() -> None:
    """Measure both, and print a table."""
    print("| client | publishes have ended | the reader goes on |\n|---|---|---|")
    for name, opened in (("nats-py", of_nats_py), ("our bus", of_our_bus)):
        with tempfile.TemporaryDirectory() as directory:
            async with opened(Path(directory)) as client:
                publishes_s, reader_s = await noticed(client)
        print(f"| {name} | {_shown(publishes_s)} | {_shown(reader_s)} |", flush=True)


def _shown(took_s: float) -> str:
    return f"{took_s:.1f} s" if math.isfinite(took_s) else f"not within {PATIENCE_S:.0f} s"


if __name__ == "__main__":
    asyncio.run(main())
