"""A minute of a full cluster: jobs of many queues come at once, and queues take back their own.

    python -m tests.sim.churn --mix teams
    python -m tests.sim.churn --mix 1 --conf my.yaml --volcano-evictions

Plays a mix on the whole stack in virtual time and counts what the API server saw: pods that were
placed, evicted and completed. `benchmarks.churn` plays the same mixes on the real stack.
"""

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.sim import workloads
from tests.sim.simloop import SimLoop
from tests.sim.simulation import Simulation
from tests.support import world

HERE = Path(__file__).parent
MINUTE_S = 60.0


class MixJob(NamedTuple):
    """A job of a mix: a gang of equal pods."""

    queue: str
    pods: int
    cpu: str
    memory: str
    run_s: int
    gpu: int = 0
    least: int | None = None
    priority: str = ""

    def manifest(self, name: str) -> dict[str, Any]:
        """Return the Job."""
        task = world.task(
            "worker",
            self.pods,
            cpu=self.cpu,
            memory=self.memory,
            annotations={"pumice.dev/run-seconds": str(self.run_s)},
        )
        if self.gpu:
            amounts = task["template"]["spec"]["containers"][0]["resources"]
            amounts["requests"]["nvidia.com/gpu"] = str(self.gpu)
            amounts["limits"] = {"nvidia.com/gpu": str(self.gpu)}
        more = {"priorityClassName": self.priority} if self.priority else {}
        return world.job(name, task, min_available=self.least, queue=self.queue, **more)


class Mix(NamedTuple):
    """Queues, nodes and jobs that are submitted together."""

    name: str
    nodes: int
    cpu: int
    memory: str
    queues: tuple[dict[str, Any], ...]
    jobs: tuple[MixJob, ...]


def tree_of_queues() -> tuple[dict[str, Any], ...]:
    """Return two departments with two teams each, which deserve the cluster between them."""
    return (
        world.queue(
            "research",
            weight=1,
            deserved={"cpu": 96, "memory": "384Gi"},
            capability={"cpu": 160, "memory": "640Gi"},
        ),
        world.queue("vision", parent="research", weight=1, deserved={"cpu": 48, "memory": "192Gi"}),
        world.queue("nlp", parent="research", weight=1, deserved={"cpu": 48, "memory": "192Gi"}),
        world.queue("production", weight=3, deserved={"cpu": 96, "memory": "384Gi"}),
        world.queue(
            "batch", parent="production", weight=1, deserved={"cpu": 64, "memory": "256Gi"}
        ),
        world.queue(
            "online", parent="production", weight=1, deserved={"cpu": 32, "memory": "128Gi"}
        ),
    )


LEAVES = ("vision", "nlp", "batch", "online")
_TEAMS = """
4 1 2 20 0|12 500m 2 90 0|12 1 1 20 0|8 500m 1 20 1|8 500m 4 20 0|16 8 1 90 1|8 500m 1 20 1
2 2 2 30 1|1 8 2 90 1|2 500m 4 90 1|2 2 1 90 1|1 8 1 90 0|8 8 2 45 0|12 4 2 45 0|2 1 1 90 0
12 4 2 60 0|12 500m 1 90 0|2 2 1 60 0|1 500m 4 90 0|4 2 4 60 1|8 500m 1 45 0|16 500m 1 45 1
12 4 2 60 1|4 500m 2 45 0|12 500m 2 20 0|4 1 4 30 0|8 4 1 30 0|8 8 2 30 0|12 2 4 60 0|16 4 1 30 0
"""
"""Pods, CPUs, GiB, seconds and GPUs of 30 jobs; their queues take turns."""


def teams() -> Mix:
    """Return the mix of a report: thirty gangs, some of which ask for GPUs that no node has."""
    rows = [row.split() for line in _TEAMS.split("\n") if line for row in line.split("|")]
    jobs = tuple(
        MixJob(LEAVES[at % 4], int(pods), cpu, f"{memory}Gi", int(run_s), int(gpu))
        for at, (pods, cpu, memory, run_s, gpu) in enumerate(rows)
    )
    return Mix("teams", 12, 16, "64Gi", tree_of_queues(), jobs)


def drawn(seed: int) -> Mix:
    """Return a drawn mix on the same queues and nodes; some of its jobs are elastic."""
    rng = random.Random(f"mix-{seed}")
    jobs = []
    for at in range(30):
        pods = rng.choice((1, 2, 4, 8, 12, 16))
        least = rng.choice((None, None, max(1, pods // 2), 1))
        cpu, memory = rng.choice(("500m", "1", "2", "4", "8")), rng.choice((1, 2, 4))
        run_s = rng.choice((20, 30, 45, 60, 90))
        jobs.append(MixJob(LEAVES[at % 4], pods, cpu, f"{memory}Gi", run_s, least=least))
    return Mix(str(seed), 12, 16, "64Gi", tree_of_queues(), tuple(jobs))


def mix_of(name: str) -> Mix:
    """Return the mix `teams`, or the drawn one of a number."""
    return teams() if name == "teams" else drawn(int(name))


class Tally:
    """Counts pods by what a watch of them shows."""

    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.evicted: dict[str, str] = {}
        """Uid of an evicted pod → its key."""
        self.completed: set[str] = set()

    def take(self, pod: dict[str, Any]) -> None:
        """Count one pod in as it is now."""
        meta, status = pod["metadata"], pod.get("status", {})
        uid = meta["uid"]
        if pod["spec"].get("nodeName"):
            self.placed.add(uid)
        if status.get("phase") == "Succeeded":
            self.completed.add(uid)
        if any(c.get("reason") == "PreemptionByScheduler" for c in status.get("conditions", ())):
            self.evicted[uid] = f"{meta['namespace']}/{meta['name']}"

    @property
    def most_often(self) -> tuple[str, int]:
        """Return the pod that was evicted most often, and how often."""
        return max(Counter(self.evicted.values()).most_common(1), default=("", 0))

    def __str__(self) -> str:
        name, times = self.most_often
        most = f", {name} {times} times" if times > 1 else ""
        return (
            f"placed {len(self.placed)}, evicted {len(self.evicted)}{most}, "
            f"completed {len(self.completed)}"
        )


class ChurnSimulation(Simulation):
    """The stack without troubles, on the nodes and queues of a mix."""

    def __init__(self, seed: int, mix: Mix, conf: str) -> None:
        self._mix = mix
        self.tally = Tally()
        super().__init__(seed, workload="steady", nemesis_names=())
        self.conf = conf
        self.cluster.watch("pods", lambda _, pod: self.tally.take(pod))

    def _create_cluster(self) -> None:
        for name in ("default", workloads.NAMESPACE):
            if name not in {n["metadata"]["name"] for n in self.cluster.items("namespaces")}:
                self.cluster.create("namespaces", {"metadata": {"name": name}})
        for number in range(self._mix.nodes):
            node = world.node(f"node-{number:02}", cpu=str(self._mix.cpu), memory=self._mix.memory)
            self.cluster.create("nodes", node)
        for queue in (world.queue("default", weight=1, reclaimable=True), *self._mix.queues):
            self.cluster.create("queues", queue)

    async def play(self, lasting_s: float) -> list[str]:
        """Submit the jobs at once and let time pass; return broken promises."""
        self.spawn(self._tick(), "time")
        for machine in self.machines:
            machine.start()
        await asyncio.sleep(5.0)
        for number, job in enumerate(self._mix.jobs):
            self.cluster.create("jobs", job.manifest(f"j{number:02}"), workloads.NAMESPACE)
        await asyncio.sleep(lasting_s)
        await self._end()
        return [str(violation) for violation in self.judge.violations]


class Result(NamedTuple):
    """A mix that was played."""

    tally: Tally
    violations: Sequence[str]


def play(mix: Mix, conf: str, *, seed: int = 0, lasting_s: float = MINUTE_S) -> Result:
    """Play a mix under a scheduler's configuration (a file's text)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scheduler.yaml"
        path.write_text(conf)

        async def main() -> Result:
            simulation = ChurnSimulation(seed, mix, str(path))
            violations = await simulation.play(lasting_s)
            return Result(simulation.tally, violations)

        rng = random.Random(f"think-{seed}")
        loop = lambda: SimLoop(seed, executor_delay_s=lambda: rng.uniform(0.0005, 0.02))  # noqa: E731
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(main())


def conf(*, volcano: bool = False) -> str:
    """Return the configuration of the mixes, with Volcano's evictions or ours."""
    text = (HERE / "churn.yaml").read_text()
    return f"volcanoEvictions: true\n{text}" if volcano else text


def main(arguments: Iterable[str] | None = None) -> None:
    """Play mixes and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mix", nargs="*", default=["teams", "1", "2"])
    parser.add_argument("--seconds", type=float, default=MINUTE_S)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conf", type=Path)
    parser.add_argument("--volcano-evictions", action="store_true")
    given = parser.parse_args(None if arguments is None else list(arguments))
    text = given.conf.read_text() if given.conf else conf(volcano=given.volcano_evictions)
    yaml.safe_load(text)
    for name in given.mix:
        result = play(mix_of(name), text, seed=given.seed, lasting_s=given.seconds)
        print(f"{name}: {result.tally}", *result.violations, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
