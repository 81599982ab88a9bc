"""A process that ends in order gives back each lease, in whatever step it is told to end.

The bus is the server in memory behind a network that takes time, on an event loop of virtual time:
each run cancels the process one step later than the one before, so that each write of a lease and
each wait for its answer is cut short in one of them.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest
import structlog

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.link import PerfectNetwork
from pumice.embedded.memory_nats.server import MemoryNats
from shared.bus.connection import BusOptions
from shared.bus.nats import NatsBus
from shared.contracts.streams import streams
from shared.election.leader_elector import FencedStream, LeaderElector
from shared.election.members import Members
from shared.election.partition_elector import PartitionElector
from tests.sim.simloop import SimClock, SimLoop
from tests.support.env import context_of_a_test
from tests.support.nats_servers import PATIENT, SUBJECTS, lease_of

DECLARED: Final = streams("local")
LOG: Final = structlog.get_logger()
PARTS: Final = 3
AT_ONCE_S: Final = 2.0
LIFE_S: Final = 1.3
"""Long enough for three renewals."""

Parts = Callable[[NatsBus], list[Coroutine[Any, Any, None]]]


class Loop(SimLoop):
    """Counts steps on demand, and calls `end` before the step after the `last`."""

    def __init__(self, last: int) -> None:
        super().__init__(seed=last)
        self._last = last
        self._end: Callable[[], object] | None = None

    def end_after_the_last(self, end: Callable[[], object]) -> None:
        self._last += self.steps
        self._end = end

    def _run_once(self) -> None:
        if self._end is not None and self.steps >= self._last:
            end, self._end = self._end, None
            end()
        super()._run_once()


class Slow(PerfectNetwork):
    """Each message takes five milliseconds."""

    def delay_s(self) -> float:
        return 0.005


def make_bus(server: MemoryNats, name: str) -> NatsBus:
    return NatsBus(
        BusOptions(url="nats://memory", name=name),
        clock=SimClock(),
        log=LOG,
        on_status=lambda *, ok, reason: None,
        dial=lambda: MemoryClient(server),
    )


lease = partial(lease_of, clock=SimClock())


def process_of(service: str) -> dict[str, Any]:
    """Return what all parts of the process that ends are told of it."""
    return {"service": service, "instance": "a", "clock": SimClock(), "log": LOG}


async def for_ever(_: object) -> None:
    await asyncio.Event().wait()


def a_leader(bus: NatsBus) -> list[Coroutine[Any, Any, None]]:
    elector = LeaderElector(
        bus,
        lease(bus, "a.1", name="part-0"),
        fenced=[FencedStream(stream=DECLARED.state.name, subject=SUBJECTS.leader("state"))],
        **process_of("cache"),
    )
    return [elector.run(for_ever)]


def an_owner_of_partitions(bus: NatsBus) -> list[Coroutine[Any, Any, None]]:
    context = context_of_a_test(**process_of("controller"))
    members = Members(bus, context, subjects=SUBJECTS)
    partitions = PartitionElector(
        bus,
        [lease(bus, "a.1", name=f"part-{number}") for number in range(PARTS)],
        members=members,
        **process_of("controller"),
    )
    return [members.run(), partitions.run(for_ever)]


async def end_and_follow(parts: Parts) -> bool:
    """End a process in the loop's last step and take its leases; False: it did not live so long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    server = MemoryNats(wall=SimClock().now, network=Slow())
    server.start()
    successor = make_bus(server, "b")
    running = asyncio.create_task(successor.run())
    await successor.ensure_streams([DECLARED.lease, DECLARED.state])

    bus = make_bus(server, "a")
    tasks = [asyncio.create_task(part) for part in [bus.run(), *parts(bus)]]
    ended = asyncio.Event()

    def end() -> None:
        for task in tasks:
            task.cancel()
        ended.set()

    loop.end_after_the_last(end)
    with suppress(TimeoutError):
        async with asyncio.timeout(LIFE_S):
            await ended.wait()
    lived = ended.is_set()
    if not lived:
        end()
    await asyncio.wait(tasks)
    async with asyncio.timeout(AT_ONCE_S):
        for number in range(PARTS):
            await lease(successor, "b.1", name=f"part-{number}", timing=PATIENT).acquire()
    running.cancel()
    await asyncio.wait([running])
    return lived


@pytest.mark.parametrize("parts", [a_leader, an_owner_of_partitions])
def test_a_process_that_is_told_to_end_in_any_step_gives_back_its_leases(parts: Parts) -> None:
    lost = []
    last, lives = 0, True
    while lives:
        with asyncio.Runner(loop_factory=partial(Loop, last)) as runner:
            try:
                lives = runner.run(end_and_follow(parts))
            except TimeoutError:
                lost.append(last)
        last += 1
    assert last >= 50, "too short a life to have been cut everywhere"
    assert not lost
