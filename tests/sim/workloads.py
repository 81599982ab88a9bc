"""What users submit. A workload says what every job must have become when all is calm again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.support import world

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

NAMESPACE = "users"
STRANGERS = "strangers"
"""Namespace of the tenant who stores hostile objects."""
NODES, NODE_CPU = 5, 8
"""Forty CPUs: a burst does not fit at once, every single gang does."""

Workload = Callable[["Simulation"], Awaitable[None]]


def gang(
    sim: "Simulation",
    name: str,
    size: int,
    *,
    cpu: int = 1,
    run_s: float = 3.0,
    least: int | None = None,
    **spec: object,
) -> None:
    """Submit a gang that ends by itself: each pod runs for `run_s`."""
    annotations = {"pumice.dev/run-seconds": f"{run_s:.1f}"}
    task = world.task("w", size, cpu=str(cpu), annotations=annotations)
    body = world.job(name, task, min_available=least, **spec)
    body["spec"].setdefault("queue", "default")
    sim.cluster.create("jobs", body, NAMESPACE)
    sim.expect(f"{NAMESPACE}/{name}", "Completed", least=size if least is None else least)


async def steady(sim: "Simulation") -> None:
    """Gangs that come one after the other, as on an ordinary day."""
    for number in range(sim.rng.randint(6, 10)):
        size = sim.rng.randint(1, 6)
        gang(sim, f"gang-{number}", size, cpu=sim.rng.randint(1, 3), run_s=sim.rng.uniform(1, 8))
        await asyncio.sleep(sim.rng.expovariate(0.6))


async def burst(sim: "Simulation") -> None:
    """More at once than the nodes can hold: gangs wait for each other's end."""
    await asyncio.sleep(sim.rng.uniform(0, 2))
    for number in range(sim.rng.randint(6, 9)):
        size = sim.rng.randint(3, 10)
        gang(sim, f"burst-{number}", size, cpu=sim.rng.randint(1, 3), run_s=sim.rng.uniform(1, 5))


async def elastic(sim: "Simulation") -> None:
    """Jobs that begin with a part of their pods and grow into what is free."""
    for number in range(sim.rng.randint(4, 6)):
        size = sim.rng.randint(6, 16)
        least = sim.rng.randint(1, 4)
        run_s = sim.rng.uniform(2, 6)
        gang(sim, f"elastic-{number}", size, cpu=2, run_s=run_s, least=least)
        await asyncio.sleep(sim.rng.uniform(0, 3))


async def ladder(sim: "Simulation") -> None:
    """Jobs of rising priority on full nodes: each step of the ladder evicts the one below."""
    for step, priority in enumerate((10, 100, 1000)):
        for number in range(3):
            gang(
                sim,
                f"step-{step}-{number}",
                sim.rng.randint(4, 8),
                cpu=2,
                run_s=sim.rng.uniform(6, 12),
                least=1,
                priorityClassName=f"step-{priority}",
            )
        await asyncio.sleep(sim.rng.uniform(3, 6))


WORKLOADS: dict[str, Workload] = {
    "steady": steady,
    "burst": burst,
    "elastic": elastic,
    "ladder": ladder,
}
PREEMPTING = {"ladder"}
"""Workloads that need the scheduler to preempt."""
PRIORITIES = {"step-10": 10, "step-100": 100, "step-1000": 1000}
