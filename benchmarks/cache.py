"""The work of a cache that takes over: `python -m benchmarks.cache --pods 50000`.

Two replicas of the cache, an API server and a NATS server, all in one process and on virtual time.
The replica that leads is killed and a job is created in that moment. Told are the CPU seconds and
the virtual ones until STATE tells of the job, and until every kind is complete. The CPU seconds
hold the work of both servers; the virtual ones are what is waited for: that the kill is noticed,
and bookmarks. On a machine with nothing else to do the time is the sum of both, or less.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable

from services.cache.kinds import rows
from shared.contracts import codec
from shared.contracts.messages import Marker
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.sim.machine import Machine
from tests.sim.simloop import SimLoop
from tests.sim.simulation import Simulation
from tests.support import world
from tests.support.wait import until

KINDS = len(rows(["volcano"]))
STATE = streams("local").state.name
SUBJECTS = Subjects(cluster="local")
NAMESPACE = "default"
DEADLINE_S = 600


class Stage:
    """Two caches on a cluster of so many pods."""

    def __init__(self, pods: int, nodes: int) -> None:
        self.sim = Simulation(1, workload="hostile", nemesis_names=())
        for number in range(nodes):
            self.sim.cluster.create("nodes", world.node(f"n{number}", cpu="64"))
        for number in range(pods):
            body = world.pod(f"p{number}", cpu="1", nodeName=f"n{number % nodes}")
            self.sim.cluster.create("pods", body, NAMESPACE)
        self.caches = [Machine(self.sim, "cache", letter) for letter in "ab"]

    async def run(self) -> dict[str, dict[str, float]]:
        """Measure one takeover."""
        Machine(self.sim, "declarer", "a").start()
        self.sim.spawn(self._tick(), "time")
        for cache in self.caches:
            cache.start()
        await until(self._is_complete, deadline_s=DEADLINE_S)
        await asyncio.sleep(60)  # the standby has followed what there is
        leader = next(c for c in self.caches if c.instance == self._marker().instance)
        leader.kill()
        self.sim.cluster.create("jobs", world.job("late", world.task("t", 1)), NAMESPACE)
        cpu_s, virtual_s = time.process_time(), asyncio.get_running_loop().time()

        async def taken(is_so: Callable[[], bool]) -> dict[str, float]:
            await until(is_so, deadline_s=DEADLINE_S)
            waited_s = asyncio.get_running_loop().time() - virtual_s
            return {"cpu_s": round(time.process_time() - cpu_s, 2), "waited_s": round(waited_s, 2)}

        told = await taken(lambda: self._last(SUBJECTS.state("jobs", f"{NAMESPACE}/late")))
        complete = await taken(
            lambda: self._is_complete() and self._marker().instance != leader.instance
        )
        return {"told": told, "complete": complete}

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.sim.server.tick()

    def _last(self, subject: str) -> bytes | None:
        stream = self.sim.nats.jetstream.streams.get(STATE)
        stored = stream.last_of(subject) if stream else None
        return stored.payload if stored else None

    def _marker(self) -> Marker:
        payload = self._last(SUBJECTS.marker)
        none = Marker(complete=(), bookmarks={}, time=0.0, instance="")
        return codec.decode_marker(payload) if payload else none

    def _is_complete(self) -> bool:
        return len(self._marker().complete) == KINDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    asked = parser.parse_args()

    async def measured() -> dict[str, dict[str, float]]:
        return await Stage(asked.pods, asked.nodes).run()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        print(json.dumps(runner.run(measured()), indent=1))


if __name__ == "__main__":
    main()
