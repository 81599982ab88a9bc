"""The declarer takes over the streams of former releases in place, and they take them back.

The streams are made as the former release made them, and hold its messages.
"""

from typing import Any

import pytest

from shared.bus.nats import NatsBus
from shared.contracts.streams import (
    PARTITIONS,
    all_streams,
    command_consumer,
    durable_consumers,
    streams,
)
from tests.contract.bus.conftest import OpenBus, only_nats
from tests.upgrade.former import CLUSTER, Former, former

EACH = pytest.mark.parametrize("release", former(), ids=lambda release: release.name)
SPECS, CONSUMERS = all_streams(streams(CLUSTER)), durable_consumers(CLUSTER)
MESSAGES = [message for release in former() if release.spoke for message in release.messages]
"""Also for a release of which the streams alone are kept: only that they are kept matters here."""


async def call(bus: NatsBus, operation: str, body: object = None) -> dict[str, Any]:
    """Ask the server, as an operator does; refusals fail."""
    answer = await bus._api.call(operation, body, dict, about=operation)
    assert isinstance(answer, dict), answer
    return answer


async def configured(bus: NatsBus, release: Former, verb: str) -> None:
    """Create or change streams and consumers to what a former release declares."""
    for config in release.streams["streams"]:
        known = {}
        if verb == "UPDATE":
            known = (await call(bus, f"STREAM.INFO.{config['name']}"))["config"]
        await call(bus, f"STREAM.{verb}.{config['name']}", known | config)
    for consumer in release.streams["consumers"]:
        config = consumer["config"]
        await bus._api.make_consumer(consumer["stream"], config["durable_name"], config)


async def filled(bus: NatsBus) -> None:
    """Publish all recorded messages, each to the stream of its subject."""
    for message in MESSAGES:
        stream = f"PUMICE_local_{stream_of(message.subject)}"
        await bus.publisher(stream).publish(message.subject, message.payload)


def stream_of(subject: str) -> str:
    token = subject.split(".")[2]
    return {"member": "LEASE"}.get(token, token.upper())


async def kept(bus: NatsBus, release: Former) -> dict[str, Any]:
    """Return what must not change: the identity and messages of streams, readers' places."""
    found: dict[str, Any] = {}
    for stream in release.streams["streams"]:
        found[stream["name"]] = await bus.info(stream["name"])
    for consumer in release.streams["consumers"]:
        durable = consumer["config"]["durable_name"]
        about = await call(bus, f"CONSUMER.INFO.{consumer['stream']}.{durable}")
        found[durable] = [about[key] for key in ("created", "delivered", "num_pending")]
    return found


@only_nats
@EACH
async def test_streams_of_a_former_release_are_taken_over_with_all_that_they_hold(
    release: Former, open_bus: OpenBus
) -> None:
    bus = await open_bus()
    await configured(bus, release, "CREATE")
    await filled(bus)
    before = await kept(bus, release)

    await bus.ensure_streams(SPECS)
    await bus.ensure_consumers(CONSUMERS)

    assert await kept(bus, release) == before
    assert [await bus.unfit(spec) for spec in SPECS] == [""] * len(SPECS)
    for message in MESSAGES:
        last = await bus.last(f"PUMICE_local_{stream_of(message.subject)}", message.subject)
        assert last is not None, message.subject


@only_nats
@EACH
async def test_a_former_release_takes_its_streams_back_with_all_that_they_hold(
    release: Former, open_bus: OpenBus
) -> None:
    bus = await open_bus()
    await bus.ensure_streams(SPECS)
    await bus.ensure_consumers(CONSUMERS)
    await filled(bus)
    before = await kept(bus, release)

    await configured(bus, release, "UPDATE")

    assert await kept(bus, release) == before


@only_nats
@EACH
async def test_a_command_of_a_former_release_is_delivered_after_its_streams_were_taken_over(
    release: Former, open_bus: OpenBus
) -> None:
    bus = await open_bus()
    await configured(bus, release, "CREATE")
    await filled(bus)
    await bus.ensure_streams(SPECS)
    await bus.ensure_consumers(CONSUMERS)
    subjects = [message.subject for message in MESSAGES]
    waiting = {}
    for consumer in (command_consumer(CLUSTER, partition) for partition in range(PARTITIONS)):
        about = await call(bus, f"CONSUMER.INFO.{consumer.stream}.{consumer.durable}")
        waiting[consumer.filter_subject] = about["num_pending"]
    assert waiting == {subject: subjects.count(subject) for subject in waiting}
    assert sum(waiting.values()) > 0
