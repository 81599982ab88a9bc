"""Capacity of the embedded API server: memory at size, and writes per second over HTTPS.

`python -m benchmarks.apiserver [nodes] [pods]` starts it as a process of its own, fills it, and
writes pods' statuses through keep-alive connections while three watchers read along. Memory is the
server's resident set; the share of one core is its own CPU time, so that the load driver beside it
does not count. The figures are quoted in docs/embedded-api-server.md.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec

from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import NAME, EmbeddedPlane
from pumice.local.fleet import NodeShape
from tests.support.api import credentials

PARALLEL = 32
WRITES = 10_000
WATCHERS = 3
PODS = "/api/v1/namespaces/default/pods"
STATUS = msgspec.json.encode({"status": {"nominatedNodeName": ""}})
MERGE = {"Content-Type": "application/merge-patch+json"}
TICKS = 100


def pod(number: int) -> bytes:
    """A pod as the controller makes it."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    labels = {"volcano.sh/job-name": f"job-{number // 100}", "volcano.sh/task-spec": "worker"}
    return msgspec.json.encode(
        {
            "metadata": {"name": f"p-{number}", "labels": labels},
            "spec": {"containers": [container], "schedulerName": "volcano"},
        }
    )


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def each(count: int, send: "object") -> float:
    """Send `count` requests, `PARALLEL` at a time; returns the seconds."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            async with send(number) as answer:  # type: ignore[operator]
                await answer.read()
                assert answer.ok, answer.status

    begin = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for worker in range(PARALLEL):
            tasks.create_task(work(), name=f"worker-{worker}")
    return time.monotonic() - begin


async def follow(session: aiohttp.ClientSession, seen: list[int], index: int) -> None:
    """Count the events of one watch."""
    query = {"watch": "1", "resourceVersion": "0"}
    async with session.get("/api/v1/pods", params=query) as answer:
        async for chunk in answer.content.iter_any():
            seen[index] += chunk.count(b"\n")


async def caught_up(seen: list[int], count: int) -> None:
    """Wait until all watchers have seen so many events."""
    while min(seen) < count:  # noqa: ASYNC110 - the watchers only count
        await asyncio.sleep(0.1)


async def main(nodes: int, pods: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        options = ControlPlaneOptions(directory=Path(directory) / "plane", api="embedded")
        async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
            pid = plane.processes[NAME].pid
            print(f"empty: {resident_mib(pid):.0f} MiB")
            await plane.add_nodes(NodeShape(count=nodes))
            server, headers, tls = credentials(plane.kubeconfig)
            async with aiohttp.ClientSession(
                server, headers=headers, connector=aiohttp.TCPConnector(ssl=tls, limit=64)
            ) as session:
                took = await each(pods, lambda n: session.post(PODS, data=pod(n)))
                print(f"{pods} creates: {pods / took:.0f}/s; {resident_mib(pid):.0f} MiB")
                await write(session, pid, pods)


async def write(session: aiohttp.ClientSession, pid: int, pods: int) -> None:
    """Measure status patches under three watchers."""
    seen = [0] * WATCHERS
    async with asyncio.TaskGroup() as tasks:
        watching = [
            tasks.create_task(follow(session, seen, index), name=f"watcher-{index}")
            for index in range(WATCHERS)
        ]
        await caught_up(seen, pods)
        before = cpu_s(pid)

        def patch(number: int) -> object:
            body = STATUS.replace(b'""', b'"n-%d"' % number)
            return session.patch(f"{PODS}/p-{number % pods}/status", data=body, headers=MERGE)

        took = await each(WRITES, patch)
        spent = cpu_s(pid) - before
        await caught_up(seen, pods + WRITES)
        for task in watching:
            task.cancel()
    print(
        f"{WRITES} status patches, {WATCHERS} watchers: {WRITES / took:.0f}/s with the driver, "
        f"{spent / WRITES * 1e6:.0f} us of the server's CPU each ({WRITES / spent:.0f}/s per core)"
    )
    print(f"at the end: {resident_mib(pid):.0f} MiB")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]] or [5_000, 50_000]
    asyncio.run(main(*given))
