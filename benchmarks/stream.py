"""Gangs at a steady rate: `python -m benchmarks.stream [--rate 2 --minutes 60 --size 5]`.

A control plane with fake nodes, all services, and every second so many jobs whose pods run for 20 s
and which are deleted half a minute later. Printed per minute: the 50th and 99th percentile of the
time from the POST until the last pod of a gang is bound, and each process's memory and CPU seconds.
Both should be flat: times tell whether work piles up, memory whether something is kept for ever.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from benchmarks.report.observe import take_samples
from benchmarks.report.record import Sample, spread
from benchmarks.stack import fake_cluster, services
from tests.support import world
from tests.support.api import Api

NAMESPACE = "default"
RUNS = {"pumice.dev/run-seconds": "20", "pumice.dev/exit-code": "0"}
GONE_S = 30
MINUTE_S = 60.0


class Stream:
    """Gangs that come one after another, and when they were bound."""

    def __init__(self, api: Api, options: argparse.Namespace) -> None:
        self._api = api
        self._size: int = options.size
        self._every_s = 1.0 / options.rate
        self._posted: dict[str, float] = {}
        self._bound: dict[str, set[str]] = {}
        self._taken: list[float] = []

    @property
    def open(self) -> int:
        """Return how many gangs are not bound yet."""
        return len(self._posted)

    def taken(self) -> list[float]:
        """Return what the gangs since the last call took, in ascending order."""
        found, self._taken = sorted(self._taken), []
        return found

    async def post(self) -> None:
        """Create gangs for ever, whether those before are bound or not."""
        begun = time.monotonic()
        number = 0
        while True:
            name = f"gang-{number}"
            task = world.task("t", self._size, cpu="100m", annotations=RUNS)
            self._posted[name] = time.monotonic()
            body = world.job(name, task, ttlSecondsAfterFinished=GONE_S)
            await self._api.create("jobs", body, NAMESPACE)
            number += 1
            await asyncio.sleep(begun + number * self._every_s - time.monotonic())

    async def watch(self) -> None:
        """Note for ever when gangs are bound."""
        async for pod in self._pods():
            name = pod["metadata"]["annotations"].get("volcano.sh/job-name", "")
            if name not in self._posted or "nodeName" not in pod["spec"]:
                continue
            bound = self._bound.setdefault(name, set())
            bound.add(pod["metadata"]["uid"])
            if len(bound) == self._size:
                self._taken.append(time.monotonic() - self._posted.pop(name))
                del self._bound[name]

    async def _pods(self) -> AsyncIterator[dict]:
        while True:
            listed = await self._api.get("pods", NAMESPACE)
            for pod in listed["items"]:
                yield pod
            version = listed["metadata"]["resourceVersion"]
            async for event in self._api.watch("pods", NAMESPACE, version):
                if event["type"] == "ERROR":
                    break
                if event["type"] != "BOOKMARK":
                    yield event["object"]


async def follow(stream: Stream, pids: Mapping[str, int], minutes: int) -> None:
    """Print a line per minute."""
    begun = time.monotonic()
    samples: dict[str, list[Sample]] = {name: [] for name in pids}
    for minute in range(1, minutes + 1):
        await asyncio.sleep(begun + minute * MINUTE_S - time.monotonic())
        take_samples(pids, samples, begun)
        taken = stream.taken()
        at = spread(taken) if taken else None
        times = f"p50 {at.p50:.2f} s, p99 {at.p99:.2f} s" if at else "none bound"
        used = ", ".join(
            f"{name} {each[-1].memory_mib:.0f} MiB {each[-1].cpu_s:.0f} s"
            for name, each in sorted(samples.items())
        )
        print(f"{minute} min: {len(taken)} gangs, {stream.open} open, {times}; {used}", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Start everything, and let gangs come."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    async with (
        fake_cluster(options.nodes, directory) as (plane, api),
        services(plane, directory) as (_, pids),
        asyncio.TaskGroup() as tasks,
    ):
        stream = Stream(api, options)
        working = [
            tasks.create_task(stream.watch(), name="watch"),
            tasks.create_task(stream.post(), name="post"),
        ]
        pids |= {name: process.pid for name, process in plane.processes.items()}
        await follow(stream, pids, options.minutes)
        for each in working:
            each.cancel()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=2.0, help="gangs per second")
    parser.add_argument("--size", type=int, default=5, help="pods of each")
    parser.add_argument("--minutes", type=int, default=60)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
