"""Many jobs: how fast the controller makes them, and how many writes a job's life takes.

`python -m benchmarks.jobs [--jobs 500 --replicas 20]` starts a control plane with an audit log and
prints two measurements, each as a ratio to what the API server does alone in the same run:

1. Creation: cache and controller at work, scheduler and binder stopped, a hand lets each PodGroup
   into its queue. Pods created per second against plain creates of the same jobs, groups and pods,
   of the same pods alone, and of pods as bare as can be.
2. Life: all services, the pods run on fake nodes and succeed. Writes of our services per job and
   per pod beyond creation, binding and deletion, Events apart, counted from the audit log by
   User-Agent; their rate against the rate of the same writes by a plain client.

CPU seconds and memory of each of our processes stand beside both.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.jobs_audit import AuditLog, Write, beyond_the_needed, events
from benchmarks.report.observe import cpu_s
from benchmarks.stack import CRDS, NAMESPACE, clear, many
from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.fleet import SERVICES, Service, fleet, resident_mib

RUN_S = "1"
PHASES = ("Inqueue", "Running", "Completed")
GROUP = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
_DEADLINE_S = 3600


def body(number: int, replicas: int) -> dict:
    """Return a job whose pods run for a second and succeed."""
    notes = {"pumice.dev/run-seconds": RUN_S}
    return world.job(f"job-{number}", world.task("w", replicas, cpu="100m", annotations=notes))


async def plain_creates(api: Api, pods: int, marks: dict | None = None) -> float:
    """Return the pods per second that the API server creates for a plain client.

    `marks` is what their metadata has besides a name; without it they are as bare as can be.
    """
    spec = world.task("w", 1, cpu="100m")["template"]["spec"] | {"schedulerName": "none"}

    async def create(i: int) -> None:
        body = {"metadata": {**(marks or {}), "name": f"plain-{i}"}, "spec": spec}
        await api.create("pods", body, NAMESPACE)

    begun = time.monotonic()
    await many(create, range(pods))
    return pods / (time.monotonic() - begun)


async def marks_of_a_pod(api: Api) -> dict:
    """Return the labels and annotations of a job's pod."""
    meta = (await api.get("pods", NAMESPACE, "job-0-w-0"))["metadata"]
    return {"labels": meta["labels"], "annotations": meta["annotations"]}


async def owned(api: Api, marks: dict) -> dict:
    """Return the same marks with an existing owner: a job that no controller handles."""
    job = await api.create("jobs", body(0, 1), NAMESPACE)
    return {**marks, "ownerReferences": [owner_of(job)]}


def owner_of(job: dict) -> dict:
    """Return the reference by which what a job brings along is its own."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"]}
    return owner | {"uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}


async def same_creates(api: Api, jobs: int, replicas: int, marks: dict) -> float:
    """Return the pods per second of a plain client that creates jobs, PodGroups and their pods."""
    spec = world.task("w", 1, cpu="100m")["template"]["spec"] | {"schedulerName": "none"}

    async def create(number: int) -> None:
        job = await api.create("jobs", body(number, replicas), NAMESPACE)
        meta = {"name": f"job-{number}", "ownerReferences": [owner_of(job)]}
        group = {**GROUP, "metadata": meta, "spec": {"minMember": replicas, "queue": "default"}}
        await api.create("podgroups", group, NAMESPACE)
        for index in range(replicas):
            meta = {**marks, "name": f"plain-{number}-{index}", "ownerReferences": [owner_of(job)]}
            await api.create("pods", {"metadata": meta, "spec": spec}, NAMESPACE)

    begun = time.monotonic()
    await many(create, range(jobs))
    return jobs * replicas / (time.monotonic() - begun)


async def follow(api: Api, plural: str, version: str, enough: Callable[[dict], bool]) -> None:
    """Show every state of every object to `enough` until it says so.

    The server may drop a watcher that is slow, as this busy process can be: then it lists anew.
    """
    while True:
        async for event in api.watch(plural, NAMESPACE, version):
            if event["type"] in {"ADDED", "MODIFIED"} and enough(event["object"]):
                return
        listed = await api.get(plural, NAMESPACE)
        version = listed["metadata"]["resourceVersion"]
        if any([enough(item) for item in listed["items"]]):  # noqa: C419 - show all of them
            return


async def created(api: Api, jobs: int, replicas: int) -> float:
    """Return the seconds from the first job's creation to the last pod's."""
    pods_rv = (await api.get("pods", NAMESPACE))["metadata"]["resourceVersion"]
    groups_rv = (await api.get("podgroups", NAMESPACE))["metadata"]["resourceVersion"]
    seen: set[str] = set()
    admitted: set[str] = set()

    def all_there(pod: dict) -> bool:
        seen.add(pod["metadata"]["name"])
        return len(seen) == jobs * replicas

    async def admit(name: str) -> None:
        await api.patch("podgroups", NAMESPACE, name, {"status": {"phase": "Inqueue"}})

    def let_in(group: dict) -> bool:
        name = group["metadata"]["name"]
        if name not in admitted:
            admitted.add(name)
            tasks.create_task(admit(name), name=f"admit-{name}")
        return False

    async def submit(i: int) -> None:
        await api.create("jobs", body(i, replicas), NAMESPACE)

    async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(follow(api, "pods", pods_rv, all_there), name="count")
        letting = tasks.create_task(follow(api, "podgroups", groups_rv, let_in), name="let-in")
        begun = time.monotonic()
        await many(submit, range(jobs))
        await counting
        elapsed = time.monotonic() - begun
        letting.cancel()
    return elapsed


async def lived(api: Api, jobs: int, replicas: int) -> float:
    """Return the seconds from the first job's creation until every job is Completed."""
    version = (await api.get("jobs", NAMESPACE))["metadata"]["resourceVersion"]
    done: set[str] = set()

    def all_done(job: dict) -> bool:
        if job.get("status", {}).get("state", {}).get("phase") == "Completed":
            done.add(job["metadata"]["name"])
        return len(done) == jobs

    async def submit(i: int) -> None:
        await api.create("jobs", body(i, replicas), NAMESPACE)

    async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(follow(api, "jobs", version, all_done), name="watch")
        begun = time.monotonic()
        await many(submit, range(jobs))
        await watching
    return time.monotonic() - begun


class SameWrites:
    """A plain client that writes what our services wrote per job, with no other load."""

    def __init__(self, api: Api, found: Counter[Write], jobs: int, nodes: list[str]) -> None:
        self._api = api
        self._nodes = nodes
        self._share: dict[tuple[str, str], float] = {}
        for write, count in found.items():
            if write.what != "events":
                key = (write.verb, write.what)
                self._share[key] = self._share.get(key, 0.0) + count / jobs
        self.done = 0

    async def rate(self, jobs: int) -> float:
        """Return its writes per second; the creation of the jobs themselves does not count."""
        begun = time.monotonic()
        await many(self._one, range(jobs))
        return self.done / (time.monotonic() - begun)

    def _times(self, number: int, verb: str, what: str) -> range:
        """Spread a share that is no whole number over the jobs."""
        share = self._share.get((verb, what), 0.0)
        return range(int((number + 1) * share) - int(number * share))

    async def _one(self, number: int) -> None:
        name = f"plain-{number}"
        job = world.job(name, world.task("w", 1, cpu="100m"))
        await self._api.create("jobs", job, NAMESPACE)
        group = {**GROUP, "metadata": {"name": name}, "spec": {"minMember": 1}}
        for _ in self._times(number, "create", "podgroups"):
            await self._write(self._api.create("podgroups", group, NAMESPACE))
        for turn in self._times(number, "patch", "podgroups"):
            status = {"status": {"phase": PHASES[turn % len(PHASES)]}}
            await self._write(self._api.patch("podgroups", NAMESPACE, name, status))
        for turn in self._times(number, "create", "pods"):
            await self._pod(f"{name}-{turn}", number)
        for turn in self._times(number, "patch", "jobs/status"):
            state = {"phase": ("Pending", "Running", "Completed")[turn % 3]}
            status = {"status": {"state": state, "running": turn, "minAvailable": 1}}
            await self._write(self._api.patch("jobs", NAMESPACE, name, status, "status"))
        for _ in self._times(number, "delete", "podgroups"):
            await self._write(self._api.delete("podgroups", NAMESPACE, name))

    async def _pod(self, name: str, number: int) -> None:
        """Create and bind a pod; it runs on its fake node and succeeds, as those of the jobs."""
        notes = {"pumice.dev/run-seconds": RUN_S}
        spec = world.task("w", 1, cpu="100m")["template"]["spec"] | {"schedulerName": "none"}
        meta = {"name": name, "annotations": notes}
        pod = {"metadata": meta, "spec": spec}
        await self._write(self._api.create("pods", pod, NAMESPACE))
        node = {"kind": "Node", "name": self._nodes[number % len(self._nodes)]}
        url = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"
        body = {"metadata": {"name": name}, "target": node}
        await self._write(self._api.request("POST", url, body))

    async def _write(self, request: Awaitable[object]) -> None:
        await request
        self.done += 1


class Cost:
    """CPU seconds from its making on, and memory, of the services and the programs around them."""

    def __init__(self, plane: ControlPlane, started: dict[str, Service]) -> None:
        self._services = started
        self._pids = {name: service.process.pid for name, service in started.items()}
        self._pids |= {name: process.pid for name, process in plane.processes.items()}
        self._pids["load"] = os.getpid()
        self._before = cpu_s(self._pids)

    def __str__(self) -> str:
        """Return what was used until now."""
        used = self._used()
        ours = [
            f"{n} {used[n]:.1f} s {resident_mib(s.process.pid)} MiB"
            for n, s in self._services.items()
        ]
        others = [f"{n} {used[n]:.1f} s" for n in sorted(used.keys() - self._services.keys())]
        return f"CPU and memory: {', '.join([*ours, *others])}"

    def total_s(self) -> float:
        """Return all CPU seconds until now: what a ratio rests on where the machine is shared."""
        return sum(self._used().values())

    def _used(self) -> dict[str, float]:
        after = cpu_s(self._pids)
        return {name: after[name] - self._before[name] for name in self._pids}


def table(found: Counter[Write], jobs: int) -> str:
    """Return the writes per job, most frequent first."""
    lines = [
        f"  {count / jobs:7.2f}  {write.agent.removeprefix('pumice-'):10} {write.verb} {write.what}"
        for write, count in found.most_common()
    ]
    return "\n".join(lines)


async def measure_creation(
    plane: ControlPlane, api: Api, log: AuditLog, directory: Path, options: argparse.Namespace
) -> None:
    """Print how fast the controller creates pods against a plain client."""
    pods = options.jobs * options.replicas
    spent = Cost(plane, {})
    plain = min(pods, options.floor)
    before = await plain_creates(api, plain)
    plain_ms = spent.total_s() / plain * 1000
    print(f"a plain client alone, {plain} pods: {spent}", flush=True)
    await clear(api)
    async with fleet(plane, directory, forked=False) as running:
        started = await running.start_all("cache", "controller")
        log.settle()
        log.writes()
        cost = Cost(plane, started)
        elapsed = await created(api, options.jobs, options.replicas)
        ours_ms = cost.total_s() / pods * 1000
        print(
            f"creation: {pods} pods of {options.jobs} jobs in {elapsed:.1f} s, {pods / elapsed:.0f}"
            f" pods/s; load {os.getloadavg()[0]:.1f}; {cost}",
            flush=True,
        )
        log.settle()
        print(table(log.writes()[0], options.jobs), flush=True)
        marks = await marks_of_a_pod(api)
        await clear(api)
    after = await plain_creates(api, plain)
    await clear(api)
    spent = Cost(plane, {})
    same = await plain_creates(api, plain, await owned(api, marks))
    same_ms = spent.total_s() / plain * 1000
    await clear(api)
    whole = await same_creates(api, plain // options.replicas, options.replicas, marks)
    await clear(api)
    bare = (before + after) / 2
    rate = pods / elapsed
    print(
        f"creation: API server alone, the same jobs, groups and pods {whole:.0f} pods/s, ratio "
        f"{rate / whole:.2f}; the same pods {same:.0f} pods/s, ratio {rate / same:.2f}; "
        f"bare pods {before:.0f} before and {after:.0f} after, ratio {rate / bare:.2f}; CPU of "
        f"everything {ours_ms:.2f} ms per pod, of a plain client's {same_ms:.2f} and "
        f"{plain_ms:.2f} ms, ratios {same_ms / ours_ms:.2f} and {plain_ms / ours_ms:.2f}",
        flush=True,
    )


async def measure_life(
    plane: ControlPlane, api: Api, log: AuditLog, directory: Path, options: argparse.Namespace
) -> None:
    """Print how many writes a job's whole life takes, and how fast they come."""
    pods = options.jobs * options.replicas
    async with fleet(plane, directory, forked=False) as running:
        started = await running.start_all(*SERVICES)
        log.settle()
        log.writes()
        cost = Cost(plane, started)
        elapsed = await lived(api, options.jobs, options.replicas)
        spent, ours_s = str(cost), cost.total_s()
        load = os.getloadavg()[0]
        log.settle()
        found, conflicts = log.writes()
    total = sum(found.values()) - events(found)
    try:
        nodes = [node["metadata"]["name"] for node in await api.items("nodes")]
        plain = SameWrites(api, found, options.jobs, nodes)
        cost = Cost(plane, {})
        alone = await plain.rate(min(options.jobs, options.floor))
        plain_ms, ours_ms = cost.total_s() / plain.done * 1000, ours_s / total * 1000
    except ApiError as error:
        raise SystemExit(f"the plain client was refused: {error}") from error
    print(
        f"life: {options.jobs} jobs of {options.replicas} in {elapsed:.1f} s; "
        f"{total / options.jobs:.1f} writes per job, "
        f"{beyond_the_needed(found) / pods:.2f} per pod beyond creation, binding and deletion, "
        f"{events(found) / options.jobs:.1f} Events per job, {sum(conflicts.values())} conflicts; "
        f"{total / elapsed:.0f} writes/s, plain client {alone:.0f}/s, "
        f"ratio {total / elapsed / alone:.2f}; CPU of everything {ours_ms:.2f} ms per write, "
        f"of a plain client's {plain_ms:.2f} ms, ratio {plain_ms / ours_ms:.2f}; "
        f"load {load:.1f}; {spent}"
    )
    print(table(found, options.jobs), flush=True)
    for write, count in conflicts.most_common():
        print(f"  conflicts: {count} {' '.join(write)}")


async def run(options: argparse.Namespace) -> None:
    """Run both measurements."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    plane_options = ControlPlaneOptions(directory=directory / "plane", audit_log=True)
    async with ControlPlane(plane_options, parts.require()) as plane:
        await plane.apply_crds(CRDS)
        await plane.add_nodes(NodeShape(count=options.nodes, cpu="64", memory="512Gi"))
        log = AuditLog(plane.logs / "audit.log")
        async with connect(plane.kubeconfig) as api:
            if options.part != "life":
                await measure_creation(plane, api, log, directory, options)
            if options.part != "creation":
                await measure_life(plane, api, log, directory, options)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--replicas", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--floor", type=int, default=3000, help="pods that a plain client creates")
    parser.add_argument("--part", choices=("both", "creation", "life"), default="both")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
