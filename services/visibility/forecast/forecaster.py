"""Expected starts of waiting jobs, from a number of simulations with durations drawn again in each.

All waiting jobs share a simulation. The first simulation of a round leaves out jobs to come: what
does not start in it does not start within the horizon, and later simulations do not go on for its
sake. A service runs one simulation at a time between the facts that it folds (`Forecaster.draw`),
so that no query waits for longer than a simulation; `forecast` runs a round at once. One that is
short of time leaves out jobs to come rather than look less far, and the answer says so. A
forecaster that learns of the real starts (`calibration`) corrects its bounds by them.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.forecast.arrivals import JobArrivals
from services.visibility.forecast.calibration import Calibration
from services.visibility.forecast.durations import Durations, History
from services.visibility.forecast.simulation import (
    Allowed,
    SchedulerRules,
    Simulation,
    SimulationBounds,
    SimulationResult,
    waiting,
)
from shared.api import time as times
from shared.api.visibility import ExpectedStart
from shared.model.durations import text

DRAWS: Final = 24
LATEST: Final = 0.9
"""The part of the draws that start a job by `ExpectedStart.latest`."""
_DAY_S: Final = 86_400.0
_HOUR_MIN: Final = 60
_NO_DURATIONS: Final = (
    "no similar job has ended here, and the jobs before it do not state how long they run"
)
_MINUTES_ALONE: Final = 10
"""From this number of minutes on, seconds are left out."""
_BOUNDS: Final = SimulationBounds()
_NO_ARRIVALS: Final = JobArrivals()


class Estimate(NamedTuple):
    """Quantiles of a job's start in Unix seconds; infinity where it does not start."""

    median: float
    latest: float


class _Draw(NamedTuple):
    """A job in one simulation: when it starts, in Unix seconds, and how long it waits at least."""

    start: float
    """Infinity where the simulation ended before."""
    least_s: float
    arrivals_end_s: float
    """Seconds after which no more arrivals were simulated; infinity if it had started by then."""
    pods: int
    """Pods that it had."""
    uninformed: bool = False
    """Whether most ends before its start were of jobs of which no duration is known."""


class Forecaster:
    """Keeps the latest draws of each waiting job."""

    def __init__(
        self,
        rules: SchedulerRules,
        history: History,
        *,
        arrivals: JobArrivals = _NO_ARRIVALS,
        draws: int = DRAWS,
        bounds: SimulationBounds = _BOUNDS,
        seed: int = 0,
    ) -> None:
        self.rules = rules
        """They may be others from simulation to simulation."""
        self._history = history
        self._arrivals = arrivals
        self._draws = draws
        self._bounds = bounds
        self._seed = seed
        self._runs = 0
        self.calibration = Calibration(LATEST)
        self._drawn_at = 0.0
        self._draws_of: dict[str, deque[_Draw]] = {}
        self._never: set[str] = set()
        """Jobs that do not start although everything that runs has ended."""
        self._limits: object = None
        """The nodes and queues of the last draw: with others a new round begins."""
        self._why: dict[str, str] = {}
        self._unforeseen: dict[str, str] = {}
        """Jobs that wait for what others do, at an unknown time → what that is, as text."""
        self._basis = ""

    def draw(
        self,
        cluster_state: ClusterState,
        *,
        now: float,
        targets: Collection[str] | None = None,
        out_of_time: Callable[[], bool] = lambda: False,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run one simulation for these jobs, or all that wait; the cluster state is as before then.

        A simulation that is `out_of_time` ends early: jobs that have not started by then are known
        to start later. One that has not passed its first moment by then says nothing of any job.
        One that is `hurried` continues without jobs to come. The first simulation of a round is
        followed by another one, if it has not taken the time of both.
        """
        keys = waiting(cluster_state) if targets is None else sorted(targets)
        allowed, skipped = Allowed(out_of_time, hurried), False
        if (limits := _limits(cluster_state)) != self._limits:
            self._limits, self._runs = limits, 0
        if self._runs % (self._draws + 1) == 0:
            self._look_ahead(cluster_state, keys, now, allowed)
            skipped = hurried()
        pods = _pods(cluster_state, keys)
        self._unforeseen = dict(_unforeseen(cluster_state, keys))
        self._draws_of = {key: self._still_valid(key, now, pods[key]) for key in keys}
        if skipped:
            return
        hoping = [key for key in keys if key not in self._never | self._unforeseen.keys()]
        outcome = self._simulate(cluster_state, hoping, now, self._arrivals, allowed)
        self._never |= outcome.never
        bases = sorted(outcome.bases.items(), key=lambda found: (-found[1], found[0]))
        self._basis = ", ".join(basis.value for basis, _ in bases)
        if outcome.stopped_by and not outcome.simulated_s:
            return
        for key in hoping:
            start = outcome.starts.get(key, math.inf)
            found = self._draws_of[key]
            least_s = min(start - now, outcome.simulated_s)
            whole = least_s <= outcome.arrivals_end_s
            ends_s = math.inf if whole else outcome.arrivals_end_s
            uninformed = key in outcome.uninformed
            found.append(_Draw(start, least_s, ends_s, pods[key], uninformed))
            if len(found) == self._draws:
                self.calibration.promised(key, now, _quantile(_starts(found), LATEST))
        self._drawn_at = now
        self._why = {key: self._why.get(key, "") for key in keys} | outcome.stopped_by

    def _still_valid(self, key: str, now: float, pods: int) -> deque[_Draw]:
        """Return the draws of a job that waits at `now`: none that let it start before.

        Of a job that has other pods by now, no earlier draw counts: without pods their volumes and
        selectors were unknown.
        """
        found = self._draws_of.get(key, ())
        valid = (draw for draw in found if draw.start >= now and draw.pods == pods)
        return deque(valid, maxlen=self._draws)

    def _look_ahead(
        self,
        cluster_state: ClusterState,
        keys: Collection[str],
        now: float,
        allowed: Allowed,
    ) -> None:
        """Find the jobs that never start, however long the simulation."""
        first = self._simulate(cluster_state, keys, now, _NO_ARRIVALS, allowed)
        self._never = set(first.stopped_by) if first.settled else set(first.never)
        self._why = dict(first.stopped_by)

    def _simulate(
        self,
        cluster_state: ClusterState,
        keys: Collection[str],
        now: float,
        arrivals: JobArrivals,
        allowed: Allowed,
    ) -> SimulationResult:
        uniform = np.random.default_rng((self._seed, self._runs)).random
        self._runs += 1
        simulation = Simulation(
            cluster_state,
            self.rules,
            Durations(self._history),
            now=now,
            uniform=uniform,
            arrivals=arrivals,
            bounds=self._bounds,
        )
        return simulation.run(keys, allowed)

    def estimate(self, key: str) -> Estimate | None:
        """Return the quantiles of a job's start, None before the first draw that it was in."""
        starts = _starts(self._draws_of.get(key, ()))
        if not starts:
            return None
        median, latest = _quantile(starts, 0.5), _quantile(starts, LATEST)
        return Estimate(median, self.calibration.stretched(self._drawn_at, median, latest))

    def expected(self, key: str) -> ExpectedStart | None:
        """Return the expected start of a job, None before its first simulation."""
        if key in self._unforeseen:
            return ExpectedStart(unknown=self._unforeseen[key])
        why = self._why.get(key, "")
        if key in self._never:
            reason = _joined("never with the nodes and queues that there are", why)
            return ExpectedStart(unknown=reason, never=True)
        found = self.estimate(key)
        if found is None:
            return None
        draws = self._draws_of[key]
        if 2 * sum(draw.uninformed for draw in draws) > len(draws):
            return ExpectedStart(unknown=_joined(_NO_DURATIONS, why), basis=self._basis)
        least_s = sorted(draw.least_s for draw in draws)
        unknown = ""
        if found.median == math.inf:
            unknown = _joined(f"not within {_span(_quantile(least_s, 0.5))}", why)
        elif found.latest == math.inf:
            later = f"perhaps later than {_span(_quantile(least_s, LATEST))}"
            unknown = _joined(later, why)
        return ExpectedStart(
            median=_shown(found.median),
            latest=_shown(found.latest),
            basis=self._basis + self._arrivals_note(key),
            unknown=unknown,
        )

    def _arrivals_note(self, key: str) -> str:
        """Return as text which future jobs most of a job's draws leave out."""
        arrivals_end_s = _quantile(sorted(draw.arrivals_end_s for draw in self._draws_of[key]), 0.5)
        if arrivals_end_s == math.inf:
            return ""
        return f"; without jobs that come after {_span(arrivals_end_s)}"


def forecast(
    cluster_state: ClusterState,
    rules: SchedulerRules,
    history: History,
    *,
    now: float,
    targets: Collection[str] | None = None,
    arrivals: JobArrivals = _NO_ARRIVALS,
    draws: int = DRAWS,
    bounds: SimulationBounds = _BOUNDS,
    seed: int = 0,
) -> Mapping[str, ExpectedStart]:
    """Return when jobs will start: these, or all that wait; the cluster state is as before then.

    `now` is Unix seconds. The same arguments give the same results.
    """
    keys = waiting(cluster_state) if targets is None else sorted(targets)
    forecaster = Forecaster(
        rules, history, arrivals=arrivals, draws=draws, bounds=bounds, seed=seed
    )
    for _ in range(draws):
        forecaster.draw(cluster_state, now=now, targets=keys)
    found = ((key, forecaster.expected(key)) for key in keys)
    return {key: expected for key, expected in found if expected is not None}


def _limits(cluster_state: ClusterState) -> object:
    """Return what the nodes have and the queues may have, as a value to compare."""
    nodes, queues = cluster_state.nodes, cluster_state.jobs.queues
    limits = [(name, queue.is_open, dict(queue.capability)) for name, queue in queues.items()]
    return nodes.ledger.allocatable.tobytes(), nodes.attributes.unschedulable().tobytes(), limits


def _pods(cluster_state: ClusterState, keys: Iterable[str]) -> Mapping[str, int]:
    jobs = {key: cluster_state.jobs.get(key) for key in keys}
    return {key: job.task_count if job else 0 for key, job in jobs.items()}


def _unforeseen(cluster_state: ClusterState, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield admitted jobs that lack pods, and jobs of which a bind was refused last time.

    When their owners create the pods, and when a bind succeeds, is not known here.
    """
    for key in keys:
        job = cluster_state.jobs.get(key)
        if job is None or job.is_pending:
            continue
        if job.task_count < job.min_available:
            missing, needed = job.min_available - job.task_count, job.min_available
            pods = f"{missing} of {needed} pods are" if needed > 1 else "its pod is"
            yield key, f"{pods} not there yet"
        elif refused := cluster_state.refusals.binds_of(job):
            yield key, f"pod {job.tasks[refused[0].uid].name}: {refused[0].refusal}"


def _starts(draws: Iterable[_Draw]) -> list[float]:
    return sorted(draw.start for draw in draws)


def _quantile(ordered: list[float], part: float) -> float:
    """Return the least of the draws that the next one stays below with this probability."""
    at = math.ceil(part * (len(ordered) + 1)) - 1
    return ordered[min(at, len(ordered) - 1)]


def _shown(at: float) -> str | None:
    return times.format_seconds(math.ceil(at)) if at < math.inf else None


def _joined(words: str, why: str) -> str:
    return f"{words}: {why}" if why else words


def _span(seconds: float) -> str:
    """Return a duration in at most two units: `6m50s`, `18m`, `2h49m`, `7 days`."""
    days, minutes = seconds / _DAY_S, int(seconds // 60)
    if days >= 1:
        return f"{days:.3g} days"
    if minutes >= _HOUR_MIN:
        return f"{minutes // _HOUR_MIN}h{minutes % _HOUR_MIN}m"
    return f"{minutes}m" if minutes >= _MINUTES_ALONE else text(int(seconds))
