"""One process of a service inside the simulation: its parts, its ways out, its death.

The parts are made by the service's own composition root and run under its own supervisor. A kill
cuts every way out first and ends the tasks then, so that no clean-up is heard outside, as after
kill -9; what others hold of the process (leases, deliveries, connections) is left as it was.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.server import MemoryNats
from services.binder import app as binder
from services.binder.settings import BinderSettings
from services.cache import app as cache
from services.cache.settings import CacheSettings
from services.controller import app as controller
from services.controller.settings import ControllerSettings
from services.declarer import app as declarer
from services.declarer.settings import DeclarerSettings
from services.scheduler import app as scheduler
from services.scheduler.settings import SchedulerSettings
from shared.bus.connection import BusCredentials, BusOptions
from shared.bus.nats import NatsBus
from shared.contracts.streams import streams
from shared.kube.client import Kube
from shared.runtime.faults import POINTS
from shared.runtime.health import Liveness, Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine, QuarantineRegistry
from shared.runtime.service import Context
from shared.runtime.spans import NO_SPANS
from shared.runtime.supervise import Part, PartFailed, supervise
from shared.runtime.values import Secret
from shared.runtime.workqueue import WorkQueueMetrics
from tests.sim.simloop import SimClock
from tests.sim.three import MEMBERS, ThreeServers
from tests.sim.wire import CoreTransport

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

SERVICES = ("declarer", "cache", "scheduler", "binder", "controller")
GRACE_S = 10.0
AUDIT_S = 3.0
"""How often services compare what they hold with STATE; the judge takes a difference as a fault."""
STATE_KEY = Secret("of the simulation")
"""Jobs travel sealed, as they do wherever Pumice is installed."""


class SimFaults:
    """Stands for `Faults`: dies at a passage of a fault point without ending this process."""

    def __init__(self, die: Callable[[str], None]) -> None:
        self._die = die
        self._point = ""
        self._left = 0

    def arm(self, point: str, passage: int) -> None:
        """Die at the `passage`-th passage of `point` from now on."""
        assert point in POINTS, f"no fault point {point!r}"
        self._point, self._left = point, passage

    def disarm(self) -> None:
        """Die no more."""
        self._point = ""

    def point(self, name: str) -> None:
        if name == self._point:
            self._left -= 1
            if self._left == 0:
                self._die(name)


class Machine:
    """A replica of a service that can be started, stopped, killed and started again."""

    def __init__(
        self,
        sim: "Simulation",
        service: str,
        cluster_state: str,
        *,
        nats: MemoryNats | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> None:
        """`nats` is another server than the simulation's own: that of another installation.

        `flags` are settings other than those that each simulation gives a service.
        """
        self._sim = sim
        self._nats = nats or sim.nats
        self._flags = flags or {}
        self._life = 0
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._clients: list[MemoryClient] = []
        self.service = service
        self.instance = f"{service}-{cluster_state}"
        self.skew_s = 0.0
        self.alive: list[bool] = [False]
        self.transport: CoreTransport | None = None
        self.quarantined = QuarantineRegistry()
        """What the process that runs last has quarantined."""
        self.faults = SimFaults(self._die)

    @property
    def is_up(self) -> bool:
        """Tell whether the process runs."""
        return self.alive[0]

    def start(self) -> None:
        """Start a new process."""
        assert not self.is_up, f"{self.instance} runs already"
        sim = self._sim
        self._life += 1
        alive = self.alive = [True]
        self._stop = stop = asyncio.Event()
        self._clients = []
        self.faults = SimFaults(self._die)
        metrics = Metrics()
        self.quarantined = QuarantineRegistry()
        clock = SimClock(self.skew_s)
        log = sim.story.logger(self.instance, alive=lambda: alive[0])
        context = Context(
            service=self.service,
            instance=self.instance,
            clock=clock,
            rng=random.Random(f"{sim.seed}-{self.instance}-{self._life}"),
            log=log,
            readiness=Readiness(),
            liveness=Liveness(),
            metrics=metrics,
            work_queues=WorkQueueMetrics(metrics),
            quarantine=Quarantine(self.quarantined, clock=clock, log=log),
            faults=self.faults,
            spans=NO_SPANS,
        )
        self.transport = CoreTransport(
            sim.server,
            who=self.instance,
            network=sim.network,
            api=sim.api_faults,
            story=sim.story,
            judge=sim.judge,
            alive=lambda: alive[0],
        )
        bus = NatsBus(
            BusOptions(
                url="nats://sim",
                name=self.instance,
                credentials=BusCredentials(user=lambda: self.service, password=lambda: ""),
                on_request=self._asked,
                copied=streams("local").lease.name,
            ),
            clock=context.clock,
            log=context.log,
            on_status=context.readiness.gate("nats").set,
            rng=context.rng,
            dial=self._dial,
        )
        kube = Kube(transport=self.transport)
        sim.story.tell("nemesis", "started", instance=self.instance, life=self._life)
        self._task = sim.spawn(self._run(context, kube, bus, stop, alive), self.instance)

    def kill(self) -> None:
        """Kill -9."""
        if not self.is_up:
            return
        self._sim.story.tell("nemesis", "killed", instance=self.instance)
        self.alive[0] = False
        lost = self._sim.rng.random() < 0.5
        for client in self._clients:
            client.kill(lost=lost)
        assert self._task is not None
        self._task.cancel()

    def stop(self) -> None:
        """SIGTERM."""
        if self.is_up:
            self._sim.story.tell("nemesis", "stopped", instance=self.instance)
            self._stop.set()

    def break_connections(self) -> None:
        """Break its connections to NATS."""
        for client in self._clients:
            client.reset()

    async def cut_off(self, for_s: float) -> None:
        """Let nothing in or out for a while, and everything after it: others take over meanwhile.

        What the process publishes as the old holder arrives when another process is the holder.
        """
        transport, clients = self.transport, list(self._clients)
        if transport is None:
            return
        transport.open_way.clear()
        for client in clients:
            client.hold()
        await asyncio.sleep(for_s)
        transport.open_way.set()
        for client in clients:
            client.release()

    def _asked(self, operation: str) -> None:
        self._sim.asked.take(self.instance, operation)

    def _dial(self) -> MemoryClient:
        client = MemoryClient(self._nats)
        self._clients = [old for old in self._clients if old.is_connected]
        self._clients.append(client)
        if not self.is_up:
            client.kill(lost=True)
        return client

    def _die(self, point: str) -> None:
        self._sim.story.tell("nemesis", "fault point reached", point=point, instance=self.instance)
        self.kill()
        self._sim.restart_later(self)

    async def _run(
        self, context: Context, kube: Kube, bus: NatsBus, stop: asyncio.Event, alive: list[bool]
    ) -> None:
        async def start() -> Sequence[Part]:
            replicas = MEMBERS if isinstance(self._nats, ThreeServers) else 1
            given = _given(self.service, self._sim.conf, replicas)
            flags = {"audit_interval": AUDIT_S, **given, **self._flags}
            return _compose(self.service, context, kube=kube, bus=bus, flags=flags)

        try:
            await supervise(
                start,
                first=[],
                stop=stop,
                clock=context.clock,
                grace_s=GRACE_S,
                on_stuck=lambda names: self._sim.judge.broken(
                    self.instance, f"{self.instance} is stuck in {names}"
                ),
            )
        except PartFailed as failure:
            if alive[0]:
                self._sim.judge.broken(
                    self.instance, f"{self.instance} failed: {failure}: {failure.__cause__!r}"
                )
        finally:
            alive[0] = False


def _given(service: str, conf: str, replicas: int) -> Mapping[str, Any]:
    """Return the settings of a service that are not its defaults."""
    match service:
        case "declarer":
            return {"stream_replicas": replicas}
        case "scheduler":
            return {"scheduler_conf": conf}
        case "cache" | "controller":
            return {"state_key": STATE_KEY}
        case _:
            return {}


def _compose(
    service: str, context: Context, *, kube: Kube, bus: NatsBus, flags: Mapping[str, Any]
) -> Sequence[Part]:
    match service:
        case "declarer":
            return declarer.compose(DeclarerSettings(**flags), context, bus=bus)
        case "cache":
            return cache.compose(CacheSettings(**flags), context, kube=kube, leases=kube, bus=bus)
        case "scheduler":
            return scheduler.compose(SchedulerSettings(**flags), context, bus=bus)
        case "binder":
            return binder.compose(BinderSettings(**flags), context, kube=kube, bus=bus)
        case _:
            return controller.compose(ControllerSettings(**flags), context, kube=kube, bus=bus)
