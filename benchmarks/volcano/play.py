"""Plays one case on one system: a new control plane, what is there before, the load, the record."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.report.observe import Load, observe
from benchmarks.report.record import Record
from benchmarks.stack import NAMESPACE, many
from benchmarks.volcano.cases import Case
from benchmarks.volcano.systems import System
from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from tests.support.api import Api, connect
from tests.support.wait import until

_BEFORE_S: Final = 300.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One case on one system in one round."""

    case: str
    system: str
    round: int
    record: Record
    next_bind_s: float | None = None
    """From the kill of the scheduler to the first bind of a job that was posted after it."""


async def play(
    case: Case, name: str, system: System, number: int, *, deadline_s: float = 300.0
) -> Result:
    """Play a case on a system; at the deadline the record has what was seen until then."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{case.name}-{name}-"))
    options = ControlPlaneOptions(directory=folder / "plane")
    async with ControlPlane(options, parts.require()) as plane:
        await plane.add_nodes(*case.nodes)
        async with system(plane, folder, case.conf) as running, connect(plane.kubeconfig) as api:
            if case.hyper_nodes:
                await plane.add_hyper_nodes(*case.hyper_nodes)
            for plural, body in case.objects:
                await api.create(plural, body)
            if case.before is not None:
                await _submit(api, case.before)
            server = plane.processes["kube-apiserver"].pid
            pids = {**running.pids, "kube-apiserver": server}
            killed: list[float] = []

            async def kill(after_s: float) -> None:
                begun = time.monotonic()
                await asyncio.sleep(after_s)
                killed.append(time.monotonic() - begun)
                await running.replace_scheduler()

            meanwhile = None if case.kill_after_s is None else kill(case.kill_after_s)
            record = await observe(
                api, case.load, pids, many=many, deadline_s=deadline_s, meanwhile=meanwhile
            )
    after = next_bind_s(record, killed[0]) if killed else None
    return Result(case=case.name, system=name, round=number, record=record, next_bind_s=after)


def next_bind_s(record: Record, killed_s: float) -> float | None:
    """Return the seconds from the kill to the first bind of a job posted after it, if any."""
    later = {job for job, at in record.submitted_s.items() if at > killed_s}
    binds = [at for pod, at in record.seen_s["bound"].items() if record.job_of[pod] in later]
    return min(binds) - killed_s if binds else None


async def _submit(api: Api, load: Load) -> None:
    """Submit what is there before, and wait until its pods run or its PodGroups exist."""

    async def create(number: int) -> None:
        await api.create(load.plural, load.objects[number], NAMESPACE)

    await many(create, range(len(load.objects)))

    async def is_there() -> bool:
        if not load.pods:
            return len(await api.items("podgroups", NAMESPACE)) >= len(load.objects)
        running = await api.items("pods", NAMESPACE, fieldSelector="status.phase=Running")
        return len(running) >= load.pods

    await until(is_there, deadline_s=_BEFORE_S, describe=f"{load.name} to be there")
