"""Asks at submission when a job will start, in several ways, and compares with what came.

`forecast` knows how long jobs of the same names ran, and which ones came lately. `limits` is
Slurm's way: the engine plays on once, every job runs to its user's limit, and no other comes; the
limits are two to ten times the real duration. `mean` is the mean wait of the jobs that have waited
so far. `known` tells how much of the error is that of durations: it plays once with the real ones
of the jobs that are there, and draws those to come. A job that starts at once is not asked for.
"""

import heapq
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.forecast.traces import Trace, replay_of
from pumice.replays.engine import EPOCH
from services.scheduler.engine.jobs.records import Job
from services.visibility.forecast.arrivals import JobArrivals
from services.visibility.forecast.calibration import Calibration
from services.visibility.forecast.durations import Durations, HistoricJob, History, subject_of
from services.visibility.forecast.forecaster import LATEST, Forecaster
from services.visibility.forecast.simulation import SchedulerRules, Simulation, SimulationBounds
from shared.jobs.expected_durations import Basis, Expected

LIMIT = (2.0, 10.0)
"""The least and the most of a user's limit as a multiple of the real duration."""
WARM = 0.2
"""Of the first jobs, this part is not asked for: nothing is known yet."""
_SEED = 11


class Answer(msgspec.Struct, frozen=True):
    """One question and what came: waits in seconds from the submission."""

    job: str
    at: float
    wait: float
    median: float
    drawn: float
    """The bound as it was drawn."""
    latest: float
    """The bound as it was told, by what had come of the earlier ones."""
    mean: float
    limits: float
    known: float
    """By the real durations of all jobs that are there."""


class Score(NamedTuple):
    """How good answers are."""

    asked: int
    drawn: float
    """Part of the jobs that started by the bound as it was drawn."""
    covered: float
    """Part of the jobs that started by the bound as it was told."""
    forecast: float
    """Median of |answer - wait| / wait."""
    mean: float
    limits: float
    known: float


def waiting_jobs(trace: Trace, most: int) -> tuple[list[str], dict[str, float]]:
    """Return up to `most` jobs that wait, spread over the trace, and all waits.

    Two of them are submitted at least a mean gap between arrivals apart: the jobs of a burst wait
    for the same ends, and would count as one question asked many times.
    """
    replay = replay_of(trace)
    replay.run()
    gap_s, last = trace.jobs[-1].at / len(trace.jobs), -math.inf
    late = []
    for job in trace.jobs[int(WARM * len(trace.jobs)) :]:
        if replay.waits.get(f"ns/{job.name}", 0.0) > 0.0 and job.at - last >= gap_s:
            late.append(f"ns/{job.name}")
            last = job.at
    step = max(1.0, len(late) / most)
    return [late[int(number * step)] for number in range(min(most, len(late)))], replay.waits


class Asker:
    """Asks about jobs while a trace is replayed."""

    def __init__(self, trace: Trace, *, draws: int, bounds: SimulationBounds) -> None:
        self._replay = replay_of(trace)
        self._history = History()
        self._believing = History()
        """Without ratios: what is stated is believed to the second."""
        self._subjects: dict[str, HistoricJob] = {}
        self._arrivals = JobArrivals()
        self._draws = draws
        self._bounds = bounds
        self._learnt = 0
        limits = np.random.default_rng(_SEED).uniform(*np.log(LIMIT), len(trace.jobs))
        self._limits = {
            f"ns/{job.name}": Expected(job.seconds * math.exp(limit), Basis.DEADLINE)
            for job, limit in zip(trace.jobs, limits.tolist(), strict=True)
        }
        self._known = {
            f"ns/{job.name}": Expected(job.seconds, Basis.ANNOTATION) for job in trace.jobs
        }
        self._answers: list[Answer] = []

    def run(self, asked: Sequence[str]) -> list[Answer]:
        """Replay the trace and ask; return the answers with the waits that came."""
        replay = self._replay
        replay.run(self._came, self._ask, frozenset(asked))
        return calibrated(
            msgspec.structs.replace(answer, wait=replay.waits[answer.job])
            for answer in self._answers
        )

    def _came(self, key: str) -> None:
        replay = self._replay
        for name, seconds in replay.ended[self._learnt :]:
            said_s = replay.jobs[name].expected_s
            stated = Expected(said_s, Basis.ANNOTATION) if said_s else None
            subject = self._subjects.pop(name)
            self._history.ended(subject, seconds, stated=stated)
            self._believing.ended(subject, seconds)
        self._learnt = len(replay.ended)
        job = replay.cluster_state.jobs.get(key)
        assert job is not None, f"{key} was not folded"
        self._subjects[key] = subject_of(job)
        self._arrivals.note(job, replay.cluster_state.dimensions, replay.now)

    def _ask(self, key: str) -> None:
        replay = self._replay
        forecaster = Forecaster(
            SchedulerRules(replay.config),
            self._history,
            arrivals=self._arrivals,
            draws=self._draws,
            bounds=self._bounds,
        )
        for _ in range(self._draws):
            forecaster.draw(replay.cluster_state, now=replay.now, targets=[key])
        found = forecaster.estimate(key)
        waits = [wait for wait in replay.waits.values() if wait > 0.0]
        self._answers.append(
            Answer(
                job=key,
                at=replay.now - EPOCH,
                wait=math.nan,
                median=math.inf if found is None else found.median - replay.now,
                drawn=math.inf if found is None else found.latest - replay.now,
                latest=math.nan,
                mean=statistics.fmean(waits) if waits else 0.0,
                limits=self._played(key, self._limits, JobArrivals()),
                known=self._played(key, self._known, self._arrivals),
            )
        )

    def _played(self, key: str, lasting: Mapping[str, Expected], arrivals: JobArrivals) -> float:
        """Return the wait if each job that is there ran for so long, by one play."""
        replay = self._replay

        def stated(job: Job) -> Expected | None:
            return lasting.get(job.key)

        simulation = Simulation(
            replay.cluster_state,
            SchedulerRules(replay.config, stated=stated),
            Durations(self._believing),
            now=replay.now,
            uniform=np.random.default_rng(_SEED).random,
            arrivals=arrivals,
            bounds=self._bounds._replace(together=0.0),
        )
        return simulation.run([key]).starts.get(key, math.inf) - replay.now


def calibrated(answers: Iterable[Answer]) -> list[Answer]:
    """Return answers with their bounds as they are told: each knows the starts before it."""
    calibration, waited_for, found = Calibration(LATEST), list[tuple[float, str]](), []
    for answer in sorted(answers, key=lambda answer: answer.at):
        while waited_for and waited_for[0][0] <= answer.at:
            at, job = heapq.heappop(waited_for)
            calibration.started(job, at)
        median, drawn = answer.at + answer.median, answer.at + answer.drawn
        told = calibration.stretched(answer.at, median, drawn) - answer.at
        found.append(msgspec.structs.replace(answer, latest=told))
        calibration.promised(answer.job, answer.at, drawn)
        heapq.heappush(waited_for, (answer.at + answer.wait, answer.job))
    return found


def score(answers: Sequence[Answer]) -> Score:
    """Return how good answers are."""

    def error(way: str) -> float:
        return statistics.median(
            abs(getattr(answer, way) - answer.wait) / answer.wait for answer in answers
        )

    return Score(
        asked=len(answers),
        drawn=statistics.fmean(answer.wait <= answer.drawn + 1.0 for answer in answers),
        covered=statistics.fmean(answer.wait <= answer.latest + 1.0 for answer in answers),
        forecast=error("median"),
        mean=error("mean"),
        limits=error("limits"),
        known=error("known"),
    )
