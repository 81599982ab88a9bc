"""Each service's user can do what its part of the flow needs, and nothing of another's.

What its services need is tried on both servers. What a user may not do is tried with plain
connections, subject by subject, on a server with the configuration of the local stack: every verb
of JetStream's API on every stream and consumer, every subject of every stream, every inbox.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing

import nats
import pytest
from nats.aio.client import Client

from pumice.embedded.memory_nats.subjects import Filter
from shared.bus.errors import NotPermitted, StreamMissing
from shared.bus.values import CaughtUp, FromSequence, Started
from shared.contracts.permissions import inbox_prefix, permissions
from shared.contracts.streams import (
    all_streams,
    command_consumer,
    desired_consumer,
    durable_consumers,
    streams,
)
from shared.contracts.subjects import SINGLE_PODS, Subjects
from tests.contract.bus.conftest import only_nats
from tests.contract.bus.readers import Reader
from tests.support.wait import until

FOLLOWS = {
    "accounting": ("state",),
    "cache": ("state",),
    "scheduler": ("state", "outcome"),
    "binder": ("outcome",),
    "controller": ("state",),
    "visibility": ("state", "outcome", "waiting"),
    "events": ("events",),
}
USERS = sorted(permissions("local"))
SERVICES = ("accounting", "binder", "cache", "controller", "scheduler", "visibility")

STREAM_VERBS = (
    *(
        "CREATE",
        "UPDATE",
        "INFO",
        "DELETE",
        "PURGE",
        "MSG.GET",
        "MSG.DELETE",
        "SNAPSHOT",
        "RESTORE",
    ),
    *("PEER.REMOVE", "LEADER.STEPDOWN"),
)
CONSUMER_VERBS = (
    "CREATE",
    "DURABLE.CREATE",
    "INFO",
    "DELETE",
    "MSG.NEXT",
    "PAUSE",
    "UNPIN",
    "RESET",
)
LISTS = ("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.TEMPLATE.NAMES", "ACCOUNT.PURGE.x")


def said_to_jetstream() -> Iterator[str]:
    """Yield every subject of JetStream that a client may publish to, for streams that there are."""
    durables = {spec.name: ["another"] for spec in all_streams(streams("local"))}
    for consumer in durable_consumers("local"):
        durables[consumer.stream].append(consumer.durable)
    yield from (f"$JS.API.{verb}" for verb in LISTS)
    for stream in (*durables, "FOREIGN"):
        yield from (f"$JS.API.STREAM.{verb}.{stream}" for verb in STREAM_VERBS)
        yield from (f"$JS.API.CONSUMER.{verb}.{stream}" for verb in ("NAMES", "LIST", "CREATE"))
        yield from (f"$JS.API.DIRECT.GET.{stream}", f"$JS.API.DIRECT.GET.{stream}.a.b")
        for name in durables.get(stream, ["another"]):
            yield from (f"$JS.API.CONSUMER.{verb}.{stream}.{name}" for verb in CONSUMER_VERBS)
            yield f"$JS.API.CONSUMER.CREATE.{stream}.{name}.a.b"
            yield f"$JS.API.CONSUMER.LEADER.STEPDOWN.{stream}.{name}"
            yield f"$JS.ACK.{stream}.{name}.1.1.1.1.1"
            yield f"$JS.FC.{stream}.{name}.x"


def said_to_each_other() -> Iterator[str]:
    """Yield subjects of every stream, of this cluster and another, and of the server itself."""
    s = Subjects(cluster="local")
    yield from (s.state("pods", "ns/a"), s.marker, s.leader("state"), s.leader("command"))
    yield from (s.command(0), s.command(3), s.desired(1, "pods", "ns/a"), s.outcome(0), s.poison)
    yield from (s.waiting("ns/a"), s.reports)
    yield from (s.event("job.phase", "ns/a"), s.event("leader.changed", "scheduler"))
    for service in (*SERVICES, "declarer", "events"):
        yield from (s.lease(service), s.member(service, f"{service}-1"))
    yield from (s.job_lease(0), s.job_lease(15))
    yield from (s.lease(SINGLE_PODS), s.leader("command", SINGLE_PODS))
    yield from (Subjects(cluster="other").state("pods", "ns/a"), "$SYS.REQ.SERVER.PING", "anything")
    yield from (f"{inbox_prefix(user)}.x" for user in (*USERS, "admin"))


EVERYTHING = (*said_to_jetstream(), *said_to_each_other())


class Intruder:
    """A connection as a user of the local stack, with what the server refuses."""

    def __init__(self) -> None:
        self.client: Client
        self.refused: list[str] = []

    async def connect(self, server, user: str) -> "Intruder":
        async def note(error: Exception) -> None:
            self.refused.append(str(error))

        self.client = await nats.connect(
            server.nats.url,
            user=user,
            password=server.nats.passwords[user],
            inbox_prefix=inbox_prefix(user).encode(),
            error_cb=note,
            allow_reconnect=False,
        )
        return self

    def was_refused(self, kind: str, subject: str) -> bool:
        wanted = f'violation for {kind} to "{subject}"'.lower()
        return any(wanted in text.lower() for text in self.refused)

    async def settled(self) -> None:
        """Wait until the server has told what it refuses: it answers in order."""
        await self.client.flush()
        await self.client.flush()


@only_nats
@pytest.mark.parametrize("user", USERS)
async def test_a_user_may_publish_exactly_what_the_table_says(user, bus, server):
    mine = await Intruder().connect(server, user)
    allowed = Filter(permissions("local")[user].publish)
    heard: set[str] = set()
    for subject in EVERYTHING:
        await mine.client.publish(subject, b"")
    await mine.settled()
    for subject in EVERYTHING:
        if not mine.was_refused("publish", subject):
            heard.add(subject)
    wanted = {subject for subject in EVERYTHING if allowed.takes(subject)}
    if user == "events":  # its clients are told that nobody responds, see below
        wanted |= {subject for subject in EVERYTHING if subject.startswith("$JS.API.")}
    assert heard == wanted
    await mine.client.close()


@only_nats
async def test_a_subscriber_gets_an_answer_from_the_permitted_part_of_the_api_only(bus, server):
    mine = await Intruder().connect(server, "events")
    allowed = Filter(permissions("local")["events"].publish)
    silent = ("$JS.API.CONSUMER.MSG.NEXT", "$JS.API.DIRECT.GET")
    for subject in said_to_jetstream():
        if not subject.startswith("$JS.API.") or subject.startswith(silent):
            continue
        if allowed.takes(subject):
            assert (await mine.client.request(subject, b"", timeout=5)).data, subject
        else:
            with pytest.raises(nats.errors.NoRespondersError):
                await mine.client.request(subject, b"", timeout=5)
    await mine.client.close()


@only_nats
@pytest.mark.parametrize("user", USERS)
async def test_a_user_hears_its_own_inbox_and_no_stream_but_events(user, bus, server):
    mine = await Intruder().connect(server, user)
    subjects = [f"{inbox_prefix(other)}.>" for other in (*USERS, "admin")]
    subjects += [pattern for spec in all_streams(streams("local")) for pattern in spec.subjects]
    subjects += [">", "_INBOX.>", "_R_.>", "$JS.>", "$SYS.>", "pumice.>", "$JS.EVENT.ADVISORY.>"]
    told = Subjects(cluster="local")
    subjects += ["told.>", "told.pumice.local.events.>", told.admissions, told.budget_warnings]
    for subject in subjects:
        await mine.client.subscribe(subject)
    await mine.settled()
    granted = {subject for subject in subjects if not mine.was_refused("subscription", subject)}
    wanted = {f"{inbox_prefix(user)}.>"}
    if user == "events":
        wanted |= {"_INBOX.>", "pumice.local.events.>"}
    if user == "controller":
        wanted |= {told.admissions, told.budget_warnings}
    assert granted == wanted
    await mine.client.close()


async def test_visibility_alone_gets_replies_of_accounting(bus, server, subjects, open_bus):
    asking, serving = await open_bus("visibility"), await open_bus("accounting")
    with pytest.raises(StreamMissing):
        await asking.request(subjects.reports, b"early", timeout_s=5)

    async def serve() -> None:
        async with aclosing(serving.requests(subjects.reports)) as requests:
            async for request in requests:
                await serving.reply(request, b"reply to " + request.payload)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serve())

        async def replied() -> bytes:
            try:
                return await asking.request(subjects.reports, b"late", timeout_s=5)
            except StreamMissing:
                return b""

        assert await until(replied, describe="a reply") == b"reply to late"
        other = await open_bus("scheduler")
        with pytest.raises(NotPermitted):
            await other.request(subjects.reports, b"x", timeout_s=5)
        task.cancel()


@only_nats
async def test_accounting_replies_to_requests_and_publishes_nothing_else(server, subjects):
    mine = await Intruder().connect(server, "accounting")
    for subject in ("_R_.x", "anything", f"{inbox_prefix('visibility')}.x"):
        await mine.client.publish(subject, b"")
        await mine.settled()
        assert mine.was_refused("publish", subject)
    await mine.client.close()


async def counts(bus, declared) -> dict[str, int]:
    return {spec.name: (await bus.info(spec.name)).last_seq for spec in all_streams(declared)}


REDIRECTED = (
    "pumice.local.command.p0",
    "pumice.local.command.leader",
    "pumice.local.outcome.p0",
    "pumice.local.lease.scheduler",
    "pumice.local.state.pods.ns.a",
)


@only_nats
async def test_an_answer_cannot_be_sent_to_where_the_asker_may_not_publish(
    bus, server, declared, subjects
):
    """A reader asks for its own message to be delivered to a subject of another's stream."""
    mine = await Intruder().connect(server, "controller")
    own = subjects.member("controller", "x")
    forged = b'{"forged":true}'
    await mine.client.request(own, forged, timeout=5)
    before = await counts(bus, declared)
    lease, state = declared.lease.name, declared.state.name
    body = json.dumps({"last_by_subj": own}).encode()
    config = {"stream_name": state, "config": {"name": "n", "ack_policy": "none"}}
    made = await mine.client.request(
        f"$JS.API.CONSUMER.CREATE.{state}.n", json.dumps(config).encode(), timeout=5
    )
    assert b'"error"' not in made.data
    for reply in (
        *REDIRECTED[:4],
        "$JS.API.STREAM.PURGE." + lease,
        "$JS.API.STREAM.DELETE." + lease,
    ):
        await mine.client.publish(f"$JS.API.DIRECT.GET.{lease}", body, reply=reply)
        await mine.client.publish(f"$JS.API.STREAM.MSG.GET.{lease}", body, reply=reply)
        await mine.client.publish(f"$JS.API.STREAM.INFO.{lease}", b"", reply=reply)
        await mine.client.publish(own, forged, reply=reply)
        await mine.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{state}.n", b'{"batch":1,"no_wait":true}', reply=reply
        )
    await mine.settled()
    after = await counts(bus, declared)
    after[lease] = before[lease]  # its own announcements
    assert after == before
    last = await bus.last(lease, own)
    assert last is not None, "its stream was emptied"
    await mine.client.close()


@only_nats
async def test_a_consumer_cannot_push_to_where_its_maker_may_not_publish(
    bus, server, declared, subjects
):
    """The cache makes the server push what it writes to STATE to the subjects of others."""
    mine = await Intruder().connect(server, "cache")
    own = subjects.state("pods", "ns/a")
    for number, target in enumerate(
        (*REDIRECTED[:4], f"$JS.API.STREAM.PURGE.{declared.lease.name}")
    ):
        name = f"push{number}"
        config = {"name": name, "ack_policy": "none", "deliver_subject": target}
        await mine.client.request(
            f"$JS.API.CONSUMER.CREATE.{declared.state.name}.{name}",
            json.dumps({"stream_name": declared.state.name, "config": config}).encode(),
            timeout=5,
        )
    async with asyncio.timeout(10):
        # An operator looks on, which wakes consumers that push.
        looking = await nats.connect(
            server.nats.url, user="admin", password=server.nats.passwords["admin"]
        )
        for target in REDIRECTED:
            await looking.subscribe(target)
        await looking.flush()
    before = await counts(bus, declared)
    await mine.client.request(own, b"{}", timeout=5)

    async def arrived() -> bool:
        return (await bus.info(declared.state.name)).last_seq > before[declared.state.name]

    await until(arrived, describe="its own message")
    await bus.publisher(declared.lease.name).publish(subjects.lease("scheduler"), b"held")
    after = await counts(bus, declared)
    grown = {name for name in after if after[name] != before[name]}
    assert grown == {declared.state.name, declared.lease.name}
    assert (await bus.last(declared.lease.name, subjects.lease("scheduler"))).payload == b"held"
    assert after[declared.lease.name] == before[declared.lease.name] + 1
    await mine.client.close()
    await looking.close()


@pytest.mark.parametrize("service", sorted(FOLLOWS))
async def test_a_service_follows_what_it_reads(service, bus, open_bus, declared):
    mine = await open_bus(service)
    for name in FOLLOWS[service]:
        stream = getattr(declared, name)
        items = mine.follow(stream.name, list(stream.subjects), start=FromSequence(1))
        async with Reader(items) as reader:
            assert await reader.has(1, CaughtUp)


async def test_the_declarer_declares_everything_on_an_empty_server(open_bus, declared):
    mine = await open_bus("declarer")
    for _ in range(2):
        await mine.ensure_streams(all_streams(declared))
        await mine.ensure_consumers(durable_consumers("local"))
    for spec in all_streams(declared):
        assert await mine.unfit(spec) == ""


@only_nats
@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_can_neither_declare_nor_change_a_stream(
    service, bus, open_bus, declared, server
):
    mine = await Intruder().connect(server, service)
    config = {"name": declared.lease.name, "subjects": ["pumice.local.lease.>"]}
    config["republish"] = {"src": ">", "dest": "pumice.local.command.p0"}
    for spec in all_streams(declared):
        for verb in ("CREATE", "UPDATE", "DELETE"):
            subject = f"$JS.API.STREAM.{verb}.{spec.name}"
            await mine.client.publish(subject, json.dumps(config).encode())
            await mine.settled()
            assert mine.was_refused("publish", subject)
    for spec in all_streams(declared):
        assert await bus.unfit(spec) == ""
    await mine.client.close()


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
            assert await reader.has(1, Started)
    await mine.publisher(declared.outcome.name).publish(subjects.outcome(0), b"bound", msg_id="1")


@pytest.mark.parametrize("service", SERVICES)
async def test_no_service_may_purge_a_stream(service, bus, open_bus, declared):
    mine = await open_bus(service)
    for spec in all_streams(declared):
        with pytest.raises(NotPermitted):
            await mine.purge(spec.name, spec.subjects[0])
