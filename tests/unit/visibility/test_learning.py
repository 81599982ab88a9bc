"""How the events of a week are taken in at the start: in short turns of the mirror's thread."""

import asyncio

from pumice.events.envelope import encode
from pumice.events.types import JobPhaseChanged
from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure
from services.visibility.adapters.forecasting import LEARN_S, Forecasting
from services.visibility.forecast.durations import HistoricJob
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.survey import DecisionPolicy
from shared.bus.pace import Activity
from shared.bus.values import Message
from shared.contracts.subjects import Subjects
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test

EVENTS = 20_000
ACTIVE_S = 600.0
LOOK_S = 0.01
"""What passes between two looks at the clock."""


class TickingClock(VirtualClock):
    """Goes on by a little with each look at it."""

    def monotonic(self):
        self._time += LOOK_S
        return self._time


class StoredEvents:
    """A bus with the ends of many jobs, for one look."""

    is_read = False

    def stored(self, stream, subjects, *, start):
        return self

    async def new(self):
        if self.is_read:
            return
        self.is_read = True
        ended = JobPhaseChanged(
            job="ns/a", uid="u", phase="Completed", previous="Running", seconds_running=60.0
        )
        yield [
            Message(
                subject="s",
                sequence=at,
                payload=encode(ended, id=str(at), time=0.0, source="controller"),
                time=0.0,
            )
            for at in range(EVENTS)
        ]


class Thread:
    """The mirror's thread, which notes how long each turn took."""

    def __init__(self, clock):
        self._clock = clock
        self._mirror = ClusterMirror()
        self.turns_s = []

    async def peek(self, work):
        begun = self._clock._time
        work(self._mirror)
        self.turns_s.append(self._clock._time - begun)


def forecasting(thread, clock):
    return Forecasting(
        thread,
        lambda: DecisionPolicy(config=configure(DEFAULT_TEXT)),
        bus=StoredEvents(),
        stream="EVENTS",
        subjects=Subjects(cluster="local"),
        scheduler_name="volcano",
        activity=Activity(clock, active_s=ACTIVE_S),
        env=env_of_a_test(clock=clock),
    )


async def test_stored_events_are_learnt_in_short_turns_and_all_of_them():
    clock = TickingClock()
    thread = Thread(clock)
    forecasts = forecasting(thread, clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(forecasts.run(), name="forecasts")
        await clock.advance(0.0)
        assert len(forecasts._gathered) == EVENTS
        await clock.advance(300.0)
        running.cancel()

    assert not forecasts._gathered
    assert forecasts._history.knows(HistoricJob("ns", "", "any"))
    assert len(thread.turns_s) > EVENTS * LOOK_S / LEARN_S / 64
    assert max(thread.turns_s) <= LEARN_S + 2 * LOOK_S


async def test_nothing_is_simulated_while_nobody_asks_and_the_first_answer_waits_for_it():
    clock = VirtualClock()
    thread = Thread(clock)
    forecasts = forecasting(thread, clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(forecasts.run(), name="forecasts")
        await clock.advance(2 * ACTIVE_S)
        looks = len(thread.turns_s)
        await clock.advance(10 * ACTIVE_S)
        assert len(thread.turns_s) == looks

        forecasts._activity.note()
        answer = tasks.create_task(forecasts.current(), name="an answer")
        await clock.advance(0.0)
        assert answer.done()
        assert len(thread.turns_s) == looks + 1
        running.cancel()
