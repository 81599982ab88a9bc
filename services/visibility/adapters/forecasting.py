"""Forecasts of starts: learns from the events, and simulates between the queries; a part.

A simulation takes the mirror's thread, as queries do: it ends after `SIMULATION_S`, and hurries
once it has used half as much CPU; the thread rests from simulations for several times as long as
each took. Events are gathered here and taken in there, so that nothing is read and changed at once.
The events of a week, which come at the start, are taken in between the queries: each turn ends
after `LEARN_S`, and the thread then rests as long. Without queries nothing is simulated; the
first query after such a pause waits for a simulation.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final

from pumice.events import CloudEvent, GangAdmitted, GangPlaced, JobPhaseChanged
from pumice.events.envelope import decode_any
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.adapters.mirror_owner import MirrorOwner
from services.visibility.adapters.recent_events import RecentEvents
from services.visibility.forecast.arrivals import JobArrivals
from services.visibility.forecast.durations import History
from services.visibility.forecast.ends import Ends
from services.visibility.forecast.forecaster import DRAWS, Forecaster
from services.visibility.forecast.simulation import SchedulerRules, waiting
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.survey import DecisionPolicy
from shared.api.visibility import ExpectedStart
from shared.bus.nats import NatsBus
from shared.bus.pace import Activity, Pace
from shared.bus.values import FromSequence
from shared.contracts.subjects import Subjects
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.tasks import TaskGroup, sleep_or_event

EVERY_S: Final = 2.0
SIMULATION_S: Final = 1.0
"""Questions wait for so long at most, and for one moment of a simulation."""
WHAT_IF_S: Final = 2.0
"""The draws for one what-if take so long at most."""
FIRST_S: Final = 1.0
"""Longest wait of the first query after a pause for a simulation, in seconds."""
REST: Final = 4.0
"""Simulations take a fifth of the mirror's thread at most."""
LEARN_S: Final = 0.05
_TOGETHER: Final = 64
"""Number of events that are processed between two checks of the time."""
_GATHERED_MAX: Final = 100_000
_STAGE: Final = "play"
_LEARNING: Final = "learn"
_SEEN: Final = 16_384
_READ: Final = (JobPhaseChanged, GangAdmitted, GangPlaced)
_FIRST: Final = FromSequence(1)


class Forecasting:
    """Keeps the expected starts of the jobs that wait."""

    name: Final = "forecasts"

    def __init__(
        self,
        owner: MirrorOwner,
        policy: Callable[[], DecisionPolicy],
        *,
        bus: NatsBus,
        stream: str,
        subjects: Subjects,
        scheduler_name: str,
        activity: Activity,
        env: Env,
    ) -> None:
        clock = env.clock
        self._owner = owner
        self._policy = policy
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._scheduler_name = scheduler_name
        self._quarantine = env.quarantine
        self._clock = clock
        self._gathered: deque[bytes] = deque(maxlen=_GATHERED_MAX)
        self._activity = activity
        self._pace = Pace(clock, lag_s=EVERY_S, activity=activity)
        self._seen = RecentEvents(_SEEN)
        self._history = History()
        self._ends = Ends(self._history, clock.now)
        self._arrivals = JobArrivals()
        self._forecaster = Forecaster(self._rules(), self._history, arrivals=self._arrivals)
        self._epoch = -1
        self._expected: dict[str, ExpectedStart] = {}
        self._requested = asyncio.Event()
        """Set when a query waits for a simulation."""
        self._simulated = asyncio.Event()
        self._simulated_at = float("-inf")
        """Monotonic seconds at which the last simulation began."""

    async def current(self) -> None:
        """Return when the expected starts are those of now; after a pause this takes a moment."""
        if self._simulated_at >= self._activity.resumed_at:
            return
        self._simulated.clear()
        self._requested.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._simulated.wait()

    def expected(self, key: str) -> ExpectedStart | None:
        """Return when a PodGroup is expected to start, None while nothing is known of it."""
        return self._expected.get(key)

    async def run(self) -> None:
        """Learn and simulate until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._follow_events(), name="forecast-events")
            tasks.create_task(self._learn_forever(), name="forecast-lessons")
            tasks.create_task(self._simulate_forever(), name="forecast-plays")

    async def _follow_events(self) -> None:
        of_types = [self._subjects.events_about(each.topic) for each in _READ]
        stored = self._bus.stored(self._stream, of_types, start=_FIRST)
        while True:
            async with aclosing(stored.new()) as items:
                async for item in items:
                    if isinstance(item, list):
                        self._gathered += (each.payload for each in item)
            await self._pace.next_look()

    async def _simulate_forever(self) -> None:
        while True:
            if not self._activity.is_active:
                self._expected = {}
                await self._activity.wait()
            self._requested.clear()
            begun = self._clock.monotonic()
            await self._isolated(self._simulate, _STAGE)
            self._simulated_at = begun
            self._simulated.set()
            took_s = self._clock.monotonic() - begun
            await sleep_or_event(self._clock, max(EVERY_S, REST * took_s), self._requested)

    async def _learn_forever(self) -> None:
        while True:
            await self._clock.sleep(LEARN_S if self._gathered else EVERY_S)
            if self._gathered:
                await self._isolated(self._learn, _LEARNING)

    async def _isolated(self, work: Callable[[ClusterMirror], None], stage: str) -> None:
        """Do `work` in the mirror's thread; what was expected is void when it fails."""
        with self._quarantine.isolate("forecasts", self._scheduler_name, stage=stage) as isolated:
            try:
                await self._owner.peek(work)
            except Retryable:
                self._expected = {}
        if isolated.error is not None:
            self._expected = {}

    # --- in the mirror's thread --------------------------------------------------------------

    def _simulate(self, mirror: ClusterMirror) -> None:
        """Run one simulation, and update the expected starts."""
        policy, now = self._policy(), self._clock.now()
        if mirror.epoch != self._epoch:
            self._epoch = mirror.epoch
            self._arrivals.reset()
        mirror.review(policy.config, now=now)
        self._arrivals.review(mirror.state, now)
        keys = waiting(mirror.state)
        if keys:
            self._forecaster.rules = self._rules()
            ends = self._clock.monotonic() + SIMULATION_S
            self._draw(self._forecaster, mirror.state, keys, now, ends=ends)
        found = ((key, self._forecaster.expected(key)) for key in keys)
        self._expected = {key: expected for key, expected in found if expected is not None}

    def end_of(self, job: Job) -> float | None:
        """Return when a running job is expected to end, in Unix seconds; None if not known."""
        return self._ends.of(job)

    def forecast_for(
        self, state: ClusterState, keys: Collection[str], now: float
    ) -> Mapping[str, ExpectedStart]:
        """Return when PodGroups of an imagined cluster state would start, from a few draws.

        One is missing where not even the first draw ends in time.
        """
        ends = self._clock.monotonic() + WHAT_IF_S
        forecaster = Forecaster(self._rules(), self._history, arrivals=self._arrivals)
        for _ in range(DRAWS):
            self._draw(forecaster, state, keys, now, ends=ends)
            if self._clock.monotonic() >= ends:
                break
        found = ((key, forecaster.expected(key)) for key in keys)
        return {key: expected for key, expected in found if expected is not None}

    def _draw(
        self,
        forecaster: Forecaster,
        state: ClusterState,
        keys: Collection[str],
        now: float,
        *,
        ends: float,
    ) -> None:
        """Run a simulation until a time of the clock; half of it is for jobs to come as well.

        The half is one of CPU time: processors that are busy with something else make no
        simulation coarser.
        """
        clock = self._clock.monotonic
        hurried = time.thread_time() + (ends - clock()) / 2.0
        forecaster.draw(
            state,
            now=now,
            targets=keys,
            out_of_time=lambda: clock() >= ends,
            hurried=lambda: time.thread_time() >= hurried,
        )

    def _rules(self) -> SchedulerRules:
        policy = self._policy()
        return SchedulerRules(
            policy.config, policy.plugins, self._scheduler_name, sharding=policy.sharding
        )

    def _learn(self, _mirror: ClusterMirror) -> None:
        """Take in what was gathered, for `LEARN_S` at most."""
        ends = self._clock.monotonic() + LEARN_S
        while self._gathered and self._clock.monotonic() < ends:
            for _event in range(min(_TOGETHER, len(self._gathered))):
                self._handle(decode_any(self._gathered.popleft()))

    def _handle(self, event: CloudEvent) -> None:
        if not self._seen.is_new(event):
            return
        match event.data:
            case JobPhaseChanged():
                self._history.learn(event.data)
            case GangAdmitted():
                self._arrivals.learn(event.data)
            case GangPlaced(gang=key):
                self._forecaster.calibration.started(key, event.time.timestamp())
            case _:
                pass
