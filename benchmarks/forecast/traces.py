"""The traces as jobs: when they come, what they ask for, how long they run.

openb (Alibaba, 2023) says all three; its jobs are single pods that share cards, and pods of equal
requests and class count as made from one template. The gavel traces (Microsoft's Philly by way of
Gavel) say steps in place of seconds: each of the 26 kinds of training is given the same median, an
hour, and the jobs of a kind keep their ratios. Arrivals of both are sped up, or slowed down, until
the jobs ask for a stated part of the cluster's scarcest resource.
"""

import csv
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pumice.replays.engine import Amounts, Replay, ReplayedJob, node_object, queue_object
from services.scheduler.config import DEFAULT_TEXT

GPU = "nvidia.com/gpu"
_DAY_S = 86_400.0
_HOUR_S = 3_600.0
_OPENB_FROM_S = 140 * _DAY_S
_OPENB_NODES = 4
_GAVEL_NODES = 8
_CARDS = 8
_OFF = 0.2
"""Standard deviation of the logarithm of a stated duration."""


class Trace(NamedTuple):
    """Jobs in the order in which they come, and the cluster that they come to."""

    name: str
    nodes: dict[str, Amounts]
    jobs: Sequence[ReplayedJob]


def replay_of(trace: Trace, configuration: str = DEFAULT_TEXT) -> Replay:
    """Return a replay of a trace in one queue."""
    nodes = (node_object(name, amounts) for name, amounts in trace.nodes.items())
    return Replay(trace.jobs, [queue_object("default"), *nodes], configuration)


def read(path: Path, *, load: float, most: int, skip: int = 0) -> Trace:
    """Return a trace: a folder is openb's, a file one of gavel's; without its first `skip` jobs."""
    if path.is_dir():
        nodes, jobs = _openb(path)
        name = "openb"
    else:
        nodes, jobs = _gavel(path)
        name = f"gavel {path.stem}"
    return Trace(name, nodes, _paced(jobs[skip : skip + most], nodes, load))


def stating(trace: Trace, part: float, *, seed: int) -> Trace:
    """Return a trace of which a part of the jobs say how long they run, off by a fifth or so."""
    random = np.random.default_rng(seed)
    jobs = [
        job._replace(expected_s=job.seconds * math.exp(_OFF * random.standard_normal()))
        if random.random() < part
        else job
        for job in trace.jobs
    ]
    return trace._replace(jobs=jobs)


def _openb(folder: Path) -> tuple[dict[str, Amounts], list[ReplayedJob]]:
    with (folder / "openb_pod_list_default.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(
            csv.DictReader(file), key=lambda row: (int(row["creation_time"]), row["name"])
        )
    kinds: dict[tuple[str, ...], int] = {}
    jobs = []
    for row in rows:
        at, end = int(row["creation_time"]), int(row["deletion_time"])
        if at < _OPENB_FROM_S or not 0 < end - at <= _DAY_S:
            continue
        alike = (row["cpu_milli"], row["memory_mib"], row["num_gpu"], row["gpu_milli"], row["qos"])
        kind = kinds.setdefault(alike, len(kinds))
        asks = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) << 20}
        if cards := int(row["num_gpu"]) * int(row["gpu_milli"] or 0):
            asks[GPU] = cards
        jobs.append(ReplayedJob(f"kind{kind}x-{len(jobs)}", at, end - at, 1, asks))
    node = {"cpu": 96_000, "memory": 393_216 << 20, GPU: 1_000 * _CARDS}
    return {f"n{number}": node for number in range(_OPENB_NODES)}, jobs


def _gavel(file: Path) -> tuple[dict[str, Amounts], list[ReplayedJob]]:
    rows = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    steps = defaultdict(list)
    for row in rows:
        steps[row[0]].append(float(row[4]))
    median = {kind: statistics.median(each) for kind, each in steps.items()}
    asks = {"cpu": 4_000, GPU: 1_000}
    jobs = []
    for row in rows:
        kind = re.sub(r"[^a-z0-9]+", "-", row[0].lower()).strip("-")
        seconds = max(10.0, _HOUR_S * float(row[4]) / median[row[0]])
        # The letter keeps the batch size from being taken for a generated part of the name.
        name = f"{kind}x-{len(jobs)}"
        jobs.append(ReplayedJob(name, float(row[5]), seconds, int(row[6]), asks))
    node = {"cpu": 64_000, "memory": 1 << 38, GPU: 1_000 * _CARDS}
    return {f"n{number}": node for number in range(_GAVEL_NODES)}, jobs


def _paced(
    jobs: Iterable[ReplayedJob], nodes: dict[str, Amounts], load: float
) -> list[ReplayedJob]:
    """Return the jobs with their arrivals drawn apart or together for a load."""
    fitting = [job for job in jobs if _fits(job, nodes)]
    first, last = fitting[0].at, fitting[-1].at
    total: dict[str, int] = defaultdict(int)
    for node in nodes.values():
        for name, amount in node.items():
            total[name] += amount
    asked: dict[str, float] = defaultdict(float)
    for job in fitting:
        for name, amount in job.requests.items():
            asked[name] += job.pods * amount * job.seconds
    needed_s = max(asked[name] / (load * total[name]) for name in asked)
    pace = needed_s / (last - first)
    return [job._replace(at=(job.at - first) * pace) for job in fitting]


def _fits(job: ReplayedJob, nodes: dict[str, Amounts]) -> bool:
    places = sum(
        min(node.get(name, 0) // amount for name, amount in job.requests.items())
        for node in nodes.values()
    )
    return places >= job.pods
