"""Measures the plugin `fairshare` on traces: `python -m benchmarks.fair_share TRACE…`.

A TRACE is the folder with openb's CSV files, or a file of the gavel traces. Its jobs are given to
20 users of unequal demand, who submit one batch of jobs after the other, and it is replayed with
and without the plugin. Of the users that wait, each hour tells Jain's index of usage over share: 1
if all have used the same, 1/n if one of n has used everything. With `--into FOLDER` it draws
charts.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from benchmarks.forecast.traces import GPU, Trace, read
from benchmarks.report.svg import Points, lines
from pumice.replays.engine import EPOCH, Replay, ReplayedJob, node_object, queue_object
from services.scheduler.config import DEFAULT_TEXT

USERS = 20
QUEUE = "default"
_BATCH = 4
"""Mean number of jobs that a user submits one after the other."""
_HOUR_S = 3_600.0
PLAIN = DEFAULT_TEXT
FAIR = DEFAULT_TEXT.replace("- name: gang", "- name: gang\n  - name: fairshare", 1)


class Fairness(NamedTuple):
    """What one replay shows."""

    jain: Points
    """Hours since the start, index."""
    waits: Mapping[str, float]
    """User → 90th percentile of its jobs' waits, in hours."""


def given_to_users(trace: Trace, *, seed: int) -> Trace:
    """Return a trace whose jobs have users; the n-th of them submits 1/n of the first's."""
    random = np.random.default_rng(seed)
    demand = 1.0 / np.arange(1, USERS + 1)
    jobs: list[ReplayedJob] = []
    user = ""
    for job in trace.jobs:
        if not user or random.random() < 1 / _BATCH:
            user = f"user{random.choice(USERS, p=demand / demand.sum()):02}"
        jobs.append(job._replace(user=user))
    return trace._replace(jobs=jobs)


class SampledReplay(Replay):
    """A replay that takes Jain's index each hour."""

    def __init__(self, trace: Trace, configuration: str, *, half_life_s: float) -> None:
        objects = [
            queue_object(QUEUE),
            *(node_object(name, has) for name, has in trace.nodes.items()),
        ]
        super().__init__(trace.jobs, objects, configuration, half_life_s=half_life_s)
        self.jain: list[tuple[float, float]] = []
        self._sampled = EPOCH

    @override
    def _decide(self) -> None:
        super()._decide()
        if self.now >= self._sampled + _HOUR_S:
            self._sampled = self.now
            self._sample()

    def _sample(self) -> None:
        """Note the index of the users that wait for GPUs now; of fewer than two there is none."""
        submitted = (j for key, j in self.jobs.items() if self.cluster_state.jobs.get(key))
        waiting = {
            job.user
            for job in submitted
            if f"ns/{job.name}" not in self.waits and GPU in job.requests
        }
        used = np.array([self.usage.of(QUEUE, user, GPU, self.now) for user in sorted(waiting)])
        if len(used) > 1 and used.sum() > 0:
            index = float(used.sum() ** 2 / (len(used) * (used**2).sum()))
            self.jain.append(((self.now - EPOCH) / _HOUR_S, index))


def measure(trace: Trace, configuration: str, *, half_life_s: float) -> Fairness:
    """Replay a trace."""
    replay = SampledReplay(trace, configuration, half_life_s=half_life_s)
    replay.run()
    of_user = defaultdict(list)
    for key, wait in replay.waits.items():
        of_user[replay.jobs[key].user].append(wait / _HOUR_S)
    waits = {user: float(np.percentile(each, 90)) for user, each in of_user.items()}
    return Fairness(replay.jain, dict(sorted(waits.items())))


def row(name: str, how: str, found: Fairness) -> str:
    """Return a row of the table."""
    waits = list(found.waits.values())
    light = waits[len(waits) // 2 :]
    jain = statistics.mean(index for _, index in found.jain)
    return (
        f"{name:<16}{how:<12}{jain:>8.2f}{statistics.median(waits):>10.1f}"
        f"{max(waits):>8.1f}{statistics.median(light):>8.1f}"
    )


def _chart(series: Mapping[str, Points], across: str, up: str) -> str:
    drawn = lines(series, across=across, up=up)
    return drawn.replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" style="background:#fff" ', 1
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print two lines per trace."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fair_share", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--jobs", type=int, default=1_000, help="the first jobs of a trace")
    parser.add_argument("--load", type=float, default=1.2, help="part of the cluster asked for")
    parser.add_argument("--half-life", type=float, default=168.0, help="of usage, in hours")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--into", type=Path, help="folder for the charts")
    given = parser.parse_args(argv)
    print(f"{'trace':<16}{'':<12}{'Jain':>8}{'p90 median':>10}{'max':>8}{'light':>8}", flush=True)
    for path in given.traces:
        trace = given_to_users(read(path, load=given.load, most=given.jobs), seed=given.seed)
        found = {
            how: measure(trace, configuration, half_life_s=given.half_life * _HOUR_S)
            for how, configuration in (("without", PLAIN), ("fairshare", FAIR))
        }
        for how, each in found.items():
            print(row(trace.name, how, each), flush=True)
        if given.into is not None:
            name = trace.name.replace(" ", "-")
            charts = {
                "jain": ({how: each.jain for how, each in found.items()}, "hours", "Jain's index"),
                "waits": (
                    {how: list(enumerate(each.waits.values(), 1)) for how, each in found.items()},
                    "users, by demand",
                    "p90 of waits, hours",
                ),
            }
            for what, (series, across, up) in charts.items():
                (given.into / f"{what}-{name}.svg").write_text(_chart(series, across, up), "utf-8")


if __name__ == "__main__":
    main()
