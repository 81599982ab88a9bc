"""Pods that others delete the moment they succeed, while no controller looks, never run again."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from shared.api import keys
from tests.sim import nemeses, simulation
from tests.sim.simulation import simulate
from tests.sim.workloads import NAMESPACE, gang

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


async def cleared(sim: "Simulation") -> None:
    """Gangs whose pods somebody clears away as soon as they have succeeded."""
    jobs = 6
    for number in range(jobs):
        size = sim.rng.randint(2, 6)
        gang(sim, f"gang-{number}", size, run_s=sim.rng.uniform(2, 12))

    def clear(op: str, pod: dict) -> None:
        meta = pod["metadata"]
        is_done = pod.get("status", {}).get("phase") == "Succeeded"
        if op == "DELETED" or not is_done or "deletionTimestamp" in meta:
            return
        if keys.JOB_NAME in meta.get("annotations", {}) and meta["namespace"] == NAMESPACE:
            loop = asyncio.get_running_loop()
            loop.call_soon(sim.cluster.delete, "pods", NAMESPACE, meta["name"])

    sim.cluster.watch("pods", clear)
    await asyncio.sleep(1.0)


async def controllers_away(sim: "Simulation") -> None:
    """All controllers die, and are away while pods succeed and are cleared."""
    for _ in range(3):
        await asyncio.sleep(sim.rng.uniform(1, 4))
        dead = [machine for machine in sim.machines if machine.service == "controller"]
        for machine in dead:
            machine.kill()
        await asyncio.sleep(sim.rng.uniform(1, 8))
        for machine in dead:
            sim.restart_later(machine)
        await asyncio.sleep(4.0)


@pytest.mark.parametrize("seed", range(6))
def test_no_pod_runs_again_that_went_with_its_success_while_no_controller_looked(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(simulation.WORKLOADS, "cleared", cleared)
    monkeypatch.setitem(nemeses.NEMESES, "controllers_away", controllers_away)
    report = simulate(seed, workload="cleared", nemesis_names=("controllers_away", "delay"))
    assert report.ok, f"{report.story}\n{report.violations}"
