"""Messages that cannot be decoded are quarantined with their reason, and the work goes on."""

import json
import secrets
from pathlib import Path

import pytest

from pumice.local.nats import NatsServer
from shared.bus.errors import NotPermitted
from shared.contracts import codec
from shared.contracts.messages import BindGang
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.integration.borders.conftest import Borders
from tests.support.fleet import Place, fleet
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

STREAMS = streams("local")
SUBJECTS = Subjects(cluster="local")
BIND = BindGang(id="x", cycle=1, job="ns/a", job_uid="u", binds=())


def fact(**fields: object) -> bytes:
    plain = {"v": 1, "kind": "jobs", "key": "ns/ghost", "uid": "u", "rv": "1", "op": "put"}
    return json.dumps(plain | fields).encode()


COMMANDS = {
    "no-json": b"garbage",
    "cut-off": codec.encode(BIND)[:-5],
    "unknown-type": b'{"v":1,"type":"dance","id":"x"}',
    "unknown-field": json.dumps(json.loads(codec.encode(BIND)) | {"hurry": True}).encode(),
    "not-inflatable": b"x" * 100,
}


@pytest.mark.parametrize("case", COMMANDS)
async def test_a_command_that_cannot_be_read_is_quarantined(case: str, borders: Borders) -> None:
    binder = borders.services["binder"]
    before = await binder.metric("pumice_binder_messages_quarantined_total")
    async with admin_bus(borders.place.nats) as bus:
        publisher = bus.publisher(STREAMS.command.name)
        sent = await publisher.publish(SUBJECTS.command(0), COMMANDS[case])

        async def quarantined() -> bool:
            return await binder.metric("pumice_binder_messages_quarantined_total") == before + 1

        await until(quarantined, describe=borders.fleet.logs)
        await borders.said("binder", "command_quarantined", f'"sequence": {sent.sequence}')

        async def kept() -> dict[str, object] | None:
            message = await bus.last(STREAMS.outcome.name, SUBJECTS.poison)
            poison = json.loads(message.payload) if message else {}
            return poison if poison.get("sequence") == sent.sequence else None

        assert (await until(kept, describe="the poison is kept"))["reason"]
        await borders.a_good_job_runs()

        async def gone() -> bool:
            return await bus.get(STREAMS.command.name, sent.sequence) is None

        await until(gone, describe="the poison has left COMMAND")


FACTS = {
    "no-json": (b"garbage", "fact_unreadable"),
    "fields-missing": (b'{"v":1}', "fact_unreadable"),
    "unknown-op": (fact(op="explode"), "fact_unreadable"),
    "unknown-kind": (fact(kind="unicorns"), "fact_unreadable"),
    "a-body-that-is-no-job": (fact(body={"spec": 3}), "object_quarantined"),
}


@pytest.mark.parametrize("case", FACTS)
async def test_a_fact_that_cannot_be_read_is_left_out(case: str, borders: Borders) -> None:
    payload, event = FACTS[case]
    name = f"ghost-{secrets.token_hex(3)}"
    subject = SUBJECTS.state("jobs", f"ns/{name}")
    payload = payload.replace(b"ns/ghost", f"ns/{name}".encode())
    async with admin_bus(borders.place.nats) as bus:
        await bus.publisher(STREAMS.state.name).publish(subject, payload)
    await borders.said("controller", event, name)
    await borders.a_good_job_runs()
    for service in borders.services.values():
        await service.ready()


@pytest.mark.parametrize(
    ("stream", "subject", "reader", "event"),
    [
        (STREAMS.state.name, SUBJECTS.marker, "controller", "marker_unreadable"),
        (STREAMS.outcome.name, SUBJECTS.outcome(0), "scheduler", "outcome_unreadable"),
        (
            STREAMS.desired.name,
            SUBJECTS.desired(0, "pods", "ns/a"),
            "binder",
            "desired_status_quarantined",
        ),
    ],
)
async def test_other_messages_that_cannot_be_read_are_named_in_the_log(
    stream: str, subject: str, reader: str, event: str, borders: Borders
) -> None:
    async with admin_bus(borders.place.nats) as bus:
        await bus.publisher(stream).publish(subject, b"garbage")
    await borders.said(reader, event)
    await borders.a_good_job_runs()


async def test_a_scheduler_starts_although_a_command_cannot_be_read(
    place: Place, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with admin_bus(nats_server) as bus:
        await bus.ensure_streams([STREAMS.command])
        await bus.publisher(STREAMS.command.name).publish(SUBJECTS.command(0), b"garbage")
    own = Place(place.kubeconfig, nats_server)
    async with fleet(own, tmp_path, beside=True) as services:
        scheduler = (await services.start_all("cache", "scheduler"))["scheduler"]

        async def leads() -> bool:
            return await scheduler.metric("pumice_leader") == 1

        await until(leads, deadline_s=20, describe=services.logs)
        await scheduler.said("command_unreadable")
        await scheduler.ready()


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("cache", SUBJECTS.command(0)),
        ("binder", SUBJECTS.command(0)),
        ("controller", SUBJECTS.command(0)),
        ("controller", SUBJECTS.state("pods", "ns/a")),
        ("scheduler", SUBJECTS.outcome(0)),
    ],
    ids=lambda value: value.rpartition("local.")[2],
)
async def test_nobody_speaks_for_another(user: str, subject: str, borders: Borders) -> None:
    async with admin_bus(borders.place.nats, user) as bus:
        with pytest.raises(NotPermitted, match=f"may not publish to {subject}"):
            await bus.publisher("any").publish(subject, codec.encode(BIND))
    await borders.a_good_job_runs()
