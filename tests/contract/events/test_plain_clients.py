"""Events for clients that know nothing of Pumice: nats-py with its defaults, as the user `events`.

And as the user of one namespace, who sees the events of that namespace and no others.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

import nats
import nats.errors
import nats.js.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from pumice.local import parts
from pumice.local.nats import NatsServer
from shared.contracts.permissions import inbox_prefix, subscriber
from shared.contracts.streams import NAMESPACE_CONSUMERS_MAX
from tests.support.wait import until

EVENTS = "pumice.local.events.>"
STREAM = "PUMICE_local_EVENTS"
TEAM = "pumice.local.events.*.*.team-a"


@pytest_asyncio.fixture
async def server(tmp_path) -> AsyncIterator[NatsServer]:
    """A server on which the namespace team-a has subscribers of its own."""
    running = NatsServer(
        binary=parts.nats_server_binary(), directory=tmp_path / "nats", namespaces=("team-a",)
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(running.stop)
        await running.start()
        yield running


@pytest_asyncio.fixture
async def as_user(server: NatsServer) -> AsyncIterator[Callable]:
    """Return a function that connects as a user, with nats-py's own defaults for subscribers."""
    clients: list[Client] = []

    async def quiet(_error: Exception) -> None:
        """Leave it to the test to see what was refused."""

    async def connect(user: str) -> Client:
        own = {} if user.startswith("events") else {"inbox_prefix": inbox_prefix(user).encode()}
        password = server.passwords[user]
        clients.append(
            await nats.connect(server.url, user=user, password=password, error_cb=quiet, **own)
        )
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest_asyncio.fixture
async def tell(as_user) -> Callable:
    """Return a function that publishes an event about a job, as the scheduler does."""
    scheduler = await as_user("scheduler")

    async def publish(number: int, namespace: str = "team-a") -> None:
        subject = f"pumice.local.events.job.phase.{namespace}"
        headers = {"Nats-Msg-Id": f"{namespace}-{number}"}
        answer = await scheduler.request(subject, b"%d" % number, headers=headers, timeout=30)
        assert b'"error"' not in answer.data

    return publish


async def taken(subscription, count: int) -> list[bytes]:
    return [(await subscription.next_msg(timeout=30)).data for _ in range(count)]


async def test_a_core_subscription_hears_each_event_once_under_its_own_subject(as_user, tell):
    client = await as_user("events")
    heard = await client.subscribe(EVENTS)
    other = await client.subscribe("pumice.local.events.job.phase.team-b")
    await client.flush()
    for number in (0, 1, 1):
        await tell(number)
    await tell(2, "team-b")
    messages = [await heard.next_msg(timeout=30) for _ in range(3)]
    assert [message.data for message in messages] == [b"0", b"1", b"2"]
    assert messages[1].subject == "pumice.local.events.job.phase.team-a"
    assert await taken(other, 1) == [b"2"]


@pytest.mark.parametrize("options", [{}, {"ordered_consumer": True}, {"stream": STREAM}])
async def test_a_jetstream_subscription_begins_with_what_is_kept(as_user, tell, options):
    await tell(0)
    client = await as_user("events")
    subscription = await client.jetstream().subscribe(EVENTS, **options)
    await tell(1)
    assert await taken(subscription, 2) == [b"0", b"1"]


async def test_a_durable_subscription_goes_on_where_it_stopped(as_user, tell):
    for number in range(4):
        await tell(number)
    for expected in ([b"0", b"1"], [b"2", b"3"]):
        client = await as_user("events")
        mine = await client.jetstream().pull_subscribe(EVENTS, durable="mine")
        messages = await mine.fetch(2, timeout=30)
        assert [message.data for message in messages] == expected
        for message in messages:
            await message.ack_sync()


async def test_a_subscription_can_begin_at_a_sequence(as_user, tell):
    for number in range(4):
        await tell(number)
    client = await as_user("events")
    start = ConsumerConfig(deliver_policy="by_start_sequence", opt_start_seq=3)
    subscription = await client.jetstream().subscribe(EVENTS, config=start)
    assert await taken(subscription, 2) == [b"2", b"3"]


async def test_a_subscriber_harms_no_other(as_user, tell):
    await tell(0)
    victim = (await as_user("events")).jetstream()
    mine = await victim.pull_subscribe(EVENTS, durable="mine")
    client = await as_user("events")
    context = client.jetstream()
    for refused in (
        context.delete_consumer(STREAM, "mine"),
        context.delete_stream(STREAM),
        context.purge_stream(STREAM),
        context.delete_msg(STREAM, 1),
        context.stream_info("PUMICE_local_STATE"),
        context.stream_info("PUMICE_local_EVENTS_team-a"),
        context.consumers_info(STREAM),
    ):
        with pytest.raises(nats.js.errors.ServiceUnavailableError):
            await refused
    for number, reply in enumerate((f"$JS.API.STREAM.PURGE.{STREAM}", "pumice.local.events.x.y")):
        await client.publish(f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq":1}', reply=reply)
        await client.publish("pumice.local.events.job.phase.team-a", b"%d" % number)
    await client.flush()
    assert [stream.config.name for stream in await context.streams_info()] == [STREAM]
    info = await context.stream_info(STREAM)
    assert (info.state.messages, info.state.last_seq) == (1, 1)
    assert [message.data for message in await mine.fetch(1, timeout=30)] == [b"0"]


async def test_a_subscriber_of_one_namespace_sees_no_other(as_user, tell, server):
    for number in range(2):
        await tell(number)
        await tell(number, "team-b")
    client = await as_user(subscriber("team-a"))
    heard = await client.subscribe(EVENTS)
    own = await client.subscribe(TEAM)
    await client.flush()
    await tell(2, "team-b")
    await tell(2)
    assert await taken(own, 1) == [b"2"]
    assert heard.pending_msgs == 0
    context = client.jetstream()
    (stream,) = await context.streams_info()
    assert stream.config.name == f"{STREAM}_team-a"
    kept = await context.subscribe(TEAM)
    assert await taken(kept, 3) == [b"0", b"1", b"2"]
    messages = await until(lambda: kept.pending_msgs == 0, describe="nothing is left")
    assert messages
    for refused in (
        context.stream_info(STREAM),
        context.subscribe(EVENTS, stream=STREAM),
        context.get_msg(STREAM, 2),
        context.delete_stream(stream.config.name),
    ):
        with pytest.raises((nats.js.errors.Error, nats.errors.Error)):
            await refused


async def test_subscribers_of_a_namespace_use_up_their_own_consumers_and_no_others(as_user):
    team, everybody = await as_user(subscriber("team-a")), await as_user("events")

    async def make(client: Client, stream: str, number: int) -> str:
        body = (
            f'{{"stream_name":"{stream}","config":{{"durable_name":"c{number}",'
            '"ack_policy":"explicit"}}'
        )
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.c{number}"
        return (await client.request(subject, body.encode(), timeout=30)).data.decode()

    for number in range(NAMESPACE_CONSUMERS_MAX):
        assert '"error"' not in await make(team, f"{STREAM}_team-a", number)
    assert '"err_code":10026' in await make(team, f"{STREAM}_team-a", NAMESPACE_CONSUMERS_MAX)
    assert '"error"' not in await make(everybody, STREAM, 0)
