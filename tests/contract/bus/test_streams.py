"""Streams are what their declaration says, and are never made anew."""

import asyncio

import msgspec
import pytest

from shared.bus.errors import StreamMissing
from shared.bus.streams import config_of
from shared.contracts.streams import (
    Discard,
    Storage,
    all_streams,
    command_consumer,
    durable_consumers,
)
from shared.runtime.errors import Rejected
from tests.contract.bus.conftest import only_nats


async def test_declaring_twice_changes_nothing(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    await publisher.publish(subjects.state("pods", "ns/a"), b"1")
    before = await bus.info(declared.state.name)
    await bus.ensure_streams(list(all_streams(declared)))
    assert await bus.info(declared.state.name) == before


async def test_many_processes_may_declare_at_once(open_bus, declared):
    buses = [await open_bus() for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for one in buses:
            tasks.create_task(one.ensure_streams(list(all_streams(declared))))
    created = {(await one.info(declared.state.name)).created for one in buses}
    assert len(created) == 1


async def test_a_changed_limit_is_applied_and_keeps_what_is_stored(bus, declared, subjects):
    publisher = bus.publisher(declared.events.name)
    await publisher.publish(subjects.event("job.phase", "ns/a"), b"1")
    before = await bus.info(declared.events.name)
    await bus.ensure_streams([msgspec.structs.replace(declared.events, max_age_s=60.0)])
    assert await bus.info(declared.events.name) == before


async def test_a_setting_that_cannot_change_is_refused_by_name(bus, declared):
    other = msgspec.structs.replace(declared.command, storage=Storage.MEMORY)
    with pytest.raises(Rejected, match="PUMICE_local_COMMAND has storage 'file'") as refused:
        await bus.ensure_streams([other])
    assert refused.value.field == "storage"


async def test_a_stream_that_is_not_there_says_so(bus, declared, admin_api):
    name = declared.events.name
    await admin_api(f"STREAM.DELETE.{name}")
    with pytest.raises(StreamMissing, match=f"stream {name}"):
        await bus.info(name)
    with pytest.raises(StreamMissing):
        await bus.last(name, "x")
    assert await bus.unfit(declared.events) == (f"stream {name} is missing, the declarer makes it")


async def test_a_stream_that_differs_in_what_a_promise_rests_on_does_not_serve(bus, declared):
    assert {await bus.unfit(spec) for spec in all_streams(declared)} == {""}
    await bus.ensure_streams([msgspec.structs.replace(declared.outcome, max_bytes=4096)])
    assert await bus.unfit(declared.outcome) == "", "sizes are the operator's"
    await bus.ensure_streams([msgspec.structs.replace(declared.state, discard=Discard.OLD)])
    assert "discard 'old' and needs 'new'" in await bus.unfit(declared.state)
    await bus.ensure_streams([declared.state])
    assert await bus.unfit(declared.state) == ""


@only_nats
async def test_a_stream_that_sends_its_messages_elsewhere_does_not_serve(bus, declared, admin_api):
    config = {**config_of(declared.lease), "republish": {"src": ">", "dest": "elsewhere.>"}}
    await bus._api.call(f"STREAM.UPDATE.{declared.lease.name}", config, dict, about="update")
    assert "has republish" in await bus.unfit(declared.lease)


async def test_durable_consumers_are_declared_and_come_back(bus, declared, admin_api):
    (spec,) = [c for c in durable_consumers("local") if c == command_consumer("local", 0)]
    names = (await admin_api(f"CONSUMER.NAMES.{spec.stream}"))["consumers"]
    assert sorted(names) == [f"binder-command-p{n}" for n in range(4)]
    before = await admin_api(f"CONSUMER.INFO.{spec.stream}.{spec.durable}")
    await bus.ensure_consumers(durable_consumers("local"))
    again = await admin_api(f"CONSUMER.INFO.{spec.stream}.{spec.durable}")
    assert again["config"] == before["config"]
    await admin_api(f"CONSUMER.DELETE.{spec.stream}.{spec.durable}")
    await bus.ensure_consumers([spec])
    names = (await admin_api(f"CONSUMER.NAMES.{spec.stream}"))["consumers"]
    assert spec.durable in names


async def test_a_purge_removes_one_subject_only(bus, declared, subjects):
    publisher = bus.publisher(declared.desired.name)
    await publisher.publish(subjects.desired(0, "pods", "ns/a"), b"1")
    await publisher.publish(subjects.desired(0, "pods", "ns/b"), b"2")
    assert await bus.purge(declared.desired.name, subjects.desired(0, "pods", "ns/a")) == 1
    assert await bus.last(declared.desired.name, subjects.desired(0, "pods", "ns/a")) is None
    assert (await bus.get(declared.desired.name, 2)).payload == b"2"
    assert await bus.get(declared.desired.name, 1) is None
