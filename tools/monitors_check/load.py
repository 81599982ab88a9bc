"""The load under which a cluster is watched: the demo, a preemption, then small gangs all the time.

Together they show every series of dashboards and alerts but those that need a fault.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Any, Final

import aiohttp

from pumice.demo.output import choose
from pumice.demo.story import Demo
from shared.kube.config import connect
from shared.runtime.clock import SystemClock
from tests.support import world
from tests.support.api import Api, ApiError, path
from tests.support.wait import until

NAMESPACE: Final = "default"
_PERIOD_S: Final = 1.0
_DEMO_S: Final = 120.0
_PLACED_S: Final = 60.0
_ANSWER_S: Final = 5.0
_ALL_CPUS: Final = 64
"""Of the demo's machines."""
_QUESTIONS: Final = "/apis/visibility.pumice.dev/v1alpha1/namespaces/default/pendingjobs"


async def post(api: Api, name: str, *, dry_run: bool = False, **spec: Any) -> None:  # noqa: ANN401
    """Create a gang of two that runs for two seconds and is removed soon. Raises ApiError."""
    notes = {"pumice.dev/run-seconds": "2"}
    task = world.task("w", 2, annotations=notes)
    body = world.job(name, task, ttlSecondsAfterFinished=5, **spec)
    params = {"dryRun": "All"} if dry_run else {}
    async with asyncio.timeout(_ANSWER_S):
        await api.request("POST", path("jobs", NAMESPACE), body, params=params)


async def play_demo(kubeconfig: str) -> None:
    """Play the demo's jobs to their end. Raises DemoError."""
    clock = SystemClock()
    output = choose(sys.stdout, plain=True)
    async with await connect(kubeconfig, user_agent="monitors-check", clock=clock) as kube:
        demo = Demo(
            kube=kube,
            output=output,
            clock=clock,
            began_s=clock.monotonic(),
            versions="a local cluster",
            deaths=tuple,
        )
        try:
            await demo.play(deadline_s=_DEMO_S)
        finally:
            output.close()


async def preempt(api: Api) -> None:
    """Have an urgent gang take the place of pods that can be spared, and remove both jobs."""
    for name, value in (("spare", 1), ("urgent", 1000)):
        body = {"metadata": {"name": name}, "value": value}
        await api.create("priorityclasses", body)
    spare = world.job(
        "spare", world.task("w", _ALL_CPUS), min_available=1, priorityClassName="spare"
    )
    urgent = world.job("urgent", world.task("w", 4), priorityClassName="urgent")
    for job, pods in ((spare, _ALL_CPUS), (urgent, 4)):
        await api.create("jobs", job, NAMESPACE)
        name = job["metadata"]["name"]

        async def runs(name: str = name, pods: int = pods) -> bool:
            status = (await api.get("jobs", NAMESPACE, name)).get("status", {})
            return status.get("running") == pods

        await until(runs, deadline_s=_PLACED_S, describe=f"job {name} runs", every_s=0.2)
    for job in (spare, urgent):
        await api.delete("jobs", NAMESPACE, job["metadata"]["name"])


async def go_on(api: Api) -> None:
    """Post gangs and ask about those that wait, for ever, whatever is broken meanwhile."""
    number = 0
    while True:
        number += 1
        with suppress(ApiError, OSError, aiohttp.ClientError):
            await post(api, f"gang-{number}")
            async with asyncio.timeout(_ANSWER_S):
                await api.request("GET", _QUESTIONS)
        await asyncio.sleep(_PERIOD_S)
