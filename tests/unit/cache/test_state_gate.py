"""A standby of the cache is ready beside a leader of another release."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.cache.adapters.state_gate import StateGate
from shared.bus.values import Message
from shared.contracts import codec
from shared.contracts.messages import Marker
from shared.contracts.subjects import Subjects
from shared.runtime.health import Readiness, ReadinessGate
from tests.support.clock import VirtualClock

SUBJECTS = Subjects(cluster="local")


class Bus:
    """Has a marker of the leader, of which there is a new one each time while it `lives`."""

    def __init__(self, *complete: str) -> None:
        self.lives = True
        self._marker = Marker(complete=complete, bookmarks={}, time=0.0, instance="cache-old")
        self._sequence = 1

    async def last(self, stream: str, subject: str) -> Message | None:
        assert (stream, subject) == ("STATE", SUBJECTS.marker)
        self._sequence += self.lives
        payload = codec.encode(self._marker)
        return Message(subject=subject, sequence=self._sequence, payload=payload, time=0.0)


@asynccontextmanager
async def standing_by(bus: Bus, clock: VirtualClock) -> AsyncIterator[ReadinessGate]:
    """Run the gate of a replica that does not lead."""
    gate = Readiness().gate("state")
    standing = StateGate(
        bus,
        stream="STATE",
        subjects=SUBJECTS,
        leads=lambda: False,
        complete=lambda: False,
        clock=clock,
        gate=gate,
    )
    task = asyncio.create_task(standing.run())
    await clock.advance(1.0)
    yield gate
    task.cancel()


async def test_a_standby_is_ready_beside_a_leader_that_knows_fewer_kinds() -> None:
    """Otherwise no new replica would become ready, and the rollout of a release would stand still:
    the leader of the release before never lists a kind that is new."""
    clock = VirtualClock()
    async with standing_by(Bus("nodes", "pods"), clock) as gate:
        assert (gate.ok, gate.reason) == (True, "")


async def test_a_standby_is_not_ready_while_the_leader_has_listed_nothing_or_is_gone() -> None:
    clock = VirtualClock()
    async with standing_by(Bus(), clock) as gate:
        assert (gate.ok, gate.reason) == (False, "the leader has not listed anything yet")
    bus = Bus("pods")
    async with standing_by(bus, clock) as gate:
        assert gate.ok
        bus.lives = False
        await clock.advance(6.0)
        assert (gate.ok, gate.reason) == (False, "no leader publishes")
