"""Whatever consumers subscribers make on EVENTS, services have its events as soon as they start."""

import asyncio
from typing import Any

import pytest

from pumice.events import GangAdmitted, encode, subject
from services.controller.adapters.feed import AdmissionFeed
from services.controller.adapters.store import Identity
from services.visibility.adapters.feeds import EventHistory
from shared.bus.api import ApiError
from shared.bus.errors import LimitReached, NotPermitted, StreamMissing
from shared.bus.feed import NANO
from shared.bus.nats import NatsBus
from shared.bus.service import bus_of
from shared.bus.values import Idle
from shared.contracts.permissions import permissions
from shared.contracts.streams import CONSUMERS_MAX, events_of
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.contract.bus.conftest import only_nats
from tests.support.env import context_of_a_test
from tests.support.wait import until


async def use_up(bus: NatsBus, stream: str, most: int) -> None:
    """Make consumers, durable ones and others, until there is no room for one more."""
    for number in range(most + 1):
        config: dict[str, Any] = {
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "filter_subjects": [">"],
        }
        if number % 2:
            config["durable_name"] = f"c{number}"
        else:
            config["inactive_threshold"] = 3600 * NANO
        try:
            await bus._api.make_consumer(stream, f"c{number}", config)
        except LimitReached:
            assert number == most
            return
    raise AssertionError(f"{most} consumers of {stream} and no end")


def admitted(number: int) -> GangAdmitted:
    return GangAdmitted(gang=f"ns/g{number}", uid="u", job="ns/j", resource_version="7")


class Informers:
    """Takes admissions in place of the controller's informers."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def admitted(self, group: Identity) -> None:
        self.groups.append(group.key)


async def test_services_start_and_have_the_events_while_all_consumers_are_used_up(
    bus, declared, subjects, open_bus
):
    stream, publisher = declared.events.name, bus.publisher(declared.events.name)

    async def admit(number: int) -> None:
        event = admitted(number)
        payload = encode(event, id=str(number), time=0.0, source="/pumice/local/scheduler/s")
        await publisher.publish(subject(event, cluster="local"), payload, msg_id=str(number))

    await admit(0)
    await use_up(await open_bus("events", name="subscriber"), stream, CONSUMERS_MAX)

    visibility = await open_bus("visibility", name="visibility")
    history = EventHistory(visibility, stream=stream, subjects=subjects)
    async with asyncio.timeout(10):
        found = await history.of("ns", "ns/j", lambda _: True)
    assert [event.data for event in found] == [admitted(0)]

    informers, controller = Informers(), await open_bus("controller", name="controller")
    feed = AdmissionFeed(controller, informers, subject=subjects.admissions, log=bus._log)
    hearing = asyncio.create_task(feed.run())
    heard = informers.groups
    for number in range(1, 100):
        await admit(number)
        try:
            await until(lambda: heard, deadline_s=0.2)
        except AssertionError:
            continue  # it does not listen yet
        break
    assert heard
    hearing.cancel()


@only_nats
async def test_a_reader_without_room_says_so_and_reads_as_soon_as_there_is_room(
    server, bus, declared, open_bus, start_bus
):
    stream = declared.events.name
    await use_up(await open_bus("events", name="subscriber"), stream, CONSUMERS_MAX)
    context = context_of_a_test()
    password = Secret(server.nats.passwords["events"])
    settings = CommonSettings(nats=server.nats.url, nats_user="events", nats_password=password)
    reader = start_bus(bus_of(settings, context))
    following = reader.follow(stream, ["pumice.local.event.>"])
    refused = f'pumice_bus_refused{{stream="{stream}"}}'

    async with asyncio.timeout(30):
        assert isinstance(await anext(following), Idle)
        assert f"{refused} 1.0" in context.metrics.render().decode()
        [note] = context.readiness.notes()
        assert note["gate"] == f"reader of {stream}"
        assert "maximum consumers limit reached" in note["reason"]
        await bus._api.call(f"CONSUMER.DELETE.{stream}.c0", None, dict, about=stream)
        while isinstance(await anext(following), Idle):
            pass
    assert f"{refused} 0.0" in context.metrics.render().decode()
    assert context.readiness.notes() == []
    await following.aclose()


@pytest.mark.parametrize("service", ["controller", "visibility", "scheduler", "binder", "cache"])
async def test_no_service_makes_a_consumer_on_events(service, bus, declared, open_bus):
    stream = declared.events.name
    other = await open_bus(service)
    body = {"stream_name": stream, "config": {"name": "x", "ack_policy": "none"}, "action": ""}
    with pytest.raises((NotPermitted, StreamMissing)):
        await other._api.call(f"CONSUMER.CREATE.{stream}.x", body, dict, about=stream)
    names = await bus._api.call(f"CONSUMER.NAMES.{stream}", None, dict, about=stream)
    assert not isinstance(names, ApiError)
    assert not names["consumers"]


def test_the_consumers_of_each_stream_that_subscribers_read_are_bounded(declared):
    bounded = (declared.events, events_of("local", "ns"))
    assert all(0 < spec.max_consumers <= CONSUMERS_MAX for spec in bounded)


def test_each_user_makes_consumers_on_the_streams_of_this_list_only(declared):
    """The same list stands in SECURITY.md."""
    read = {
        "accounting": {"STATE"},
        "cache": {"STATE"},
        "scheduler": {"STATE", "OUTCOME", "USAGE"},
        "binder": {"STATE", "OUTCOME"},
        "controller": {"STATE"},
        "visibility": {"STATE", "OUTCOME", "USAGE", "WAITING"},
        "declarer": {"COMMAND", "DESIRED"},
        "events": {"EVENTS"},
        "events-team-a": {"EVENTS_team-a"},
    }
    found = {
        user: {
            subject.removeprefix("$JS.API.CONSUMER.CREATE.PUMICE_local_").partition(".")[0]
            for subject in allowed.publish
            if subject.startswith("$JS.API.CONSUMER.CREATE.")
        }
        for user, allowed in permissions("local", ("team-a",)).items()
    }
    assert found == read
