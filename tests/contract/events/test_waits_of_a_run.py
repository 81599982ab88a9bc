"""Which events of a run tell that gangs wait: none of healthy gangs, one of each that cannot run.

An alert on `gang.unschedulable` is worth having only so.
"""

from collections import Counter
from pathlib import Path

import pytest

from pumice.events import GangUnschedulable
from pumice.local.control_plane import ControlPlane
from pumice.local.fleet import NodeShape
from tests.contract.events.events_of_a_run import NAMESPACE, Seen
from tests.support.api import Api, connect
from tests.support.pumice_run import pumice_run
from tests.support.roles import run_flags
from tests.support.stack import embedded_plane
from tests.support.wait import until
from tests.support.world import job, task

HEALTHY = 12
SIZE = 10
_REASONS = ("Unschedulable", "PodGroupPending", "FailedScheduling")


async def play(plane: ControlPlane, directory: Path) -> list[str]:
    """Run the services, submit all gangs, and return what is wrong with what is told of waits."""
    data = directory / "run"
    words: tuple[str, ...] = ("--kubeconfig", str(plane.kubeconfig), "--data-dir", str(data))
    words += tuple(run_flags(plane.kubeconfig))
    words += ("--log-dir", str(directory / "run-logs"))
    async with connect(plane.kubeconfig) as api, pumice_run(*words) as services:
        await services.ready()
        await plane.add_nodes(NodeShape(count=8, cpu="64", memory="256Gi"))
        seen = Seen.of(services, data)
        for number in range(HEALTHY):
            await api.create("jobs", job(f"healthy-{number}", task("work", SIZE)), NAMESPACE)
        await api.create("jobs", job("wide", task("work", 2, cpu="65")), NAMESPACE)
        await _all_run(api)
        await seen.comes("gang.unschedulable", job=f"{NAMESPACE}/wide")
        # More comes and goes beside it: the amounts in its reason change, the cause does not.
        await api.create("jobs", job("late", task("work", SIZE)), NAMESPACE)
        await seen.comes("job.phase", job=f"{NAMESPACE}/late", phase="Running")
        found = await _complaints(api, seen)
        await services.stop()
    return found


async def _all_run(api: Api) -> None:
    async def all_run() -> bool:
        jobs = await api.items("jobs", NAMESPACE)
        phases = Counter(j.get("status", {}).get("state", {}).get("phase") for j in jobs)
        return phases["Running"] == HEALTHY

    await until(all_run, deadline_s=90, describe="all healthy gangs run")


async def _complaints(api: Api, seen: Seen) -> list[str]:
    events = [received.event.data for received in await seen.all()]
    told = Counter(event.job for event in events if isinstance(event, GangUnschedulable))
    wanted = {f"{NAMESPACE}/wide": 1}
    found = [] if told == wanted else [f"gang.unschedulable is told of {dict(told)}"]
    for event in await api.items("events", NAMESPACE):
        about, reason = event["involvedObject"]["name"], event["reason"]
        if reason in _REASONS and not about.startswith("wide"):
            found.append(f"{about} has the Event {reason}: {event['message']}")
    return found


@pytest.mark.timeout(180)
async def test_only_the_gang_that_cannot_be_placed_is_told_to_wait_and_once(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path / "plane") as plane:
        assert await play(plane, tmp_path) == []
