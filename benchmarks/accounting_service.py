"""Memory and CPU of accounting in a large cluster: `python -m benchmarks.accounting_service`.

Pods run on all nodes; gangs of ten come, run and end at a steady pace, as facts and events on a
nats-server. Printed are the resident memory and the CPU of the service, SQLite included.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.engine import clusters
from benchmarks.following import MEMBERS, Sent, event, fact, life, marker, publish
from benchmarks.report.observe import cpu_s
from pumice.events.types import JobPhaseChanged
from shared.bus.nats import NatsBus
from tests.support.fleet import Fleet, Place, fleet, resident_mib
from tests.support.nats_servers import admin_bus
from tests.support.stack import running_nats

EVENTS_OF_A_GANG = 14
PODS_PER_NODE = 8
RUNS_S = 5
"""Seconds after which a gang ends."""
BATCH = 1000


def cluster(nodes: int) -> list[Sent]:
    """Return PodGroups and running pods that are there from the beginning."""
    found = []
    for number in range(nodes):
        name = f"old-{number}"
        found.append(
            fact("podgroups", clusters.group(name, PODS_PER_NODE, "Running", "default", ""))
        )
        found += [
            fact("pods", clusters.pod(f"{name}-{rank}", 500, node=number, rank=0))
            for rank in range(PODS_PER_NODE)
        ]
    return found


def end(gang: int, nodes: int) -> list[Sent]:
    """Return what is published of a gang that has ended."""
    found = []
    for rank in range(MEMBERS):
        document = clusters.pod(
            f"g{gang}-{rank}", 500, node=(gang * MEMBERS + rank) % nodes, rank=0
        )
        found.append(fact("pods", {**document, "status": {"phase": "Succeeded"}}))
    done = JobPhaseChanged(job=f"ns/g{gang}", uid=f"uid-g{gang}", phase="Completed")
    return [*found, event(done)]


async def play(bus: NatsBus, *, per_s: float, seconds: int, nodes: int) -> int:
    """Publish gangs that come and end, `per_s` events in a second; return how many events."""
    begun, gangs, ended = time.monotonic(), 0, 0
    for second in range(seconds):
        messages = [marker()]
        while gangs < per_s * (second + 1) / EVENTS_OF_A_GANG:
            messages += [each for _, part in life(gangs, nodes, 0.0) for each in part]
            gangs += 1
        while ended < per_s * (second - RUNS_S) / EVENTS_OF_A_GANG:
            messages += end(ended, nodes)
            ended += 1
        await publish(bus, messages)
        await asyncio.sleep(max(0.0, begun + second + 1 - time.monotonic()))
    return (gangs - ended) * (EVENTS_OF_A_GANG - 1) + ended * EVENTS_OF_A_GANG


async def measure(services: Fleet, bus: NatsBus, url: str, options: argparse.Namespace) -> None:
    """Print the figures of one process."""
    begun = time.monotonic()
    service = await services.start("accounting", wait=False, database=url)
    await publish(bus, [marker()])
    while await service.unready():
        await publish(bus, [marker()])
        await asyncio.sleep(0.5)
    pids = {"accounting": service.process.pid}
    before = cpu_s(pids)["accounting"]
    print(f"start: {time.monotonic() - begun:.1f} s, {before:.1f} s of CPU")
    print(f"at rest: {resident_mib(pids['accounting'])} MiB")
    since = time.monotonic()
    events = await play(bus, per_s=options.events, seconds=options.seconds, nodes=options.nodes)
    took_s = time.monotonic() - since
    used_s = cpu_s(pids)["accounting"] - before
    print(f"{events} events in {took_s:.0f} s: {events / took_s:.0f} per second")
    rows = await service.metric("pumice_accounting_rows_total", 'table="allocations"')
    print(f"{rows:.0f} rows of allocations were written")
    print(f"CPU: {100 * used_s / took_s:.0f} % of a core; {resident_mib(pids['accounting'])} MiB")


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        async with running_nats(directory) as server, admin_bus(server) as bus:
            messages = cluster(options.nodes)
            for at in range(0, len(messages), BATCH):
                await publish(bus, messages[at : at + BATCH])
            place = Place(nats=server, kubeconfig=None)
            async with fleet(place, directory, forked=False) as services:
                await measure(services, bus, f"sqlite:///{directory}/usage.db", options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--events", type=float, default=200.0, help="per second")
    parser.add_argument("--seconds", type=int, default=120)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
