"""The record of one run, as it is stored, and the figures that follow from it. Pure.

Times are seconds since the first job was submitted.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

STAGES: Final = ("created", "bound", "running")


class Sample(msgspec.Struct, frozen=True):
    """The CPU time and memory that one process had used at one moment."""

    at_s: float
    cpu_s: float
    memory_mib: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    load: str
    """The number of nodes, gangs and pods, for a person."""
    pods: int
    floor_s: float = 0.0
    """Seconds in which a plain client created and bound as many pods; 0: not measured."""
    submitted_s: dict[str, float]
    """The moment at which each job was posted, by its name."""
    seen_s: dict[str, dict[str, float]]
    """Stage → pod → when it was first seen there; stages are those of `STAGES`."""
    job_of: dict[str, str]
    """Pod → its job."""
    processes: dict[str, list[Sample]]
    requests: dict[str, float]
    """Kind of request, as verb and resource → how many there were."""

    @property
    def is_complete(self) -> bool:
        """Whether every pod ran before the deadline."""
        return len(self.seen_s["running"]) == self.pods


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of latencies."""

    p50: float
    p90: float
    p99: float
    most: float


def latencies(record: Record) -> dict[str, list[float]]:
    """Return what each step took per pod, in ascending order, and the whole way to running."""
    made, bound, running = (record.seen_s.get(stage, {}) for stage in STAGES)
    posted = {pod: record.submitted_s[job] for pod, job in record.job_of.items()}
    steps = {
        "POST to created": (posted, made),
        "created to bound": (made, bound),
        "bound to running": (bound, running),
        "POST to running": (posted, running),
    }
    return {
        name: sorted(ends[pod] - begins[pod] for pod in ends if pod in begins)
        for name, (begins, ends) in steps.items()
    }


def spread(values: Sequence[float]) -> Spread:
    """Return the quantiles of values in ascending order; at least one is needed."""

    def at(share: float) -> float:
        return values[min(len(values) - 1, int(share * len(values)))]

    return Spread(p50=at(0.5), p90=at(0.9), p99=at(0.99), most=values[-1])


def throughput(times: Iterable[float]) -> list[tuple[float, float]]:
    """Return how many had come by each moment at which one more came."""
    ordered = sorted(times)
    return [(0.0, 0.0), *((at, float(number)) for number, at in enumerate(ordered, start=1))]


def cpu_share(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the share of a processor that a process had between its samples."""
    return [
        (after.at_s, (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s))
        for before, after in pairwise(samples)
        if after.at_s > before.at_s
    ]


def memory(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the memory of a process at its samples, in MiB."""
    return [(sample.at_s, sample.memory_mib) for sample in samples]


def cpu_s(samples: Sequence[Sample]) -> float:
    """Return the CPU seconds that a process used from its first sample to its last."""
    return samples[-1].cpu_s - samples[0].cpu_s if samples else 0.0


def peak_mib(samples: Sequence[Sample]) -> float:
    """Return the most memory that a process had."""
    return max((sample.memory_mib for sample in samples), default=0.0)


def figures(record: Record) -> dict[str, float]:
    """Return every figure of a run that can be compared with that of another, by its name."""
    found = {f"s until all {stage}": max(times.values()) for stage, times in _seen(record).items()}
    if record.floor_s and "s until all bound" in found:
        found["bound, as a multiple of the floor"] = found["s until all bound"] / record.floor_s
    for step, values in latencies(record).items():
        if values:
            found[f"{step}, p50 s"] = statistics.median(values)
            found[f"{step}, p99 s"] = spread(values).p99
    for name, samples in sorted(record.processes.items()):
        if samples:
            found[f"{name}: CPU s"] = cpu_s(samples)
            found[f"{name}: most MiB"] = peak_mib(samples)
    for kind, count in record.requests.items():
        found[f"requests: {kind}"] = count
    found["requests: all"] = sum(record.requests.values())
    return found


def _seen(record: Record) -> Mapping[str, Mapping[str, float]]:
    return {stage: record.seen_s[stage] for stage in STAGES if record.seen_s.get(stage)}


class Ratio(msgspec.Struct, frozen=True):
    """One figure in two runs."""

    figure: str
    now: float
    before: float

    @property
    def ratio(self) -> float | None:
        """Return `now / before`; None where there is nothing to divide by."""
        return self.now / self.before if self.before else None


def compare(now: Record, before: Record) -> list[Ratio]:
    """Return each figure that either run has; one that a run lacks counts as 0 there."""
    new, old = figures(now), figures(before)
    names = [*new, *(name for name in old if name not in new)]
    return [Ratio(name, new.get(name, 0.0), old.get(name, 0.0)) for name in names]


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return how much each counter grew, largest growth first; those that did not are left out."""
    grown = {name: count - before.get(name, 0.0) for name, count in after.items()}
    ordered = sorted(grown.items(), key=lambda item: (-item[1], item[0]))
    return {name: count for name, count in ordered if count > 0}
