"""What ends badly about one intent stays with that intent: no partition ends, no other waits."""

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import structlog

from services.binder.adapters.commands import Commands, IntentSlots, failed_outcome, is_identity
from services.binder.adapters.deliveries import AckExtender, PartitionSource
from services.binder.adapters.outcomes import Outcomes
from services.binder.intents.steps import IntentProgress
from services.binder.metrics import BinderMetrics
from shared.bus.errors import NotPermitted
from shared.bus.values import Ack, Message
from shared.contracts import codec
from shared.contracts.messages import (
    SCHEDULING,
    Bind,
    BindGang,
    ItemOutcome,
    Outcome,
    Result,
    Retry,
)
from shared.contracts.subjects import Subjects
from shared.election.installation import InstallationLeadership
from shared.runtime.clock import SystemClock
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import QuarantineRegistry
from shared.runtime.tasks import TaskGroup
from tests.support.env import env_of_a_test
from tests.support.wait import until
from tests.support.world import bind_of

SUBJECTS = Subjects(cluster="local")
LEADER = SUBJECTS.leader("command")
FENCE = {
    "Nats-Expected-Last-Subject-Sequence": "7",
    "Nats-Expected-Last-Subject-Sequence-Subject": LEADER,
}
CLOCK, LOG = SystemClock(), structlog.get_logger()


def gang(intent: str) -> BindGang:
    return bind_of(Bind(pod="ns/p", uid="u", node="n"), id=intent)


class Delivery:
    """One delivery, and what was answered to it."""

    attempt = 1
    exhausted = False

    def __init__(self, sequence: int, payload: bytes) -> None:
        subject = SUBJECTS.command(0)
        self.message = Message(
            subject=subject, sequence=sequence, payload=payload, time=1e9, headers=FENCE
        )
        self.answers: list[str] = []

    async def ack(self) -> None:
        self.answers.append("ack")

    async def nak(self, delay_s: float = 0.0) -> None:
        self.answers.append("nak")

    async def in_progress(self) -> None:
        pass

    async def term(self, reason: str) -> None:
        self.answers.append("term")


class Server:
    """Takes every outcome except that of one intent."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.told: list[str] = []

    async def publish(self, subject: str, payload: bytes, *, msg_id: str, **_: object) -> Ack:
        if msg_id == f"outcome-{self.refused}":
            raise NotPermitted("no")
        self.told.append(msg_id)
        return Ack(sequence=1)


def commands(
    deliveries: list[Delivery], server: Server, quarantined: QuarantineRegistry
) -> Commands:
    async def items() -> AsyncGenerator[Delivery, None]:
        for delivery in deliveries:
            yield delivery
        await asyncio.Event().wait()

    async def run(intent: BindGang, _: object) -> Outcome:
        item = ItemOutcome(pod="ns/p", uid="u", result=Result.BOUND, node="n")
        return Outcome(intent=intent.id, items=(item,), instance="b", time=1.0)

    async def prepare(_: BindGang) -> dict[int, ItemOutcome]:
        return {}

    async def has(_: str) -> bool:
        return False

    env = env_of_a_test(instance="b", quarantined=quarantined)
    return Commands(
        PartitionSource(
            puller=SimpleNamespace(deliveries=items),
            partition=0,
            stream="COMMAND",
            bus=None,
            acks=AckExtender(ack_wait_s=1.5, env=env),
            gate=Readiness().gate("commands"),
            leaders=[LEADER],
        ),
        executor=SimpleNamespace(run=run, prepare=prepare),
        outcomes=Outcomes(server, subjects=SUBJECTS, env=env),
        finished=SimpleNamespace(has=has),
        installation=InstallationLeadership(SCHEDULING, required=False, clock=CLOCK, log=LOG),
        slots=IntentSlots(received=asyncio.Semaphore(8), executing=asyncio.Semaphore(8)),
        env=env,
        metrics=BinderMetrics(Metrics()),
    )


async def test_an_outcome_that_the_server_refuses_ends_no_partition() -> None:
    first, second = (Delivery(i, codec.encode(gang(f"1-1-{i}"))) for i in (1, 2))
    server, quarantined = Server(refused="1-1-1"), QuarantineRegistry()
    async with TaskGroup() as group:
        part = group.create_task(commands([first, second], server, quarantined).run(), name="part")
        await until(lambda: first.answers and second.answers)
        assert not part.done()
        part.cancel()
    assert (first.answers, second.answers) == (["nak"], ["ack"])
    assert server.told == ["outcome-1-1-2"]
    assert quarantined.get("intent", "0/1").stage == "execute"


async def test_an_intent_whose_id_no_header_carries_is_poison() -> None:
    hostile = Delivery(1, codec.encode(gang("1\r\nNats-Rollup: all\r\n")))
    server = Server(refused="")
    async with TaskGroup() as group:
        part = group.create_task(
            commands([hostile], server, QuarantineRegistry()).run(), name="part"
        )
        await until(lambda: hostile.answers)
        part.cancel()
    assert hostile.answers == ["term"]
    assert server.told == ["poison-COMMAND-1-1000000000"]


def test_an_id_is_short_and_plain() -> None:
    assert is_identity("123456-7-8")
    for text in ("", "a\nb", "ü", "x" * 129, "\x00"):
        assert not is_identity(text)


def test_nothing_is_salvaged_of_a_command_whose_id_no_header_carries() -> None:
    for intent in ("x" * 1_000_000, "a\r\nb", ""):
        payload = json.dumps({"id": intent, "binds": []}).encode()
        assert failed_outcome(payload, "why", instance="b", now=1.0) is None


def test_an_outcome_repeats_few_words_of_why() -> None:
    progress = IntentProgress(gang("1"))
    failed = ItemOutcome(
        pod="ns/p", uid="u", result=Result.FAILED, retry=Retry.LATER, message="x" * 500
    )
    progress.record(0, failed)
    assert len(progress.outcome(instance="b", now=1.0).items[0].message) == 200
