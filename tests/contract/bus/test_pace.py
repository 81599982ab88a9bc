"""Reading in batches: what is read when nothing was asked, and what a question has read."""

import asyncio

from shared.bus.follower import BATCH
from shared.bus.pace import Activity, Pace
from shared.bus.values import CaughtUp, FromSequence, LastPerSubject, Reset, Started
from shared.contracts.streams import TOMBSTONE_TTL_S
from shared.runtime.clock import SystemClock
from tests.contract.bus.readers import Reader
from tests.contract.bus.test_following import fill
from tests.support.wait import until, within

NEVER_S = 1e9
ACTIVE_S = 600.0
FIRST = FromSequence(1)
LATEST = LastPerSubject()


def following(bus, stream, subjects, pace, start=FIRST):
    wanted = [subjects.everything]
    return Reader(bus.follow(stream.name, wanted, start=start, pace=pace))


async def test_facts_that_were_replaced_before_a_question_do_not_travel(bus, declared, subjects):
    pace, stream = Pace(SystemClock(), lag_s=NEVER_S), declared.state
    async with following(bus, stream, subjects, pace) as reader:
        await reader.has(1, CaughtUp)
        await fill(bus, stream.name, lambda i: subjects.state("pods", f"ns/p{i % 3}"), 30)

        await pace.caught_up()

        assert [int(p) for p in reader.payloads] == [27, 28, 29]


async def test_a_question_has_everything_read_that_was_there(bus, declared, subjects):
    pace, stream, count = Pace(SystemClock(), lag_s=NEVER_S), declared.events, BATCH + 50
    async with following(bus, stream, subjects, pace) as reader:
        await reader.has(1, CaughtUp)
        await fill(bus, stream.name, lambda i: subjects.event("t", f"ns/{i}"), count)

        await pace.caught_up()

        assert [int(p) for p in reader.payloads] == list(range(count))


async def test_all_followers_of_a_pace_have_read_when_a_question_goes_on(bus, declared, subjects):
    pace = Pace(SystemClock(), lag_s=NEVER_S)
    async with (
        following(bus, declared.state, subjects, pace) as facts,
        following(bus, declared.outcome, subjects, pace) as outcomes,
    ):
        await facts.has(1, CaughtUp)
        await outcomes.has(1, CaughtUp)
        await fill(bus, declared.state.name, lambda _: subjects.state("pods", "ns/a"), 1)
        await fill(bus, declared.outcome.name, lambda _: subjects.outcome(0), 1)

        await asyncio.gather(pace.caught_up(), pace.caught_up())

        assert (facts.payloads, outcomes.payloads) == ([b"0"], [b"0"])


async def test_after_a_question_messages_are_read_as_they_come(bus, declared, subjects):
    pace, stream = Pace(SystemClock(), lag_s=NEVER_S), declared.events
    async with following(bus, stream, subjects, pace) as reader:
        await reader.has(1, CaughtUp)
        await pace.caught_up()
        await fill(bus, stream.name, lambda i: subjects.event("t", f"ns/{i}"), 1, first=7)
        await reader.until_seen(b"7")


async def test_without_a_question_messages_are_read_once_per_lag(bus, declared, subjects):
    pace, stream = Pace(SystemClock(), lag_s=0.1), declared.events
    async with following(bus, stream, subjects, pace) as reader:
        await reader.has(1, CaughtUp)
        for first in (0, 100):
            await fill(bus, stream.name, lambda i: subjects.event("t", f"ns/{i}"), 100, first=first)
            await reader.until_seen(b"%d" % (first + 99))
        assert [int(p) for p in reader.payloads] == list(range(200))


class HeldClock(SystemClock):
    """Goes on when the test says so."""

    at = 0.0

    def monotonic(self):
        return self.at


async def test_batches_begin_again_when_nothing_was_asked_for_a_while(bus, declared, subjects):
    clock, stream = HeldClock(), declared.state
    pace = Pace(clock, lag_s=NEVER_S)
    async with following(bus, stream, subjects, pace) as reader:
        await reader.has(1, CaughtUp)
        await pace.caught_up()
        clock.at += 60.0
        # The open request is used up by these, and no other one is sent before the next question.
        await fill(bus, stream.name, lambda i: subjects.state("pods", f"ns/p{i}"), BATCH)
        await reader.until_seen(b"%d" % (BATCH - 1))
        await fill(bus, stream.name, lambda _: subjects.state("pods", "ns/a"), 50, first=1_000)

        await pace.caught_up()

        assert [int(p) for p in reader.payloads[BATCH:]] == [1_049]


async def test_a_follower_without_a_connection_is_not_waited_for():
    pace = Pace(SystemClock(), lag_s=NEVER_S)
    with pace.follower() as follower:
        follower.detach()
        async with within(10):
            await pace.caught_up()
        assert pace.is_live


async def names_of_consumers(bus, stream):
    return (await bus._api.call(f"CONSUMER.NAMES.{stream}", None, dict, about=stream))["consumers"]


async def test_the_first_question_after_a_pause_has_everything_read_though_the_consumer_is_gone(
    bus, declared, subjects
):
    clock, stream = HeldClock(), declared.state
    pace = Pace(clock, lag_s=0.1, activity=Activity(clock, active_s=ACTIVE_S))
    async with following(bus, stream, subjects, pace, LATEST) as reader:
        await reader.has(1, CaughtUp)
        clock.at += ACTIVE_S
        await until(lambda: pace.paused == 1, describe="the pause")
        await fill(bus, stream.name, lambda i: subjects.state("pods", f"ns/p{i % 3}"), 30)
        for name in await names_of_consumers(bus, stream.name):
            await bus._api.call(f"CONSUMER.DELETE.{stream.name}.{name}", None, dict, about=name)

        await pace.caught_up()

        assert [int(p) for p in reader.payloads] == [27, 28, 29]
        assert [each.resumed for each in reader.of(Started)] == [False, True]
        await fill(bus, stream.name, lambda _: subjects.state("pods", "ns/a"), 1, first=99)
        await reader.until_seen(b"99")


async def test_after_a_pause_in_which_deletions_may_be_lost_all_is_read_anew(
    bus, declared, subjects
):
    clock, stream = HeldClock(), declared.state
    bus._clock = clock
    pace = Pace(clock, lag_s=0.1, activity=Activity(clock, active_s=ACTIVE_S))
    await fill(bus, stream.name, lambda i: subjects.state("pods", f"ns/p{i}"), 3)
    async with following(bus, stream, subjects, pace, LATEST) as reader:
        await reader.has(1, CaughtUp)
        clock.at += ACTIVE_S
        await until(lambda: pace.paused == 1, describe="the pause")
        clock.at += TOMBSTONE_TTL_S
        for name in await names_of_consumers(bus, stream.name):
            await bus._api.call(f"CONSUMER.DELETE.{stream.name}.{name}", None, dict, about=name)

        await pace.caught_up()

        assert len(reader.of(Reset)) == 1
        assert [int(p) for p in reader.payloads] == [0, 1, 2, 0, 1, 2]
