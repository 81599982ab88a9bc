"""Watches a load on a cluster while it runs, and makes its record.

One watch of pods tells when each was first seen created, bound and running; processes are read from
/proc twice a second (Linux); requests are the API server's own counters.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.report.record import STAGES, Record, Sample, difference
from tests.support import world
from tests.support.api import Api

NAMESPACE: Final = "default"
_EVERY_S: Final = 0.5
_TICKS: Final = 100
_MIB: Final = 2**20
_PAGE: Final = 4096
_COUNTER: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Many = Callable[[Callable[[int], Awaitable[object]], Iterable[int]], Awaitable[None]]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs or bare pods that are submitted, and how many pods of theirs are to run."""

    name: str
    plural: str = "jobs"
    objects: tuple[dict[str, Any], ...]
    pods: int
    interval_s: float = 0.0
    """Seconds between two submissions; 0: as fast as the API server takes them."""

    def __str__(self) -> str:
        return self.name


def gangs(options: argparse.Namespace) -> Load:
    """Return the load that a command line asks for: gangs of one size."""
    jobs, replicas = options.jobs, options.replicas
    return Load(
        name=f"{options.nodes} nodes, {jobs} gangs of {replicas}",
        objects=tuple(world.job(f"gang-{n}", world.task("w", replicas)) for n in range(jobs)),
        pods=jobs * replicas,
    )


class _Pods:
    """The moments at which each pod of a load was first seen at each stage."""

    def __init__(self, load: Load) -> None:
        self._wanted = load.pods
        self._submitted = {body["metadata"]["name"] for body in load.objects}
        self.begun = time.monotonic()
        self.seen: dict[str, dict[str, float]] = {stage: {} for stage in STAGES}
        self.job_of: dict[str, str] = {}

    def take(self, pod: dict) -> bool:
        """Take a state of a pod; tell whether all of them run."""
        name = pod["metadata"]["name"]
        now = time.monotonic() - self.begun
        job = pod["metadata"].get("labels", {}).get("volcano.sh/job-name", name)
        if job not in self._submitted:
            return False
        self.job_of[name] = job
        self.seen["created"].setdefault(name, now)
        if pod["spec"].get("nodeName"):
            self.seen["bound"].setdefault(name, now)
        if pod.get("status", {}).get("phase") == "Running":
            self.seen["running"].setdefault(name, now)
        return len(self.seen["running"]) == self._wanted

    async def follow(self, api: Api, version: str) -> None:
        """Take every state of every pod until all of them run; a watch that ends is begun anew."""
        while True:
            async for event in api.watch("pods", NAMESPACE, version):
                if event["type"] in {"ADDED", "MODIFIED"} and self.take(event["object"]):
                    return
            listed = await api.get("pods", NAMESPACE)
            version = listed["metadata"]["resourceVersion"]
            if any([self.take(pod) for pod in listed["items"]]):  # noqa: C419 - take all of them
                return


async def observe(
    api: Api,
    load: Load,
    pids: Mapping[str, int],
    *,
    many: Many,
    deadline_s: float = 900.0,
    meanwhile: Awaitable[None] | None = None,
) -> Record:
    """Submit a load and watch it until every pod runs; `meanwhile` goes on at the same time.

    At the deadline the record has what was seen until then (`Record.is_complete`).
    """
    version = (await api.get("pods", NAMESPACE))["metadata"]["resourceVersion"]
    before = await requests(api)
    pods = _Pods(load)
    posted: dict[str, float] = {}
    samples: dict[str, list[Sample]] = {name: [] for name in pids}

    async def submit(number: int) -> None:
        body = load.objects[number]
        await asyncio.sleep(pods.begun + number * load.interval_s - time.monotonic())
        posted[body["metadata"]["name"]] = time.monotonic() - pods.begun
        await api.create(load.plural, body, NAMESPACE)

    with suppress(TimeoutError):
        async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(pods.follow(api, version), name="follow")
            sampling = tasks.create_task(_sample(pids, samples, pods.begun), name="sample")
            if meanwhile is not None:
                tasks.create_task(meanwhile, name="meanwhile")
            await many(submit, range(len(load.objects)))
            await following
            sampling.cancel()
    take_samples(pids, samples, pods.begun)
    return Record(
        load=str(load),
        pods=load.pods,
        submitted_s=posted,
        seen_s=pods.seen,
        job_of=pods.job_of,
        processes=samples,
        requests=difference(before, await requests(api)),
    )


async def requests(api: Api) -> dict[str, float]:
    """Return the API server's counters of requests by verb and resource; watches are left out."""
    found: dict[str, float] = {}
    for labels, value in _COUNTER.findall(await api.text("/metrics")):
        label = dict(_LABEL.findall(labels))
        if label["verb"] == "WATCH":
            continue
        what = "/".join(part for part in (label["resource"], label["subresource"]) if part)
        kind = f"{label['verb']} {what}".rstrip()
        found[kind] = found.get(kind, 0.0) + float(value)
    return found


async def _sample(pids: Mapping[str, int], samples: dict[str, list[Sample]], begun: float) -> None:
    while True:
        take_samples(pids, samples, begun)
        await asyncio.sleep(_EVERY_S)


def take_samples(pids: Mapping[str, int], samples: dict[str, list[Sample]], begun: float) -> None:
    """Add what each process has used so far; one that has ended is passed over."""
    for name, pid in pids.items():
        with suppress(OSError):  # it has ended
            used = cpu_s({name: pid})[name]
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            at = time.monotonic() - begun
            samples[name].append(Sample(at, used, pages * _PAGE / _MIB))


def cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds that each process has used so far (Linux)."""
    used = {}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return used
