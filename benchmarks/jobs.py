"""Many jobs: how fast the controller makes them, and how many writes a job's life takes.

`python -m benchmarks.jobs [--jobs 500 --replicas 20]` starts a control plane with an audit log and
prints two measurements, each as a ratio to what the API server does alone in the same run:

1. Creation: cache and controller at work, scheduler and binder stopped, a hand lets each PodGroup
   into its queue. Pods created per second against plain creates of the same pods.
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
from pathlib import Path

from benchmarks.jobs_audit import AuditLog, Write, beyond_the_needed, events
from benchmarks.stack import CRDS, NAMESPACE, clear, cpu_s, many
from pumice.local import parts
from pumice.local.admin import NodeShape
from pumice.local.control_plane import ControlPlane, Options
from pumice.local.services import SERVICES
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.fleet import Service, fleet

RUN_S = "1"
GROUP = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
_MIB = 1024
_DEADLINE_S = 900


def body(number: int, replicas: int) -> dict:
    """Return a job whose pods run for a second and succeed."""
    notes = {"pumice.dev/run-seconds": RUN_S}
    return world.job(f"job-{number}", world.task("w", replicas, cpu="100m", annotations=notes))


async def plain_creates(api: Api, pods: int) -> float:
    """Return the pods per second that the API server creates for a plain client."""
    spec = world.task("w", 1, cpu="100m")["template"]["spec"] | {"schedulerName": "none"}

    async def create(i: int) -> None:
        await api.create("pods", {"metadata": {"name": f"plain-{i}"}, "spec": spec}, NAMESPACE)

    begun = time.monotonic()
    await many(create, range(pods))
    return pods / (time.monotonic() - begun)


async def created(api: Api, jobs: int, replicas: int) -> float:
    """Return the seconds from the first job's creation to the last pod's."""
    pods_rv = (await api.get("pods", NAMESPACE))["metadata"]["resourceVersion"]
    groups_rv = (await api.get("podgroups", NAMESPACE))["metadata"]["resourceVersion"]
    seen: set[str] = set()

    async def count() -> None:
        async for event in api.watch("pods", NAMESPACE, pods_rv):
            if event["type"] == "ADDED":
                seen.add(event["object"]["metadata"]["name"])
                if len(seen) == jobs * replicas:
                    return

    async def admit(name: str) -> None:
        await api.patch("podgroups", NAMESPACE, name, {"status": {"phase": "Inqueue"}})

    async def let_in(tasks: asyncio.TaskGroup) -> None:
        async for event in api.watch("podgroups", NAMESPACE, groups_rv):
            if event["type"] == "ADDED":
                name = event["object"]["metadata"]["name"]
                tasks.create_task(admit(name), name=f"admit-{name}")

    async def submit(i: int) -> None:
        await api.create("jobs", body(i, replicas), NAMESPACE)

    async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count(), name="count")
        letting = tasks.create_task(let_in(tasks), name="let-in")
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

    async def watch() -> None:
        async for event in api.watch("jobs", NAMESPACE, version):
            job = event["object"]
            if job.get("status", {}).get("state", {}).get("phase") == "Completed":
                done.add(job["metadata"]["name"])
                if len(done) == jobs:
                    return

    async def submit(i: int) -> None:
        await api.create("jobs", body(i, replicas), NAMESPACE)

    async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(), name="watch")
        begun = time.monotonic()
        await many(submit, range(jobs))
        await watching
    return time.monotonic() - begun


async def same_writes(api: Api, found: Counter[Write], jobs: int) -> float:
    """Return the writes per second of a plain client that writes the same mix.

    Each of some jobs gets its share: an object of its own for creates, patches for everything else.
    """
    share = {(w.verb, w.what): count / jobs for w, count in found.items() if w.what != "events"}
    creates = {what: n for (verb, what), n in share.items() if verb == "create"}
    patches = sum(share.values()) - sum(creates.values())
    sample = min(jobs, 500)
    done = 0

    async def one(i: int) -> None:
        nonlocal done
        name = f"plain-{i}"
        group = {**GROUP, "metadata": {"name": name}}
        await api.create("podgroups", group, NAMESPACE)
        done += 1
        for pod in range(round(creates.get("pods", 1))):
            spec = world.task("w", 1)["template"]["spec"] | {"schedulerName": "none"}
            meta = {"name": f"{name}-{pod}"}
            await api.create("pods", {"metadata": meta, "spec": spec}, NAMESPACE)
            target = {"metadata": meta, "target": {"kind": "Node", "name": "none"}}
            url = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}-{pod}/binding"
            await api.request("POST", url, target)
            done += 2
        for number in range(round(patches)):
            phase = ("Pending", "Inqueue", "Running")[number % 3]
            await api.patch("podgroups", NAMESPACE, name, {"status": {"phase": phase}})
            done += 1

    begun = time.monotonic()
    await many(one, range(sample))
    return done / (time.monotonic() - begun)


def memory_mib(service: Service) -> int:
    """Return the resident memory of a service (Linux)."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // _MIB


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
        after = cpu_s(self._pids)
        used = {name: after[name] - self._before[name] for name in self._pids}
        ours = [f"{n} {used[n]:.1f} s {memory_mib(s)} MiB" for n, s in self._services.items()]
        others = [f"{n} {used[n]:.1f} s" for n in sorted(used.keys() - self._services.keys())]
        return f"CPU and memory: {', '.join(ours)}; beside them {', '.join(others)}"


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
    alone = await plain_creates(api, min(pods, options.floor))
    await clear(api)
    async with fleet(plane, directory) as running:
        started = await running.start_all("cache", "controller")
        log.settle()
        log.writes()
        cost = Cost(plane, started)
        elapsed = await created(api, options.jobs, options.replicas)
        print(
            f"creation: {pods} pods of {options.jobs} jobs in {elapsed:.1f} s, {pods / elapsed:.0f}"
            f" pods/s; API server alone {alone:.0f} pods/s, ratio {pods / elapsed / alone:.2f};"
            f" load {os.getloadavg()[0]:.1f}; {cost}",
            flush=True,
        )
        log.settle()
        print(table(log.writes()[0], options.jobs), flush=True)
        await clear(api)


async def measure_life(
    plane: ControlPlane, api: Api, log: AuditLog, directory: Path, options: argparse.Namespace
) -> None:
    """Print how many writes a job's whole life takes, and how fast they come."""
    pods = options.jobs * options.replicas
    async with fleet(plane, directory) as running:
        started = await running.start_all(*SERVICES)
        log.settle()
        log.writes()
        cost = Cost(plane, started)
        elapsed = await lived(api, options.jobs, options.replicas)
        spent = str(cost)
        load = os.getloadavg()[0]
        log.settle()
        found, conflicts = log.writes()
    total = sum(found.values()) - events(found)
    try:
        alone = await same_writes(api, found, options.jobs)
    except ApiError as error:
        raise SystemExit(f"the plain client was refused: {error}") from error
    print(
        f"life: {options.jobs} jobs of {options.replicas} in {elapsed:.1f} s; "
        f"{total / options.jobs:.1f} writes per job, "
        f"{beyond_the_needed(found) / pods:.2f} per pod beyond creation, binding and deletion, "
        f"{events(found) / options.jobs:.1f} Events per job, {sum(conflicts.values())} conflicts; "
        f"{total / elapsed:.0f} writes/s, plain client {alone:.0f}/s, "
        f"ratio {total / elapsed / alone:.2f}; load {load:.1f}; {spent}"
    )
    print(table(found, options.jobs), flush=True)
    for write, count in conflicts.most_common():
        print(f"  conflicts: {count} {' '.join(write)}")


async def run(options: argparse.Namespace) -> None:
    """Run both measurements."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    plane_options = Options(directory=directory / "plane", audit_log=True)
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
