"""CPU of visibility while it is asked nothing: `python -m benchmarks.following`.

Gangs of ten come, wait, are bound and run, as the facts, outcomes and events on the bus tell of
them: a nats-server, a publisher with this pace, and a process that follows as visibility does. With
`--against CHECKOUT` a second process follows the same messages with the code of another checkout.
"""

import argparse
import asyncio
import contextlib
import heapq
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.engine import clusters
from benchmarks.report.observe import cpu_s
from pumice.events.envelope import encode, subject
from pumice.events.types import Event, GangAdmitted, GangPlaced, JobPhaseChanged, PodBound
from pumice.local.nats import NatsServer
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import STATES
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.support.nats_servers import admin_bus
from tests.support.stack import running_nats

MEMBERS = 10
BOUND_S, RUNNING_S = 0.5, 1.5
"""Seconds after the creation of its pods at which a gang is bound, and runs."""
BURST: Final = 0.2
"""All jobs have come in this part of the time."""
MARK_S = 1.0
SETTLE_S = 3.0
DECLARED, SUBJECTS = streams("local"), Subjects(cluster="local")
READER = Path(__file__).with_name("following_reader.py")
KINDS = tuple(sorted(ClusterState(states=STATES).kinds))


class Sent(NamedTuple):
    """A message and where it goes."""

    stream: str
    subject: str
    payload: bytes


def fact(kind: str, document: clusters.Object) -> Sent:
    """Return a fact as the cache publishes it."""
    meta = document["metadata"]
    key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    return Sent(DECLARED.state.name, SUBJECTS.state(kind, key), clusters.fact(kind, document))


def event(happened: Event) -> Sent:
    """Return an event as services announce it."""
    payload = encode(happened, id=os.urandom(8).hex(), time=time.time(), source="/pumice/bench")
    return Sent(DECLARED.events.name, subject(happened, cluster="local"), payload)


def marker() -> Sent:
    """Return the cache's word that everything is there."""
    mark = m.Marker(complete=KINDS, bookmarks={}, time=time.time(), instance="bench")
    return Sent(DECLARED.state.name, SUBJECTS.marker, codec.encode(mark))


def life(gang: int, nodes: int, waits_s: float) -> Iterator[tuple[float, list[Sent]]]:
    """Yield what is told of a gang that waits for its pods, and how long after its creation."""
    name = f"g{gang}"
    pods = [f"{name}-{rank}" for rank in range(MEMBERS)]
    places = [(gang * MEMBERS + rank) % nodes for rank in range(MEMBERS)]
    group = [fact("podgroups", clusters.group(name, MEMBERS, "Inqueue", "default", ""))]
    made = [fact("pods", clusters.pod(pod, 500, rank=0)) for pod in pods]
    phases = {"job": f"ns/{name}", "uid": f"uid-{name}", "queue": "default"}
    yield 0.0, group
    yield waits_s, [event(GangAdmitted(gang=f"ns/{name}")), *made]
    bound, items = [], []
    for pod, place in zip(pods, places, strict=True):
        document = clusters.pod(pod, 500, node=place, rank=0)
        document["status"] = {"phase": "Pending"}
        bound += [
            fact("pods", document),
            event(PodBound(pod=f"ns/{pod}", uid=f"uid-{pod}", node=f"node-{place}")),
        ]
        items.append(
            m.ItemOutcome(
                pod=f"ns/{pod}", uid=f"uid-{pod}", result=m.Result.BOUND, node=f"node-{place}"
            )
        )
    ended = m.Outcome(
        intent=f"i{gang}", items=tuple(items), instance="bench", time=time.time(), job=f"ns/{name}"
    )
    done = Sent(DECLARED.outcome.name, SUBJECTS.outcome(0), codec.encode(ended))
    placed = event(GangPlaced(gang=f"ns/{name}", pods=MEMBERS))
    yield waits_s + BOUND_S, [placed, done, *bound]
    running = [
        fact("pods", clusters.pod(pod, 500, node=place, rank=0))
        for pod, place in zip(pods, places, strict=True)
    ]
    changed = event(JobPhaseChanged(**phases, phase="Running", previous="Pending"))
    group = [fact("podgroups", clusters.group(name, MEMBERS, "Running", "default", ""))]
    yield waits_s + RUNNING_S, [*running, *group, changed]


async def publish(bus: NatsBus, messages: list[Sent]) -> None:
    """Publish, and wait until all are stored; with an id, a message is sent until it is."""
    answers = [
        await bus.publisher(each.stream).submit(
            each.subject, each.payload, msg_id=os.urandom(8).hex()
        )
        for each in messages
    ]
    for answer in answers:
        await answer


async def play(bus: NatsBus, *, gangs: int, seconds: float, nodes: int) -> int:
    """Tell of gangs that come evenly; return how many messages that were."""
    steps: list[tuple[float, int, list[Sent]]] = []
    for gang in range(gangs):
        at = gang * seconds / gangs
        parts = life(gang, nodes, (1.0 - BURST) * at)
        steps += [(BURST * at + after, gang, messages) for after, messages in parts]
    heapq.heapify(steps)
    begun, told, marked_s = time.monotonic(), 0, 0.0
    while steps:
        at, _, messages = heapq.heappop(steps)
        await asyncio.sleep(max(0.0, at - (time.monotonic() - begun)))
        if at - marked_s >= MARK_S:
            marked_s = at
            messages = [*messages, marker()]
        await publish(bus, messages)
        told += len(messages)
    return told


@asynccontextmanager
async def reader(server: NatsServer, checkout: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that follows with the code of a checkout, from when it has read the start."""
    environ = {**os.environ, **server.environ("visibility"), "PYTHONPATH": str(checkout)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(READER), f"--nats={server.url}", "--kubeconfig=unused"),
        env=environ,
        cwd=checkout,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"reads\n", f"{checkout} does not read"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def run(options: argparse.Namespace) -> None:
    """Measure, and print a line per checkout."""
    checkouts = [Path(__file__).parents[1], *options.against]
    with tempfile.TemporaryDirectory() as directory:
        async with running_nats(Path(directory)) as server, admin_bus(server) as bus:
            nodes = [fact("nodes", clusters.node(number)) for number in range(options.nodes)]
            await publish(bus, nodes)
            async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
                marking = tasks.create_task(mark(bus), name="marks")
                readers = [
                    await stack.enter_async_context(reader(server, each)) for each in checkouts
                ]
                marking.cancel()
                pids = {str(at): process.pid for at, process in enumerate(readers)}
                before = cpu_s(pids)
                told = await play(
                    bus, gangs=options.gangs, seconds=options.seconds, nodes=options.nodes
                )
                await asyncio.sleep(SETTLE_S)
                after = cpu_s(pids)
    for at, checkout in enumerate(checkouts):
        spent = after[str(at)] - before[str(at)]
        print(f"{checkout}: {spent:.2f} s, {1e6 * spent / told:.0f} µs per message of {told}")


async def mark(bus: NatsBus) -> None:
    """Publish markers, which readers wait for at their start."""
    while True:
        await publish(bus, [marker()])
        await asyncio.sleep(0.2)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--against", type=Path, action="append", default=[])
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
