"""A disk is suspected when the server answers questions and stores nothing, and only then."""

import asyncio
from contextlib import nullcontext

import pytest
import structlog

from shared.bus.errors import NoReply, StreamFull
from shared.bus.storage_gate import ROUNDS, StorageGate
from shared.bus.values import Ack, Message
from shared.contracts.subjects import Subjects
from shared.election.members import Members
from shared.runtime.errors import Retryable
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from tests.support.env import context_of_a_test

LOG = structlog.get_logger()


class Bus:
    """Stores and answers as it is told, round by round; then ends the process."""

    def __init__(self, rounds: list[tuple[Retryable | None, Retryable | None]]) -> None:
        self._rounds = rounds
        self._at = -1

    def publisher(self, _: str) -> "Bus":
        return self

    async def connected(self) -> None:
        pass

    def final_messages(self) -> nullcontext[None]:
        return nullcontext()

    async def publish(self, *_: object, **__: object) -> Ack:
        self._at += 1
        if self._at >= len(self._rounds):
            raise asyncio.CancelledError
        if (error := self._rounds[self._at][0]) is not None:
            raise error
        return Ack(sequence=1)

    async def snapshot(self, *_: object) -> list[Message]:
        if (error := self._rounds[self._at][1]) is not None:
            raise error
        return []


class Now:
    """Time that never lasts."""

    def now(self) -> float:
        return 1e9

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, _: float) -> None:
        pass


FINE = (None, None)
SILENT = (NoReply("no answer"), None)
AWAY = (NoReply("no answer"), NoReply("no answer"))
FULL = (StreamFull("maximum bytes exceeded"), None)


@pytest.mark.parametrize(
    ("rounds", "is_open"),
    [
        ([FINE] * 3, True),
        ([FINE, *[SILENT] * (ROUNDS - 1)], True),
        ([FINE, *[SILENT] * ROUNDS], False),
        ([*[SILENT] * ROUNDS, FINE], True),
        ([FINE, *[AWAY] * 5], True),
        ([FINE, *[FULL] * 5], True),
        ([SILENT, FINE, SILENT, FINE, SILENT], True),
    ],
    ids=["fine", "once", "a full disk", "a disk with room again", "away", "a full stream", "weak"],
)
async def test_what_silence_means(rounds: list, is_open: bool) -> None:
    gate, metrics = Readiness().gate("storage"), Metrics()
    gauge = metrics.gauge("stores", "whether")
    members = Members(
        Bus(rounds),
        context_of_a_test(clock=Now()),
        subjects=Subjects(cluster="local"),
        storage=StorageGate(gate=gate, gauge=gauge, log=LOG),
    )
    with pytest.raises(asyncio.CancelledError):
        await members.run()
    assert gate.ok is is_open
    assert ("disk" in gate.reason) is not is_open
    assert f"stores {float(is_open)}".encode() in metrics.render()
