"""A PodGroup shows that it was admitted a second after its pods were made, at the latest."""

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.sim.simulation import Simulation, simulate

if TYPE_CHECKING:
    from shared.kube.wire import Request

SHOWN_S = 1.0
LATENCY_S = 0.5
"""What two hops of the bus and a request take at most where nothing is in the way."""


class Admissions:
    """When the first pod of each group was made, and when its status showed a phase first."""

    def __init__(self) -> None:
        self.made: dict[str, float] = {}
        self.shown: dict[str, float] = {}

    def plant(self, sim: Simulation) -> None:
        sim.judge.on_request.append(self.take)

    def take(self, _who: str, request: "Request") -> None:
        now = asyncio.get_running_loop().time()
        if request.method == "POST" and request.path.endswith("/pods"):
            meta = json.loads(request.body or b"{}")["metadata"]
            self.made.setdefault(meta["annotations"]["scheduling.k8s.io/group-name"], now)
        if request.method == "PATCH" and "/podgroups/" in request.path:
            phase = json.loads(request.body or b"{}").get("status", {}).get("phase", "")
            if phase not in ("", "Pending"):
                self.shown.setdefault(request.path.rpartition("/")[2], now)


@pytest.mark.parametrize("workload", ["steady", "burst"])
@pytest.mark.parametrize("seed", range(2))
def test_a_group_shows_its_admission_soon_after_its_pods_are_made(seed: int, workload: str) -> None:
    seen = Admissions()
    report = simulate(seed, workload=workload, nemesis_names=(), plant=seen.plant)
    assert report.ok, report.violations
    late = {
        group: round(seen.shown[group] - made, 2)
        for group, made in seen.made.items()
        if group in seen.shown
    }
    assert len(late) >= len(seen.made) / 2
    assert {group: s for group, s in late.items() if s > SHOWN_S + LATENCY_S} == {}
