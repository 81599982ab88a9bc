"""Messages beyond what the server takes: each is refused by itself, or told shorter."""

import base64
import random

import msgspec
import pytest

from services.binder.adapters.outcomes import Outcomes
from services.scheduler.adapters.publish import PlanPublisher
from services.scheduler.decision import Decision
from services.scheduler.desired import DesiredStatus
from services.scheduler.engine.plan import Plan
from shared.bus.errors import TooLarge
from shared.bus.nats import NatsBus
from shared.bus.values import FencingToken
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.streams import Streams
from shared.contracts.subjects import Subjects
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.quarantine import QuarantineRegistry
from tests.support.env import env_of_a_test
from tests.support.world import bind_of, gone

RNG = random.Random(1)


def noise(letters: int) -> str:
    """Return a text that can hardly be deflated."""
    return base64.urlsafe_b64encode(RNG.randbytes(letters))[:letters].decode()


@pytest.fixture
def quarantined() -> QuarantineRegistry:
    return QuarantineRegistry()


@pytest.fixture
def plans(bus: NatsBus, declared: Streams, subjects: Subjects, quarantined: QuarantineRegistry):
    return PlanPublisher(
        bus,
        streams=declared,
        subjects=subjects,
        partitions=4,
        env=env_of_a_test(quarantined=quarantined),
    )


@pytest.fixture
def outcomes(bus: NatsBus, declared: Streams, subjects: Subjects) -> Outcomes:
    return Outcomes(
        bus.publisher(declared.outcome.name),
        subjects=subjects,
        env=env_of_a_test(),
    )


async def led(bus: NatsBus, declared: Streams, subjects: Subjects) -> LeadershipTerm:
    stream, mark = declared.command.name, subjects.leader("command")
    ack = await bus.publisher(stream).publish(mark, b"{}")
    token = FencingToken(stream=stream, subject=mark, sequence=ack.sequence)
    return LeadershipTerm(number=ack.sequence, tokens={stream: token})


def gang(name: str, **annotations: str) -> m.BindGang:
    bind = m.Bind(pod=f"ns/{name}-0", uid=f"{name}-0", node="n1", annotations=annotations)
    return bind_of(bind, id=f"1-1-{name}", key=f"ns/{name}")


def desired(name: str, text: str = "") -> DesiredStatus:
    condition = m.DesiredCondition(type="Unschedulable", status="True", message=text)
    wanted = m.DesiredPodGroup(key=f"ns/{name}", uid=name, phase="Inqueue", conditions=(condition,))
    return DesiredStatus(kind="podgroups", message=wanted)


def decision(*commands: m.Command, statuses: list[DesiredStatus] | None = None) -> Decision:
    plan = Plan(cycle=1)
    return Decision(plan=plan, full_plan=plan, commands=list(commands), statuses=statuses or [])


async def test_an_intent_that_is_too_large_is_refused_by_itself(
    bus, declared, subjects, plans, quarantined
):
    term = await led(bus, declared, subjects)
    large = gang("large", noise=noise(2_000_000))
    sent = await plans.publish(decision(gang("a"), large, gang("b")), term, "")
    assert [refused.command.id for refused in sent.refused] == [large.id]
    assert "the server takes" in sent.refused[0].why
    assert sent.superseded is None
    assert {command.job for command in await plans.unfinished()} == {"ns/a", "ns/b"}
    assert "the server takes" in quarantined.get("podgroups", "ns/large").reason


async def test_a_status_that_is_too_large_is_left_out_until_another_is_wanted(
    bus, declared, subjects, plans, quarantined
):
    term = await led(bus, declared, subjects)
    statuses = [desired("a"), desired("large", noise(2_000_000)), desired("b")]
    sent = await plans.publish(decision(statuses=statuses), term, "")
    assert sent.statuses, "or all three are wanted anew in each cycle"
    assert (await bus.info(declared.desired.name)).messages == 2
    assert quarantined.get("podgroups", "ns/large") is not None
    await plans.publish(decision(statuses=[desired("large")]), term, "")
    assert (await bus.info(declared.desired.name)).messages == 3
    assert len(quarantined) == 0


async def test_what_was_quarantined_of_an_object_ends_with_it(
    bus, declared, subjects, plans, quarantined
):
    term = await led(bus, declared, subjects)
    await plans.publish(decision(statuses=[desired("large", noise(2_000_000))]), term, "")
    tombstone = gone("podgroups", "ns/large", "large")
    plans.folded([msgspec.structs.replace(tombstone, key="ns/other")])
    assert len(quarantined) == 1
    plans.folded([tombstone])
    assert len(quarantined) == 0


async def test_an_outcome_that_is_too_large_is_told_without_its_messages(
    bus, declared, subjects, outcomes
):
    items = tuple(
        m.ItemOutcome(
            pod=f"ns/{i}", uid=f"{i}", result=m.Result.FAILED, retry=m.Retry.NEVER,
            message=noise(200),
        )
        for i in range(10_000)
    )  # fmt: skip
    outcome = m.Outcome(intent="1-1-0", job="ns/g", items=items, instance="b", time=1.0)
    await outcomes.publish(0, outcome)
    stored = await bus.last(declared.outcome.name, subjects.outcome(0))
    told = codec.decode_outcome(stored.payload)
    assert (told.intent, told.job) == ("1-1-0", "ns/g")
    assert [(i.uid, i.result, i.retry) for i in told.items] == [
        (i.uid, i.result, i.retry) for i in items
    ]
    assert {i.message for i in told.items} == {""}


async def test_an_outcome_of_whatever_size_is_told(bus, declared, subjects, outcomes):
    items = tuple(
        m.ItemOutcome(pod=noise(300), uid=noise(36), result=m.Result.GONE) for _ in range(10_000)
    )
    outcome = m.Outcome(intent="1-1-0", job=noise(1000), items=items, instance="b", time=1.0)
    await outcomes.publish(0, outcome)
    stored = await bus.last(declared.outcome.name, subjects.outcome(0))
    assert codec.decode_outcome(stored.payload).items == items[:100]


async def test_a_long_header_is_not_sent(bus, declared, subjects):
    publisher = bus.publisher(declared.events.name)
    subject = subjects.event("t", "ns/a")
    with pytest.raises(TooLarge):
        await publisher.publish(subject, b"x", msg_id="x" * 1_048_576)
    assert (await publisher.publish(subject, b"x")).sequence == 1


async def test_a_long_subject_is_not_sent(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    with pytest.raises(TooLarge, match="subject"):
        await publisher.publish(subjects.state("pods", "ns/" + "x" * 5_000), b"x")
    assert (await publisher.publish(subjects.state("pods", "ns/a"), b"x")).sequence == 1
