"""The services as processes beside the same services in one process, on one control plane.

`python -m benchmarks.in_process [--nodes 1000 --jobs 50 --replicas 100 --runs 3]` starts a control
plane with fake nodes, and in each run submits the same gangs twice: to the services with
nats-server, and to all of them in one process with the bus in memory; each second run in the other
order. Printed per load: seconds until the last pod is bound and runs, CPU of ours per pod, CPU of
the API server, and memory at most; last the medians and their ratios. What else the machine does
changes the times of a run, and CPU per pod little.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.report.observe import Load, cpu_s, gangs, observe
from benchmarks.stack import clear, fake_cluster, many
from benchmarks.volcano.systems import one_process, pumice
from tests.support.api import Api


class Seen(NamedTuple):
    """The times and the cost of one load."""

    bound_s: float
    running_s: float
    ours_ms: float
    """CPU of our processes per pod, nats-server's included."""
    api_s: float
    mib: float

    def __str__(self) -> str:
        return (
            f"bound {self.bound_s:.1f} s, running {self.running_s:.1f} s, ours "
            f"{self.ours_ms:.2f} ms per pod, API server {self.api_s:.1f} s, {self.mib:.0f} MiB"
        )


async def measure(api: Api, load: Load, pids: Mapping[str, int], server: int) -> Seen:
    """Submit a load and return what it cost."""
    pods = load.pods
    everything = {**pids, "API server": server}
    before = cpu_s(everything)
    record = await observe(api, load, everything, many=many)
    after = cpu_s(everything)
    spent = {name: after[name] - before[name] for name in everything}
    by_process = " ".join(f"{name} {spent[name] / pods * 1000:.2f}" for name in pids)
    print(f"    ms per pod: {by_process}", flush=True)
    return Seen(
        bound_s=max(record.seen_s["bound"].values()),
        running_s=max(record.seen_s["running"].values()),
        ours_ms=sum(spent[name] for name in pids) / pods * 1000,
        api_s=spent["API server"],
        mib=sum(max(sample.memory_mib for sample in record.processes[name]) for name in pids),
    )


async def run(options: argparse.Namespace) -> None:
    """Run the comparison and print it."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    load = gangs(options)
    modes = {"processes": pumice(webhooks=False), "one process": one_process}
    seen: dict[str, list[Seen]] = {name: [] for name in modes}
    async with fake_cluster(options.nodes, directory) as (plane, api):
        server = plane.processes["kube-apiserver"].pid
        for number in range(options.runs):
            for name in sorted(modes, reverse=number % 2 == 0):
                async with modes[name](plane, directory, "") as running:
                    found = await measure(api, load, running.pids, server)
                await clear(api)
                seen[name].append(found)
                busy = os.getloadavg()[0]
                print(f"run {number + 1}, {name}: {found} (load average {busy:.1f})")
    conclude(load, seen)


def conclude(load: Load, seen: Mapping[str, list[Seen]]) -> None:
    """Print the medians of both, and the ratios of one process to several."""
    medians = {
        name: Seen(*(statistics.median(values) for values in zip(*each, strict=True)))
        for name, each in seen.items()
    }
    for name, median in medians.items():
        print(f"{load}, {name}: median {median}")
    pairs = zip(medians["one process"], medians["processes"], strict=True)
    ratios = [
        f"{field} {one / many_:.2f}"
        for field, (one, many_) in zip(Seen._fields, pairs, strict=True)
    ]
    print(f"one process to several: {', '.join(ratios)}")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
