"""A few gangs on idle nodes: `python -m benchmarks.latency [--gangs 10 --size 10 --rounds 10]`.

A control plane with fake nodes and all services. In each round so many jobs are posted at once; it
measures the time from the first POST until the last of their pods is bound. Then they are
deleted, and the next round begins when all is gone. Beside it stands the floor: what a plain client
needs to create and bind as many pods, without our services.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.stack import NAMESPACE, clear, fake_cluster, floor, many, services
from tests.support import world
from tests.support.api import Api

PAUSE_S = 1.0
"""After all is gone, so that each round meets services at rest."""


async def gangs_at_once(api: Api, gangs: int, size: int, number: int) -> float:
    """Post gangs; return the seconds until their last pod is bound."""
    version = (await api.get("pods", NAMESPACE))["metadata"]["resourceVersion"]
    bound: set[str] = set()
    begun = time.monotonic()

    async def post(i: int) -> None:
        body = world.job(f"few-{number}-{i}", world.task("t", size, cpu="100m"))
        await api.create("jobs", body, NAMESPACE)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(many(post, range(gangs)))
        async for event in api.follow("pods", NAMESPACE, version):
            if event["object"]["spec"].get("nodeName"):
                bound.add(event["object"]["metadata"]["uid"])
            if len(bound) == gangs * size:
                break
    return time.monotonic() - begun


async def run(options: argparse.Namespace) -> None:
    """Run all rounds and print their median and the floor's."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    async with fake_cluster(options.nodes, directory) as (plane, api):
        nodes = [node["metadata"]["name"] for node in await api.items("nodes")]
        alone, taken = [], []
        for _ in range(options.rounds):
            alone.append(await floor(api, options.gangs * options.size, nodes))
            await clear(api)
        async with services(plane, directory):
            for number in range(options.rounds):
                taken.append(await gangs_at_once(api, options.gangs, options.size, number))
                await clear(api)
                await asyncio.sleep(PAUSE_S)
    print(
        f"{options.gangs} gangs of {options.size} on {options.nodes} nodes: median "
        f"{statistics.median(taken):.2f} s, {min(taken):.2f} to {max(taken):.2f} s; floor "
        f"{statistics.median(alone):.2f} s"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--gangs", type=int, default=10)
    parser.add_argument("--size", type=int, default=10, help="pods of each")
    parser.add_argument("--rounds", type=int, default=10)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
