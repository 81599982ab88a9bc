"""Released room goes to others when the claimant cannot use it any more (SS11), in virtual time.

A gang has others evicted for it. While they still stop, something happens to the gang, to its queue
or to its node. Then the room must not stay idle: the gang completes elsewhere, the job behind it,
which is entitled to evict nobody, completes in its room, or those that were evicted are back.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.sim import workloads
from tests.sim.churn import ChurnSimulation, Mix
from tests.sim.simloop import SimLoop
from tests.support import world
from tests.support.api import path

CONF = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: overcommit, arguments: {overcommit-factor: 10.0}}
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: capacity}
  - {name: nodeorder}
"""
QUEUES = (
    world.queue("borrower", weight=1, deserved={"cpu": 4}, capability={"cpu": 8}),
    world.queue("owner", weight=1, deserved={"cpu": 4}),
    world.queue("guest", weight=1, deserved={"cpu": 1}),
)
NODE_CPU = 4
MIX = Mix("claims", 2, NODE_CPU, "16Gi", QUEUES, ())
NAMESPACE = workloads.NAMESPACE
STOP_S, RUN_S, WITHIN_S = 4, 3, 40.0


class ClaimSimulation(ChurnSimulation):
    """`borrower` fills two nodes of 4 CPUs; half of it goes for `claimant`, a gang of `owner`."""

    async def play_claim(
        self, change: Callable[["ClaimSimulation"], None], ends: dict[str, str]
    ) -> dict[str, str]:
        """Have a claim, let something change while victims stop, and wait for these phases.

        Returns those that the jobs have come to.
        """
        self.spawn(self._tick(), "time")
        for machine in self.machines:
            machine.start()
        await asyncio.sleep(5.0)
        self._submit("borrower", "borrower", 8, 1, 1000, min_available=1)
        await self._until(lambda: self._running("borrower") == 8, within_s=20.0)
        self._submit("claimant", "owner", 2, 2, RUN_S, only={"claim": "yes"})
        await self._until(lambda: len(self.claims()) == 2, within_s=20.0)
        assert len(self.claims()) == 2
        self._submit("behind", "guest", 2, 2, RUN_S)
        await asyncio.sleep(1.0)
        change(self)
        await self._until(lambda: self._phases(ends) == ends, within_s=WITHIN_S)
        reached = self._phases(ends)
        await self._end()
        return reached

    def _phases(self, of: Iterable[str]) -> dict[str, str]:
        """Return the phases of jobs; of a job that is evicted from, how many pods run."""
        return {
            job: str(self._running(job))
            if job == "borrower"
            else self.judge.phase(f"{NAMESPACE}/{job}")
            for job in of
        }

    def claims(self) -> list[str]:
        """Return the nominated nodes of the claimant's pods."""
        return [node for pod in self._pods("claimant") if (node := _claim_of(pod))]

    def change(self, plural: str, name: str, with_: Callable[[dict[str, Any]], None]) -> None:
        """Change an object as a user does."""
        url = path(plural, NAMESPACE, name)
        body = self.cluster.request("GET", url)
        with_(body)
        self.cluster.request("PUT", url, body)

    def _submit(
        self,
        name: str,
        queue: str,
        pods: int,
        cpu: int,
        run_s: int,
        *,
        only: dict[str, str] | None = None,
        min_available: int | None = None,
    ) -> None:
        notes = {"pumice.dev/run-seconds": str(run_s), "pumice.dev/stop-seconds": str(STOP_S)}
        task = world.task("w", pods, cpu=str(cpu), annotations=notes)
        task["template"]["spec"] |= {"tolerations": [], "nodeSelector": only or {}}
        body = world.job(name, task, queue=queue, min_available=min_available)
        self.cluster.create("jobs", body, NAMESPACE)

    def _pods(self, job: str) -> list[dict[str, Any]]:
        pods = self.cluster.items("pods", NAMESPACE)
        return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{job}-")]

    def _running(self, job: str) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self._pods(job))

    def add_node(self) -> None:
        """Add one more node that the claimant may use."""
        node = world.node("node-more", cpu=str(NODE_CPU), memory="16Gi")
        _label(node)
        self.cluster.create("nodes", node)

    def _create_cluster(self) -> None:
        super()._create_cluster()
        for node in self.cluster.items("nodes"):
            self.change("nodes", node["metadata"]["name"], _label)


def _claim_of(pod: dict[str, Any]) -> str:
    return str(pod["status"].get("nominatedNodeName", ""))


def _label(node: dict[str, Any]) -> None:
    node["metadata"]["labels"]["claim"] = "yes"


def the_claimant_is_deleted(sim: ClaimSimulation) -> None:
    sim.cluster.delete("jobs", NAMESPACE, "claimant")


def its_node_is_cordoned_and_another_comes(sim: ClaimSimulation) -> None:
    for name in set(sim.claims()):
        sim.change("nodes", name, lambda node: node["spec"].update(unschedulable=True))
    sim.add_node()


def its_node_is_gone_and_another_comes(sim: ClaimSimulation) -> None:
    for name in set(sim.claims()):
        sim.cluster.delete("nodes", "", name)
    sim.add_node()


def no_node_takes_it(sim: ClaimSimulation) -> None:
    for node in sim.cluster.items("nodes"):
        name = node["metadata"]["name"]
        sim.change("nodes", name, lambda node: node["metadata"]["labels"].pop("claim"))


def its_queue_has_less(sim: ClaimSimulation) -> None:
    less = {"capability": {"cpu": 1}, "deserved": {"cpu": 1}}
    sim.change("queues", "owner", lambda queue: queue["spec"].update(less))


def _resize(sim: ClaimSimulation, pods: int) -> None:
    def resize(job: dict[str, Any]) -> None:
        job["spec"]["minAvailable"] = job["spec"]["tasks"][0]["replicas"] = pods

    sim.change("jobs", "claimant", resize)


def the_gang_grows_beyond_the_room(sim: ClaimSimulation) -> None:
    _resize(sim, 5)


def the_gang_shrinks(sim: ClaimSimulation) -> None:
    _resize(sim, 1)


def play(change: Callable[[ClaimSimulation], None], ends: dict[str, str]) -> dict[str, str]:
    """Play a claim with a change in virtual time; return the phases that jobs have come to."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "scheduler.yaml"
        conf.write_text(CONF)

        async def main() -> dict[str, str]:
            simulation = ClaimSimulation(1, MIX, str(conf))
            reached = await simulation.play_claim(change, ends)
            assert simulation.judge.violations == []
            return reached

        rng = random.Random("think")
        loop = lambda: SimLoop(1, executor_delay_s=lambda: rng.uniform(0.0005, 0.02))  # noqa: E731
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(main())


WAITS = {"claimant": "Pending", "behind": "Completed"}
STARTS = {"claimant": "Completed", "behind": "Completed"}


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (the_claimant_is_deleted, {"claimant": "", "behind": "Completed"}),
        (its_node_is_cordoned_and_another_comes, STARTS),
        (its_node_is_gone_and_another_comes, STARTS),
        (no_node_takes_it, WAITS),
        (its_queue_has_less, WAITS),
        (the_gang_grows_beyond_the_room, WAITS),
        (the_gang_shrinks, {"claimant": "Completed", "borrower": "8"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_room_of_a_claim_is_used_after(
    change: Callable[[ClaimSimulation], None], ends: dict[str, str]
):
    assert play(change, ends) == ends
