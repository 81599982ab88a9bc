"""Each service's user can do what its part of the flow needs, and nothing of another's."""

import pytest

from shared.bus.errors import NotPermitted
from shared.bus.port import CaughtUp, FromSequence, Started
from shared.contracts.streams import command_consumer, desired_consumer
from tests.contract.bus.conftest import all_streams, only_nats
from tests.contract.bus.readers import Reader

pytestmark = only_nats

FOLLOWS = {
    "cache": ("state", "lease"),
    "scheduler": ("state", "outcome", "desired", "lease"),
    "binder": ("state", "lease"),
    "controller": ("state", "outcome", "lease"),
    "events": ("events",),
}
DECLARES = {
    "cache": ("state", "lease"),
    "scheduler": ("command", "desired", "outcome", "events", "lease"),
    "binder": ("command", "desired", "outcome", "events", "lease"),
    "controller": ("events", "lease"),
}


@pytest.mark.parametrize("service", sorted(FOLLOWS))
async def test_a_service_follows_what_it_reads(service, bus, open_bus, declared, subjects):
    mine = await open_bus(service)
    for name in FOLLOWS[service]:
        stream = getattr(declared, name)
        items = mine.follow(stream.name, list(stream.subjects), start=FromSequence(1))
        async with Reader(items) as reader:
            await reader.has(1, CaughtUp, deadline_s=3)


@pytest.mark.parametrize("service", sorted(DECLARES))
async def test_a_service_declares_what_it_owns_on_an_empty_server(service, open_bus, declared):
    mine = await open_bus(service)
    await mine.ensure_streams([getattr(declared, name) for name in DECLARES[service]])


async def test_the_scheduler_publishes_intents_and_reads_them_back(
    bus, open_bus, declared, subjects
):
    mine = await open_bus("scheduler")
    publisher = mine.publisher(declared.command.name)
    await publisher.publish(subjects.leader("command"), b"mark", expect_last=0)
    await publisher.publish(subjects.command(0), b"bind", msg_id="1")
    assert [m.payload async for m in mine.scan(declared.command.name, subjects.command(0))]


async def test_the_binder_pulls_answers_and_reports(bus, open_bus, declared, subjects):
    await bus.publisher(declared.command.name).publish(subjects.command(0), b"bind", msg_id="1")
    mine = await open_bus("binder")
    for spec in (command_consumer("local", 0), desired_consumer("local", 0)):
        async with Reader(mine.pull(spec).deliveries()) as reader:
            await reader.has(1, Started, deadline_s=3)
    await mine.publisher(declared.outcome.name).publish(subjects.outcome(0), b"bound", msg_id="1")


@pytest.mark.parametrize(
    ("service", "subject"),
    [
        ("cache", "command.p0"),
        ("cache", "desired.p0.pods.ns.a"),
        ("cache", "outcome.p0"),
        ("scheduler", "state.pods.ns.a"),
        ("scheduler", "outcome.p0"),
        ("binder", "state.marker"),
        ("binder", "command.p0"),
        ("controller", "command.p0"),
        ("controller", "state.pods.ns.a"),
        ("events", "events.job.ns.a"),
        ("events", "lease.scheduler"),
    ],
)
async def test_a_service_cannot_speak_for_another(service, subject, bus, open_bus):
    mine = await open_bus(service)
    with pytest.raises(NotPermitted):
        await mine.publisher("any").publish(f"pumice.local.{subject}", b"x")


async def test_streams_are_declared_by_the_admin_too(bus, declared):
    for spec in all_streams(declared):
        assert (await bus.info(spec.name)).messages == 0
