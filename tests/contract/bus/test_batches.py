"""A leader's publishes that come together go as one batch: all rules of single publishes hold."""

import asyncio

import pytest

from shared.bus.api import StreamReply
from shared.bus.errors import NoReply, SequenceInFlight, TooLarge, WrongSequence
from shared.bus.publisher import is_fenced
from shared.bus.replies import Outgoing
from shared.bus.sender import LAST, LAST_OF, MSG_ID, StreamSender
from shared.bus.streams import config_of
from shared.bus.values import FencingToken
from shared.runtime.errors import Rejected
from tests.support.wait import until

BATCH = "Nats-Batch-Id"


async def leads(bus, stream: str, mark: str) -> FencingToken:
    ack = await bus.publisher(stream).publish(mark, b"it")
    return FencingToken(stream=stream, subject=mark, sequence=ack.sequence)


@pytest.fixture(autouse=True)
async def batches(bus, declared) -> None:
    """Let the stream of facts take batches, as if it had copies."""
    config = (await bus._api.stream(declared.state.name)).config
    about = f"STREAM.UPDATE.{declared.state.name}"
    changed = {**config, "allow_atomic": True}
    assert isinstance(await bus._api.call(about, changed, StreamReply, about=about), StreamReply)


@pytest.fixture
async def token(bus, declared, subjects) -> FencingToken:
    return await leads(bus, declared.state.name, subjects.leader("state"))


@pytest.fixture
def sender(bus, declared) -> StreamSender:
    """Send to the stream of facts, without any choice of what goes together."""
    return StreamSender(declared.state.name, bus._replies, on_missing=lambda: None)


def fact(subjects, name: str, **headers: str) -> Outgoing:
    return Outgoing(subjects.state("pods", f"ns/{name}"), name.encode(), headers, False)


async def test_what_a_leader_publishes_at_once_is_stored_in_order(bus, declared, subjects, token):
    publisher = bus.publisher(declared.state.name)
    sent = [
        await publisher.submit(
            subjects.state("pods", f"ns/{number % 7}"), b"%d" % number, fence=token
        )
        for number in range(600)
    ]
    first = token.sequence + 1
    assert [(await answer).sequence for answer in sent] == list(range(first, first + 600))
    last = await bus.last(declared.state.name, subjects.state("pods", "ns/4"))
    assert last.payload == b"599"
    assert BATCH in last.headers


async def test_readers_see_a_batch_as_single_messages_with_the_leaders_right(
    bus, declared, subjects, token
):
    publisher = bus.publisher(declared.state.name)
    sent = [
        await publisher.submit(subjects.state("pods", f"ns/{number}"), b"x", fence=token)
        for number in range(20)
    ]
    for answer in sent:
        await answer
    of_pods = [subjects.state("pods", f"ns/{number}") for number in range(20)]
    stored = await bus.snapshot(declared.state.name, of_pods)
    assert [message.subject for message in stored] == of_pods
    assert all(is_fenced(message, [token.subject]) for message in stored)


async def test_nothing_of_an_older_leader_is_stored_however_much_comes_at_once(
    bus, declared, subjects, token
):
    publisher = bus.publisher(declared.state.name)
    await leads(bus, declared.state.name, subjects.leader("state"))
    sent = [
        await publisher.submit(subjects.state("pods", f"ns/{number}"), b"x", fence=token)
        for number in range(50)
    ]
    refused = await asyncio.gather(*sent, return_exceptions=True)
    assert {type(error) for error in refused} == {WrongSequence}
    assert await bus.last(declared.state.name, subjects.state("pods", "ns/0")) is None


async def test_two_leaders_of_one_process_are_told_apart(bus, declared, subjects, token):
    publisher = bus.publisher(declared.state.name)
    new = await leads(bus, declared.state.name, subjects.leader("state"))
    sent = [
        await publisher.submit(subjects.state("pods", f"ns/{number}"), b"x", fence=fence)
        for number, fence in enumerate([token] * 10 + [new] * 10)
    ]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert [isinstance(answer, WrongSequence) for answer in answers] == [True] * 10 + [False] * 10


async def test_one_message_that_was_stored_before_keeps_no_other_from_being_stored(
    bus, declared, subjects, token
):
    publisher = bus.publisher(declared.state.name)

    async def submit(number: int):
        subject = subjects.state("pods", f"ns/{number}")
        return await publisher.submit(subject, b"x", fence=token, msg_id=f"m{number}")

    before = await (await submit(4))
    answers = [await answer for answer in [await submit(number) for number in range(10)]]
    assert [answer.duplicate for answer in answers] == [number == 4 for number in range(10)]
    assert answers[4].sequence == before.sequence
    assert (await bus.info(declared.state.name)).messages == 11


async def test_a_message_that_is_too_large_is_refused_alone(bus, declared, subjects, token):
    publisher = bus.publisher(declared.state.name)
    small = await publisher.submit(subjects.state("pods", "ns/a"), b"x", fence=token)
    with pytest.raises(TooLarge):
        await publisher.submit(subjects.state("pods", "ns/b"), b"x" * 1024 * 1024, fence=token)
    assert (await small).sequence > token.sequence


async def test_a_caller_who_was_cancelled_holds_up_no_other(bus, declared, subjects, token):
    publisher = bus.publisher(declared.state.name)

    async def publish(name: str) -> None:
        await publisher.publish(subjects.state("pods", f"ns/{name}"), b"x", fence=token)

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            task = tasks.create_task(publish(str(number)), name=str(number))
            if number % 2:
                await asyncio.sleep(0)
                task.cancel()
    await publish("last")
    assert await bus.last(declared.state.name, subjects.state("pods", "ns/last")) is not None


async def test_a_stream_that_takes_no_batches_is_published_to_message_by_message(
    bus, declared, subjects
):
    fence = await leads(bus, declared.command.name, subjects.leader("command"))
    publisher = bus.publisher(declared.command.name)
    for _ in range(2):  # the way is not known at first
        sent = [
            await publisher.submit(subjects.command(0), b"%d" % number, fence=fence)
            for number in range(50)
        ]
        sequences = [(await answer).sequence for answer in sent]
        assert sequences == sorted(sequences)
    assert config_of(declared.command)["allow_atomic"] is False


async def test_a_batch_is_stored_whole(bus, subjects, sender):
    acks = await sender.send_batch("b", [fact(subjects, "a"), fact(subjects, "b")])
    assert [ack.sequence for ack in acks] == [1, 2]
    assert (await bus.info(sender.stream)).messages == 2


async def test_a_batch_with_a_gap_is_refused(bus, subjects, sender):
    first, last = fact(subjects, "a"), fact(subjects, "b")
    first.headers = {BATCH: "gap", "Nats-Batch-Sequence": "1"}
    await bus._replies.send(first)
    place = {BATCH: "gap", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    message = Outgoing(last.subject, last.payload, place, False)
    with pytest.raises(Rejected, match="incomplete"):
        await (await sender.send(message, timeout_s=2.0))
    assert (await bus.info(sender.stream)).messages == 0


async def test_a_batch_that_begins_with_its_second_message_is_refused(bus, subjects, sender):
    place = {BATCH: "late", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    with pytest.raises(Rejected, match="incomplete"):
        await (await sender.send(fact(subjects, "a", **place), timeout_s=2.0))


async def test_a_batch_is_refused_for_one_message_that_was_stored_before(bus, subjects, sender):
    await sender.send_batch("b", [fact(subjects, "a", **{MSG_ID: "1"}), fact(subjects, "b")])
    again = [fact(subjects, "c"), fact(subjects, "a", **{MSG_ID: "1"})]
    with pytest.raises(Rejected, match="duplicate"):
        await sender.send_batch("c", again)
    assert (await bus.info(sender.stream)).messages == 2


async def test_a_batch_with_the_same_id_twice_is_refused(bus, subjects, sender):
    twice = [fact(subjects, "a", **{MSG_ID: "1"}), fact(subjects, "b", **{MSG_ID: "1"})]
    with pytest.raises(Rejected, match="duplicate"):
        await sender.send_batch("b", twice)
    assert (await bus.info(sender.stream)).messages == 0


async def test_no_condition_holds_on_a_subject_that_its_batch_writes(bus, subjects, sender):
    first = fact(subjects, "a")
    second = fact(subjects, "b", **{LAST: "0", LAST_OF: first.subject})
    with pytest.raises(SequenceInFlight):
        await sender.send_batch("b", [first, second])
    assert (await bus.info(sender.stream)).messages == 0


async def test_a_batch_is_refused_for_one_condition_that_does_not_hold(bus, subjects, sender):
    wrong = fact(subjects, "b", **{LAST: "7", LAST_OF: subjects.leader("state")})
    with pytest.raises(WrongSequence):
        await sender.send_batch("b", [fact(subjects, "a"), wrong])
    assert (await bus.info(sender.stream)).messages == 0


async def test_a_batch_to_a_stream_that_takes_none_is_refused(bus, declared, subjects):
    sender = StreamSender(declared.command.name, bus._replies, on_missing=lambda: None)
    messages = [Outgoing(subjects.command(0), b"x", {}, False) for _ in range(2)]
    with pytest.raises(Rejected, match="disabled"):
        await sender.send_batch("b", messages)
    assert sender.stale


async def test_more_batches_under_way_than_the_server_keeps_are_refused(bus, subjects, sender):
    """The first message of one too many is dropped, which shows with its last."""
    for number in range(50):
        begun = fact(subjects, "a", **{BATCH: f"b{number}", "Nats-Batch-Sequence": "1"})
        await bus._replies.send(begun)
    with pytest.raises(Rejected, match="incomplete"):
        await sender.send_batch("one more", [fact(subjects, "a"), fact(subjects, "b")])


async def test_a_batch_without_a_connection_has_no_answer(bus, subjects, sender, server):
    async def is_lost() -> bool:
        try:
            await sender.send_batch("b", [fact(subjects, "a"), fact(subjects, "b")])
        except NoReply:
            return True
        return False

    await server.stop()
    await until(is_lost, describe="a batch has no answer")
