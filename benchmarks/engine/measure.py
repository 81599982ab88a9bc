"""Times the scheduler's own work on one load: undecoded facts in, encoded intents out.

`SchedulerState` is the production one, so fold, conditions, explanations and held statuses are all
in the figures; only the bus is missing. Times are CPU seconds of the one thread, which is what a
free core takes, so that a busy machine does not blur them.
"""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from benchmarks.engine import clusters
from benchmarks.engine.clusters import Load
from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import configure
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import codec
from shared.contracts.messages import BindGang, Command

CHANGED = 0.01
"""Share of the running pods that end before the last cycle."""


T = TypeVar("T")


def alone(work: Callable[[], T]) -> T:
    """Return what `work` gives in a fresh process, so that no load inherits another's memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds, counts, and the largest resident size in MiB."""

    fold: float
    decide: float
    encode: float
    idle: float
    changed: float
    """A fold and a cycle after 1 % of the running pods have ended; 0 when none runs."""
    bound: int
    evicted: int
    held_mib: float
    """Memory of the cluster state and of the process before the work arrives."""
    peak_mib: float

    @property
    def total(self) -> float:
        """Return what the arrival costs, from bytes to bytes."""
        return self.fold + self.decide + self.encode


class Cycle(NamedTuple):
    """A cycle's decisions, and CPU seconds."""

    commands: list[Command]
    decide_s: float
    encode_s: float

    @property
    def total_s(self) -> float:
        """Return what the cycle took."""
        return self.decide_s + self.encode_s

    @property
    def bound(self) -> int:
        """Return how many pods are bound."""
        return sum(len(c.binds) for c in self.commands if isinstance(c, BindGang))

    @property
    def evicted(self) -> int:
        """Return how many pods are evicted."""
        return sum(len(c.victims) for c in self.commands if not isinstance(c, BindGang))


class Bench:
    """A worker that is fed encoded facts."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.scheduler_state = SchedulerState(DecisionSettings(), gang_message=1_000, settle_s=0.0)
        self._cycle = 0

    def fold(self, payloads: Iterable[bytes]) -> None:
        """Take facts in; any that cannot be used is a fault of the load."""
        failures = self.scheduler_state.fold([codec.decode_fact(payload) for payload in payloads])
        if failures:
            raise ValueError(f"{len(failures)} facts are bad, the first: {failures[0]}")

    def cycle(self) -> Cycle:
        """Run a cycle and adopt what it decided."""
        self._cycle += 1
        start = time.process_time()
        decision = self.scheduler_state.decide(self.config, now=0.0, cycle=self._cycle, token=1)
        decided = time.process_time()
        for command in decision.commands:
            codec.encode(command)
        for status in decision.statuses:
            codec.encode(status.message)
        if decision.exclusions:
            raise ValueError(f"the cycle left something out: {decision.exclusions[0].reason}")
        encoded = time.process_time()
        self.scheduler_state.assume_statuses(decision.plan)
        return Cycle(decision.commands, decided - start, encoded - decided)

    def settle(self) -> None:
        """Run cycles until statuses are what they will be."""
        for _ in range(3):
            self.cycle()


def measure(load: Load) -> Timing:
    """Measure one load in this process, which should be a fresh one for the memory to mean much."""
    bench = Bench(configure(clusters.configuration(load)))
    bench.fold(clusters.standing(load))
    bench.settle()
    held = resident_mib()
    payloads = list(clusters.arriving(load))
    start = time.process_time()
    bench.fold(payloads)
    folded = time.process_time() - start
    placing = bench.cycle()
    bench.settle()
    # One cycle of them may hold a full collection of garbage, which is as long as fifty cycles.
    idle_s = statistics.median(bench.cycle().total_s for _ in range(3))
    return Timing(
        fold=folded,
        decide=placing.decide_s,
        encode=placing.encode_s,
        idle=idle_s,
        changed=_changed(bench, load),
        bound=placing.bound,
        evicted=placing.evicted,
        held_mib=held,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _PEAK_UNIT,
    )


def _changed(bench: Bench, load: Load) -> float:
    payloads = list(clusters.changing(load, CHANGED))
    if not payloads:
        return 0.0
    start = time.process_time()
    bench.fold(payloads)
    folded = time.process_time() - start
    return folded + bench.cycle().total_s


_PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10
"""`ru_maxrss` counts bytes there, KiB elsewhere."""


def resident_mib() -> float:
    """Return what the process holds now; where the system does not say, its peak so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _PEAK_UNIT
    return pages * resource.getpagesize() / 2**20
