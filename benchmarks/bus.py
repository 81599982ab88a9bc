"""The price of copies: `python -m benchmarks.bus` publishes to one NATS server and to three.

The three run on this machine, too, and share its processors; on machines of their own they would
not, and a network would be in between. Each row is a way in which services publish.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.values import FencingToken
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.support.nats_servers import NatsCluster, admin_bus
from tests.support.stack import running_nats

PAYLOAD = b"x" * 800
"""About a fact about a pod."""
COUNT = 2000
AT_ONCE = 64
DECLARED, SUBJECTS = streams("local"), Subjects(cluster="local")


async def one_by_one(bus: NatsBus) -> None:
    """Publish outcomes, each after the answer to the one before."""
    publisher = bus.publisher(DECLARED.outcome.name)
    for _ in range(COUNT):
        await publisher.publish(SUBJECTS.outcome(0), PAYLOAD)


async def many_at_once(bus: NatsBus) -> None:
    """Publish outcomes with 64 in flight."""
    publisher = bus.publisher(DECLARED.outcome.name)
    for _ in range(COUNT // AT_ONCE):
        sent = [await publisher.submit(SUBJECTS.outcome(0), PAYLOAD) for _ in range(AT_ONCE)]
        for answer in sent:
            await answer


async def of_a_leader(bus: NatsBus) -> None:
    """Publish facts as the cache's leader does, 64 at once if the servers take them so."""
    stream, mark = DECLARED.state.name, SUBJECTS.leader("state")
    publisher = bus.publisher(stream)
    ack = await publisher.publish(mark, b"mark")
    token = FencingToken(stream=stream, subject=mark, sequence=ack.sequence)
    for _ in range(COUNT // AT_ONCE):
        sent = [
            await publisher.submit(SUBJECTS.state("pods", f"ns/p{number}"), PAYLOAD, fence=token)
            for number in range(AT_ONCE)
        ]
        for answer in sent:
            try:
                await answer
            except WrongSequence:
                continue  # the first refusal tells that the stream is copied


@asynccontextmanager
async def three(directory: Path) -> AsyncIterator[NatsCluster]:
    """Run three servers."""
    servers = NatsCluster(directory)
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()


async def main() -> None:
    """Measure, and print a table."""
    ways = (one_by_one, many_at_once, of_a_leader)
    rates: dict[str, list[float]] = {way.__name__: [] for way in ways}
    with tempfile.TemporaryDirectory() as directory:
        for name, servers in (("one", running_nats), ("three", three)):
            async with servers(Path(directory) / name) as running, admin_bus(running) as bus:
                for way in ways:
                    await way(bus)  # once to warm up
                    begun = time.perf_counter()
                    await way(bus)
                    rates[way.__name__].append(COUNT / (time.perf_counter() - begun))
    print("| publishes | one server | three | ratio |\n|---|---|---|---|")
    for name, (one, several) in rates.items():
        words = name.replace("_", " ")
        print(f"| {words} | {one:,.0f}/s | {several:,.0f}/s | {several / one:.2f} |")


if __name__ == "__main__":
    asyncio.run(main())
