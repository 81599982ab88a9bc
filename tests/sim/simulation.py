"""One simulation: a seed decides the workload, what goes wrong, every delay and every order.

The whole stack runs in one process on virtual time: the four services from their composition
roots on the real bus adapter against NATS in memory, and on the embedded API server's core with
its fake kubelets. First everything goes wrong for a while, then it is calm, and then every job
must come to its end.
"""

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pumice.embedded.memory_nats.server import MemoryNats
from pumice.embedded.memory_nats.stream import StoredMessage
from services.cache.adapters import watcher
from shared.contracts.permissions import permissions
from tests.sim import hostile, lasting_messages, nemeses, workloads
from tests.sim.cluster import Cluster, Judge, Refused
from tests.sim.intents import IntentOutcomes
from tests.sim.machine import SERVICES, Machine
from tests.sim.network import ApiFaults, FaultyNetwork
from tests.sim.request_counts import RequestCounts
from tests.sim.simloop import SimClock, SimLoop
from tests.sim.story import Story
from tests.sim.three import ThreeServers
from tests.support import world
from tests.support.api_server import ApiServer

TICK_S = (0.01, 0.15)
"""How soon garbage collection and kubelets notice what they have to do."""
SETTLE_S = 60.0
"""How long everything may take to come to its end when nothing goes wrong any more."""
POLL_S = 0.5
CLEAN_S = 5.0
"""How long the last deletions may take to reach the streams after that."""
HERE = Path(__file__).parent
CONFS = {
    **dict.fromkeys(workloads.PREEMPTING, str(HERE / "preempt.yaml")),
    "hostile": str(HERE / "hostile.yaml"),
}
"""Workload → configuration of the scheduler, where it is not the default."""
CRDS = Path(__file__).parents[2] / "k8s" / "crds"


WORKLOADS = {**workloads.WORKLOADS, "hostile": hostile.hostile}
"""What may be played; seeds choose among the ordinary ones only."""


class Report(NamedTuple):
    """How a simulation ended."""

    seed: int
    workload: str
    nemeses: tuple[str, ...]
    violations: tuple[str, ...]
    digest: str
    steps: int
    virtual_s: float
    settled_s: float
    """How long it took, from the moment when nothing went wrong any more, until all was done."""
    story: str
    """What concerns the first violation; "" when there is none."""

    @property
    def ok(self) -> bool:
        return not self.violations


class Simulation:
    """The parts of one simulation; made inside its loop."""

    def __init__(self, seed: int, *, workload: str, nemesis_names: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        clock = SimClock()
        self.seed = seed
        self.rng = random.Random(f"events-{seed}")
        self.story = Story(loop.time)
        self.asked = RequestCounts(loop.time)
        self.network = FaultyNetwork(random.Random(f"network-{seed}"))
        self.api_faults = ApiFaults(random.Random(f"api-{seed}"))
        self.nats = self._make_nats(clock.now, of_three="nats_of_three" in nemesis_names)
        self.server = make_server(clock.now, seed)
        self.cluster = Cluster(self.server, self.story)
        self.intents = IntentOutcomes("local")
        self.nats.stored = self._stored
        self.conf = CONFS.get(workload, "")
        self._workload = workload
        self._nemeses = tuple(nemesis_names)
        self._expected: dict[str, str] = {}
        self._least: dict[str, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._over = False
        self._settled_s = 0.0
        self._tick_rng = random.Random(f"pace-{seed}")
        self._create_cluster()
        self.judge = Judge(self.cluster, self.story)
        self.judge.strangers = workloads.STRANGERS
        self.machines = [Machine(self, service, "a") for service in SERVICES]
        for service in SERVICES:
            if self.rng.random() < 0.4:
                self.machines.append(Machine(self, service, "b"))

    def _make_nats(self, wall: Callable[[], float], *, of_three: bool) -> MemoryNats:
        permitted = {user: allowed.publish for user, allowed in permissions("local").items()}
        if not of_three:
            return MemoryNats(wall=wall, network=self.network, permissions=permitted)
        rng = random.Random(f"nats-{self.seed}")
        return ThreeServers(wall=wall, network=self.network, permissions=permitted, rng=rng)

    def tell(self, what: str, /, **about: object) -> None:
        """Tell what the nemesis does."""
        self.story.tell("nemesis", what, **about)

    def expect(self, key: str, phase: str, *, least: int) -> None:
        """Note that a job must come to a phase, and how many of its pods belong together."""
        self._expected[key] = phase
        self._least[key] = least

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something beside the others; it is awaited at the end."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = None
        return task

    def add(self, service: str, letter: str) -> None:
        """Start one more replica of a service."""
        machine = Machine(self, service, letter)
        self.machines.append(machine)
        machine.start()

    def restart_later(self, machine: Machine) -> None:
        """Start a machine again a little later."""
        self.spawn(self._restart_later(machine, self.rng.uniform(0.05, 4.0)), "restart_later")

    async def _restart_later(self, machine: Machine, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while machine.is_up and not self._over:  # it ends in order, and takes its time
            await asyncio.sleep(0.1)
        if not self._over:
            machine.start()

    async def run(self) -> None:
        """Play it from beginning to end."""
        self.spawn(self._tick(), "time")
        for machine in self.rng.sample(self.machines, len(self.machines)):
            machine.start()
            await asyncio.sleep(self.rng.uniform(0, 1))
        acting = [self.spawn(WORKLOADS[self._workload](self), "workload")]
        acting += [self.spawn(self._run_nemesis(name), f"nemesis {name}") for name in self._nemeses]
        await asyncio.sleep(nemeses.CHAOS_S)
        await asyncio.wait(acting)
        self.heal()
        healed = asyncio.get_running_loop().time()
        await self._until(self._is_settled, within_s=SETTLE_S)
        self._settled_s = asyncio.get_running_loop().time() - healed
        await self._until(self._streams_are_clean, within_s=CLEAN_S)
        self._check_the_end()
        await self._end()

    async def _end(self) -> None:
        """Kill what runs, and raise what any task beside it failed with."""
        self._over = True
        for machine in self.machines:
            machine.kill()
        while running := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(running)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error

    def break_watches(self) -> None:
        """Break every connection that a watch of a service is on."""
        for machine in self.machines:
            if machine.transport is not None:
                machine.transport.break_watches()

    def heal(self) -> None:
        """Mend everything: from here on nothing goes wrong."""
        self.tell("calm")
        self.network.heal()
        self.api_faults.heal()
        for machine in self.machines:
            machine.faults.disarm()

    async def _run_nemesis(self, name: str) -> None:
        await asyncio.sleep(self.rng.uniform(0, 4))
        await nemeses.NEMESES[name](self)

    async def _tick(self) -> None:
        while not self._over:
            await asyncio.sleep(self._tick_rng.uniform(*TICK_S))
            self.server.tick()

    def _create_cluster(self) -> None:
        """Make the nodes and what a cluster has besides."""
        for body in ("default", workloads.NAMESPACE, workloads.STRANGERS):
            try:
                self.cluster.create("namespaces", {"metadata": {"name": body}})
            except Refused:
                assert body == "default", "only that one is there from the beginning"
        for number in range(workloads.NODES):
            node = world.node(f"node-{number}", cpu=str(workloads.NODE_CPU))
            self.cluster.create("nodes", node)
        for name, value in workloads.PRIORITIES.items():
            self.cluster.create("priorityclasses", {"metadata": {"name": name}, "value": value})
        queue = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "default"},
            "spec": {"weight": 1, "reclaimable": True},
        }
        self.cluster.create("queues", queue)

    def _unfinished(self) -> list[str]:
        return [
            f"job {key} is {self.judge.phase(key) or 'without a phase'} and not {phase}"
            for key, phase in sorted(self._expected.items())
            if self.judge.phase(key) != phase
        ]

    async def _until(self, is_so: Callable[[], bool], *, within_s: float) -> None:
        """Wait until something is so, for `within_s` at most."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while loop.time() < end and not is_so():
            await asyncio.sleep(POLL_S)

    def _is_settled(self) -> bool:
        """Tell whether all has come to its end, or there is no need to wait for it any more."""
        return bool(self.judge.violations) or not (self._unfinished() or self.intents.open())

    def _streams_are_clean(self) -> bool:
        """Tell whether the last deletions have reached the streams."""
        return not any(lasting_messages.lasting(self.nats, self.cluster))

    def _check_the_end(self) -> None:
        for text in self._unfinished():
            self.judge.broken(text.split()[1], text)
        for gang, placed in sorted(self._partial_gangs().items()):
            self.judge.broken(gang, f"gang {gang} has only {placed} pods on nodes")
        for identity, text in self.intents.broken():
            self.judge.broken(identity, text)
        for subject, text in lasting_messages.lasting(self.nats, self.cluster):
            self.judge.broken(subject, text)
        for entry in [entry for entry in self.story.entries if entry.what == "state_differs"]:
            self.judge.broken(entry.who, f"{entry.who}: {entry.about['reason']}")

    def _partial_gangs(self) -> dict[str, int]:
        minimum = {}
        for pod in self.judge.pods.values():
            notes = pod["metadata"].get("annotations", {})
            key = f"{workloads.NAMESPACE}/{notes.get('volcano.sh/job-name')}"
            if key in self._least and "scheduling.k8s.io/group-name" in notes:
                group = notes["scheduling.k8s.io/group-name"]
                minimum[f"{workloads.NAMESPACE}/{group}"] = self._least[key]
        return self.judge.partial_gangs(minimum)

    def _stored(self, stream: str, message: StoredMessage) -> None:
        told = self.intents.take(message)
        if told is not None:
            what, about = told
            self.story.tell("nats", what, seq=message.sequence, **about)

    def report(self, about: str = "") -> Report:
        """Return how it ended, with the story of `about` or of the first violation."""
        loop = asyncio.get_running_loop()
        violations = self.judge.violations
        key = about or (violations[0].key if violations else "")
        return Report(
            seed=self.seed,
            workload=self._workload,
            nemeses=self._nemeses,
            violations=tuple(str(violation) for violation in violations),
            digest=self.story.digest(),
            steps=loop.steps if isinstance(loop, SimLoop) else 0,
            virtual_s=loop.time(),
            settled_s=self._settled_s,
            story=self.story.about(self._related(key)) if key else "",
        )

    def _related(self, key: str) -> list[str]:
        """Return the words by which the story of `key` is found: the key and its uid."""
        pod = self.judge.pods.get(key)
        return [key, pod["metadata"]["uid"] if pod else ""]


def choose(seed: int) -> tuple[str, tuple[str, ...]]:
    """Return the workload and the nemeses of a seed."""
    rng = random.Random(f"choice-{seed}")
    workload = rng.choice(sorted(workloads.WORKLOADS))
    return workload, tuple(rng.sample(sorted(nemeses.NEMESES), rng.randint(1, 3)))


def simulate(
    seed: int,
    *,
    workload: str = "",
    nemesis_names: Sequence[str] | None = None,
    plant: Callable[[Simulation], None] = lambda _: None,
    about: str = "",
) -> Report:
    """Run a seed; `plant` may put a bug into the simulation before it begins."""
    chosen, chosen_nemeses = choose(seed)
    workload = workload or chosen
    names = chosen_nemeses if nemesis_names is None else tuple(nemesis_names)

    async def main() -> Report:
        simulation = Simulation(seed, workload=workload, nemesis_names=names)
        plant(simulation)
        await simulation.run()
        return simulation.report(about)

    thinking = random.Random(f"think-{seed}")
    # Clusters are small here: how a new leader of the cache treats many objects has to be drawn.
    much, watcher.RELIST_MAX = watcher.RELIST_MAX, random.Random(f"much-{seed}").choice((0, 500))
    collecting = gc.isenabled()
    gc.disable()  # finalizers must not run at a moment that no seed decides
    try:
        with asyncio.Runner(
            loop_factory=lambda: SimLoop(
                seed, executor_delay_s=lambda: thinking.uniform(0.0005, 0.02)
            )
        ) as runner:
            return runner.run(main())
    finally:
        watcher.RELIST_MAX = much
        if collecting:
            gc.enable()
            gc.collect()


@cache
def definitions() -> tuple[dict[str, Any], ...]:
    """Return our CRDs, as they are applied to a real cluster."""
    files = sorted(CRDS.glob("*_*.yaml"))
    return tuple(crd for file in files for crd in yaml.safe_load_all(file.read_text()) if crd)


def make_server(now: Callable[[], float], seed: int) -> ApiServer:
    """Return an API server with our kinds and nothing in it."""
    numbers = count(1)
    return ApiServer(now=now, uids=lambda: f"{seed:08d}-{next(numbers):06d}", crds=definitions())


def play(seed: int, workload: str, nemesis_names: Sequence[str] | None) -> Report:
    """Run one seed in a process of its own, which imports this module and no `__main__`."""
    return simulate(seed, workload=workload, nemesis_names=nemesis_names)
