"""The public client on a real server, and real messages against the published schemas."""

import argparse
import asyncio
import contextlib
import io
import json
import time
from contextlib import aclosing
from pathlib import Path

import pytest
import yaml

from pumice.cli import events as cli
from pumice.events import (
    CATALOGUE,
    NotAllowed,
    PodBound,
    PodEvicted,
    PositionGone,
    Since,
    Start,
    Unknown,
    Unreachable,
    subscribe,
)
from pumice.local import state
from tests.contract.events.publishing import EVENTS, SOURCE
from tests.contract.events.schema import problems
from tests.support.wait import until

ASYNCAPI = Path(__file__).parents[3] / "docs" / "events" / "asyncapi.yaml"


async def stored(events):
    return [received async for received in events]


async def test_everything_that_is_kept_can_be_read_in_order(publisher, listen):
    await publisher.all()
    got = await stored(listen(follow=False))
    assert [r.event.data for r in got] == list(EVENTS)
    assert [r.sequence for r in got] == list(range(1, len(EVENTS) + 1))
    assert {r.event.source for r in got} == {SOURCE}


async def test_an_empty_stream_ends_at_once_without_follow(publisher, listen):
    assert await stored(listen(follow=False)) == []


async def test_real_messages_keep_to_the_published_schemas(publisher, as_user):
    await publisher.all()
    document = yaml.safe_load(ASYNCAPI.read_text())
    messages = {m["name"]: m for m in document["components"]["messages"].values()}
    reader = await as_user("events")
    seen = set()
    for sequence in range(1, len(EVENTS) + 1):
        message = await reader.get(publisher.spec.name, sequence)
        wire = json.loads(message.payload)
        schema = messages[wire["type"]]["payload"]
        assert list(problems(wire, schema, document["components"]["schemas"])) == []
        address = document["channels"][wire["type"].split(".", 2)[2].replace(".", "-")]["address"]
        assert len(message.subject.split(".")) == len(address.split("."))
        seen.add(wire["type"])
    assert seen == set(messages)
    assert len(seen) == len(CATALOGUE)


async def test_types_and_namespaces_select(publisher, listen):
    await publisher.all()
    pods = await stored(listen(follow=False, types=[PodBound, PodEvicted]))
    assert [r.event.data.key for r in pods] == ["ns/a-0", "other/c-0"]
    other = await stored(listen(follow=False, namespace="other"))
    assert [r.event.data.key for r in other] == ["other/c-0"]


async def test_reading_goes_on_behind_the_last_event_seen(publisher, listen):
    await publisher.all()
    got = await stored(listen(follow=False, start=Start(6)))
    assert [r.sequence for r in got] == list(range(6, len(EVENTS) + 1))


async def test_reading_starts_at_a_time(publisher, listen):
    await publisher.all()
    await asyncio.sleep(0.05)
    between = time.time()
    await asyncio.sleep(0.05)
    await publisher.publish(EVENTS[0])
    got = await stored(listen(follow=False, start=Since(between)))
    assert [r.sequence for r in got] == [len(EVENTS) + 1]


async def test_a_position_that_is_no_longer_kept_is_named_with_the_oldest(
    publisher, resized, listen
):
    await resized(2000)
    for _ in range(3):
        await publisher.all()
    with pytest.raises(PositionGone, match="event 2: no longer kept; the oldest event is") as gone:
        await stored(listen(follow=False, start=Start(2)))
    assert gone.value.oldest > 2
    got = await stored(listen(follow=False, start=Start(gone.value.oldest)))
    assert got[0].sequence == gone.value.oldest
    with pytest.raises(PositionGone, match="events since 2001-"):
        await stored(listen(follow=False, start=Since(1_000_000_000.0)))


async def test_a_position_beyond_the_last_is_refused(publisher, listen):
    await publisher.all()
    with pytest.raises(PositionGone, match=f"event 99 is not there yet: the last is {len(EVENTS)}"):
        await stored(listen(follow=False, start=Start(99)))


class Following:
    """Follows in a task."""

    def __init__(self, events):
        self.got = []
        self.task = asyncio.create_task(self._read(events))

    async def _read(self, events):
        async with aclosing(events) as stream:
            async for received in stream:
                self.got.append(received)

    async def end(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def test_a_follower_sees_what_comes_over_restarts_of_the_server(
    publisher, listen, nats_server
):
    await publisher.publish(EVENTS[0])
    following = Following(listen(start=Start(1)))
    await until(lambda: len(following.got) == 1, describe="the first event")
    for number in (2, 3):
        await nats_server.restart(kill=True)
        await publisher.bus.connected()
        await publisher.publish(EVENTS[1])
        await until(
            lambda wanted=number: len(following.got) == wanted, describe="the event", deadline_s=4
        )
    assert [r.sequence for r in following.got] == [1, 2, 3]
    await following.end()


async def test_following_without_a_start_gives_only_what_comes(publisher, listen):
    await publisher.all()
    following = Following(listen())
    await asyncio.sleep(0.3)
    await publisher.publish(EVENTS[0])
    await until(lambda: following.got, describe="the new event")
    assert [r.sequence for r in following.got] == [len(EVENTS) + 1]
    await following.end()


async def test_a_payload_that_cannot_be_read_does_not_end_the_subscription(publisher, listen):
    await publisher.publisher.publish("pumice.local.events.pod.bound.ns", b"nonsense")
    await publisher.publish(EVENTS[0])
    bad, good = await stored(listen(follow=False))
    assert isinstance(bad.event.data, Unknown)
    assert "malformed" in bad.event.data.problem
    assert good.event.data == EVENTS[0]


async def test_a_wrong_password_an_absent_stream_and_an_absent_server_are_told_apart(
    nats_server, as_user, listen
):
    with pytest.raises(NotAllowed, match="refuses user 'events'"):
        await stored(subscribe(nats_server.url, user="events", password="wrong"))
    await nats_server.declaring.stop()
    await (await as_user("admin"))._api.call(
        "STREAM.DELETE.PUMICE_local_EVENTS", None, dict, about="the stream of events"
    )
    with pytest.raises(Unreachable, match="stream PUMICE_local_EVENTS: stream not found"):
        await stored(listen(follow=False))
    with pytest.raises(Unreachable, match="cannot reach NATS at nats://127"):
        await stored(subscribe("nats://127.0.0.1:1"))


async def test_the_command_line_prints_what_concerns_a_job(publisher, nats_server):
    await publisher.all()
    parser = argparse.ArgumentParser()
    environ = {**nats_server.environ("events"), "PUMICE_NATS": nats_server.url}
    cli.add_arguments(parser, environ)
    out = io.StringIO()
    args = parser.parse_args(["--job", "ns/a", "-o", "json"])
    assert await cli.run(args, environ=environ, out=out) == 0
    subjects = [json.loads(line)["subject"] for line in out.getvalue().splitlines()]
    assert subjects == ["ns/a", "ns/a-1", "ns/a-1", "ns/a-0"]


async def test_the_command_line_says_how_to_go_on_after_a_gap(
    publisher, resized, nats_server, capsys
):
    await resized(1000)
    await publisher.all()
    parser = argparse.ArgumentParser()
    environ = {**nats_server.environ("events"), "PUMICE_NATS": nats_server.url}
    cli.add_arguments(parser, environ)
    assert await cli.run(parser.parse_args(["--seq", "1"]), environ=environ) == 1
    oldest = (await publisher.bus.info(publisher.spec.name)).first_seq
    assert f"go on with --seq {oldest}" in capsys.readouterr().err


async def test_the_command_line_finds_the_local_cluster(publisher, nats_server, tmp_path):
    await publisher.all()
    state.write(tmp_path, state.State(phase="ready", pid=1, nats=nats_server.url))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser, {})
    out = io.StringIO()
    args = parser.parse_args(["--data-dir", str(tmp_path), "--type", "queue.state"])
    assert await cli.run(args, environ={}, out=out) == 0
    assert (
        out.getvalue().rstrip().endswith("queue.state        default  state=Closed previous=Open")
    )
