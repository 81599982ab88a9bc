"""Orders of a queue on a trace: `python -m benchmarks.engine.reservations FOLDER`.

FOLDER holds openb's CSV files (Alibaba's cluster trace of 2023), or a file is named of Gavel's
traces (after Microsoft's Philly). The trace's jobs come to one queue of `--nodes` nodes
with eight GPUs, the times between them stretched alike so that their work would fill the cluster to
`--load`; the engine decides at each arrival and each end. Reported are waits and the part of all
GPUs that was in use until the last job came.

Of Gavel's jobs the traces give steps and no durations: a job runs for its steps divided by the
median of its model's, times an hour. A job of more than eight GPUs is a gang of whole nodes.
"""

import argparse
import csv
import heapq
import math
import statistics
from pathlib import Path
from typing import NamedTuple

from pumice.testing import Cluster, binds_of
from shared.api import kinds
from shared.api.time import format_seconds

START = 1_800_000_000
NODE = 8
GPU = "nvidia.com/gpu"
ORDERS = ("best-effort", "strict", "backfill")
CONFIGURATION = """\
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: reservation, arguments: {reservation.order: %s}}]
- plugins:
  - name: predicates
  - name: binpack
    arguments: {binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 5}
"""


class Job(NamedTuple):
    """A job of a trace; times in whole seconds."""

    at: int
    gpus: int
    runs: int

    @property
    def pods(self) -> int:
        """Return of how many pods it is made."""
        return math.ceil(self.gpus / NODE)


class Outcome(NamedTuple):
    """Waits in seconds by job, and the part of the GPUs that was in use."""

    waits: list[int]
    used: float


def gavel(file: Path) -> list[Job]:
    """Return the jobs of one of Gavel's traces."""
    rows = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    steps: dict[str, list[int]] = {}
    for row in rows:
        steps.setdefault(row[0], []).append(int(row[4]))
    medians = {model: statistics.median(found) for model, found in steps.items()}
    return [
        Job(int(float(row[5])), int(row[6]), max(1, round(3600 * int(row[4]) / medians[row[0]])))
        for row in rows
    ]


def openb(folder: Path) -> list[Job]:
    """Return the pods with GPUs of openb; a part of a card counts as a card."""
    with (folder / "openb_pod_list_default.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"])]
    return [
        Job(int(row["creation_time"]), int(row["num_gpu"]), max(1, _seconds_of(row)))
        for row in rows
    ]


def _seconds_of(row: dict[str, str]) -> int:
    return int(row["deletion_time"]) - int(row["scheduled_time"] or row["creation_time"])


def stretched(jobs: list[Job], nodes: int, load: float) -> list[Job]:
    """Return the jobs with arrivals at which their work fills a cluster to a part."""
    first = min(job.at for job in jobs)
    span = max(job.at for job in jobs) - first
    work = sum(job.gpus * job.runs for job in jobs)
    factor = work / (nodes * NODE * load * span)
    return [job._replace(at=round((job.at - first) * factor)) for job in jobs]


class Play:
    """A cluster on which the jobs run."""

    def __init__(self, order: str, nodes: int, jobs: list[Job], stated: float) -> None:
        self._jobs = jobs
        self._stated = stated
        self._nodes = nodes
        self.cluster = Cluster(CONFIGURATION % order)
        for number in range(nodes):
            self.cluster.node(f"n{number}", cpu="64", nvidia_com__gpu=str(NODE))
        self._ends: list[tuple[int, int]] = []
        self._waits: dict[int, int] = {}
        self._held = self._used = 0

    def run(self) -> Outcome:
        """Play all arrivals and ends."""
        arrivals = sorted(range(len(self._jobs)), key=lambda n: (self._jobs[n].at, n))
        begin, last = self._jobs[arrivals[0]].at, self._jobs[arrivals[-1]].at
        now, coming = begin, 0
        while coming < len(arrivals) or self._ends:
            times = [self._ends[0][0]] if self._ends else []
            times += [self._jobs[arrivals[coming]].at] if coming < len(arrivals) else []
            self._used += self._held * (min(*times, last) - min(now, last))
            now = min(times)
            while coming < len(arrivals) and self._jobs[arrivals[coming]].at == now:
                self._come(arrivals[coming])
                coming += 1
            while self._ends and self._ends[0][0] == now:
                self._end(heapq.heappop(self._ends)[1])
            self._decide(now)
        total = self._nodes * NODE * (last - begin)
        return Outcome([self._waits[n] for n in range(len(self._jobs))], self._used / total)

    def _come(self, number: int) -> None:
        job = self._jobs[number]
        created = format_seconds(START + job.at)
        self.cluster.group(f"j{number:05}", min_member=job.pods, created=created)
        for pod in range(job.pods):
            self._put(number, pod)

    def _put(self, number: int, pod: int, node: str = "", now: int = 0) -> None:
        job, name = self._jobs[number], f"j{number:05}"
        says = f"{job.runs * self._stated:.0f}"
        self.cluster.pod(
            f"{name}-{pod}",
            name,
            requests={GPU: str(min(NODE, job.gpus))},
            node=node,
            metadata={"annotations": {"pumice.dev/expected-duration": says}},
            status={"startTime": format_seconds(START + now)} if node else {},
        )

    def _end(self, number: int) -> None:
        name, job = f"j{number:05}", self._jobs[number]
        for pod in range(job.pods):
            self.cluster.delete(kinds.POD, f"ns/{name}-{pod}")
        self.cluster.delete(kinds.PODGROUP, f"ns/{name}")
        self._held -= job.gpus

    def _decide(self, now: int) -> None:
        for pod, node in binds_of(self.cluster.step(now=float(START + now))).items():
            name, _, index = pod.partition("-")
            number = int(name[1:])
            self._put(number, int(index), node, now)
            if number not in self._waits:
                self._waits[number] = now - self._jobs[number].at
                heapq.heappush(self._ends, (now + self._jobs[number].runs, number))
                self._held += self._jobs[number].gpus


def quantile(values: list[int], part: float) -> float:
    """Return a quantile in hours."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 3600 if ordered else 0.0


def main(argv: list[str] | None = None) -> None:
    """Print a line per order."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine.reservations")
    parser.add_argument("trace", type=Path, help="folder of openb, or a file of Gavel's")
    parser.add_argument("--jobs", type=int, default=1000, help="so many jobs, the first ones")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--load", type=float, default=0.95, help="work by GPU time")
    parser.add_argument("--large", type=int, default=16, help="a large gang has so many GPUs")
    parser.add_argument(
        "--stated", type=float, default=1.0, help="stated durations, by the real ones"
    )
    args = parser.parse_args(argv)
    found = openb(args.trace) if args.trace.is_dir() else gavel(args.trace)
    fitting = [job for job in sorted(found) if job.pods <= args.nodes]
    jobs = stretched(fitting[: args.jobs], args.nodes, args.load)
    large = [number for number, job in enumerate(jobs) if job.gpus >= args.large]
    print(
        f"{len(jobs)} jobs, {len(large)} of {args.large} GPUs or more; {args.nodes} nodes of {NODE}"
    )
    print(
        f"{'order':<13}{'large: median':>14}{'p90':>8}{'others: median':>16}{'p90':>8}{'in use':>9}"
    )
    for order in ORDERS:
        outcome = Play(order, args.nodes, jobs, args.stated).run()
        mine = [outcome.waits[number] for number in large]
        others = [w for number, w in enumerate(outcome.waits) if jobs[number].gpus < args.large]
        figures = [quantile(some, part) for some in (mine, others) for part in (0.5, 0.9)]
        print(
            f"{order:<13}{figures[0]:>12.1f} h{figures[1]:>6.1f} h{figures[2]:>14.1f} h"
            f"{figures[3]:>6.1f} h{outcome.used:>9.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
