"""The whole stack against what the API server alone can do, as a ratio within one run.

`python -m benchmarks.stack [--nodes 1000 --jobs 50 --replicas 100 --runs 3]` starts a control
plane with fake nodes, and in each run creates and binds the pods without any scheduler (the
floor: our services are stopped, KWOK runs), clears up, starts the services and submits gangs of
the same number of pods. Printed per run: both times until the last pod is bound, their ratio, and
the CPU seconds per process meanwhile; last the median ratio. Times of different runs are not
comparable, ratios are.

`--report FOLDER` stores the last run there as JSON and draws it as one HTML page; `--against FILE`
(or a folder of such files) compares it with a stored one.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.report.files import store
from benchmarks.report.observe import cpu_s, gangs, observe
from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from tests.support import world
from tests.support.api import Api, connect, gone_is_fine
from tests.support.fleet import SERVICES, Fleet, fleet

CRDS = Path(__file__).parents[1] / "k8s" / "crds"
CLIENTS = 32
NAMESPACE = "default"


async def many(work: Callable[[int], Awaitable[object]], numbers: Iterable[int]) -> None:
    """Do `work` for each number, 32 at a time."""
    left = iter(numbers)

    async def client() -> None:
        for number in left:
            await work(number)

    async with asyncio.TaskGroup() as tasks:
        for i in range(CLIENTS):
            tasks.create_task(client(), name=f"client-{i}")


async def floor(api: Api, pods: int, nodes: list[str]) -> float:
    """Return the seconds to create and bind pods with no other load."""
    spec = world.task("w", 1)["template"]["spec"] | {"schedulerName": "none"}

    async def create(i: int) -> None:
        await api.create("pods", {"metadata": {"name": f"floor-{i}"}, "spec": spec}, NAMESPACE)

    async def bind(i: int) -> None:
        body = {
            "metadata": {"name": f"floor-{i}"},
            "target": {"kind": "Node", "name": nodes[i % len(nodes)]},
        }
        url = f"/api/v1/namespaces/{NAMESPACE}/pods/floor-{i}/binding"
        await api.request("POST", url, body)

    begun = time.monotonic()
    await many(create, range(pods))
    await many(bind, range(pods))
    return time.monotonic() - begun


async def clear(api: Api) -> None:
    """Remove jobs, PodGroups and pods and wait until they are gone; others may be faster."""
    for plural in ("jobs", "podgroups", "pods"):
        names = [item["metadata"]["name"] for item in await api.items(plural, NAMESPACE)]

        async def remove(i: int, plural: str = plural, names: list[str] = names) -> None:
            with gone_is_fine():
                await api.delete(plural, NAMESPACE, names[i], 0 if plural == "pods" else None)

        await many(remove, range(len(names)))
    while await api.items("pods", NAMESPACE):  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.2)


@asynccontextmanager
async def fake_cluster(nodes: int, directory: Path) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """Run a control plane with our CRDs and so many fake nodes; yields a client of it, too."""
    async with ControlPlane(
        ControlPlaneOptions(directory=directory / "plane"), parts.require()
    ) as plane:
        await plane.apply_crds(CRDS)
        await plane.add_nodes(NodeShape(count=nodes, cpu="32", memory="256Gi"))
        async with connect(plane.kubeconfig) as api:
            yield plane, api


@asynccontextmanager
async def services(plane: ControlPlane, directory: Path) -> AsyncIterator[tuple[Fleet, dict]]:
    """Run all services; yields the processes' ids too."""
    async with fleet(plane, directory, forked=False) as running:
        started = await running.start_all(*SERVICES)
        pids = {name: service.process.pid for name, service in started.items()}
        yield running, pids


async def run(options: argparse.Namespace) -> None:
    """Run the comparison and print it."""
    pods = options.jobs * options.replicas
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    async with fake_cluster(options.nodes, directory) as (plane, api):
        nodes = [node["metadata"]["name"] for node in await api.items("nodes")]
        ratios = []
        for number in range(options.runs):
            alone = await floor(api, pods, nodes)
            await clear(api)
            async with services(plane, directory) as (_, pids):
                pids |= {n: p.pid for n, p in plane.processes.items()}
                before = cpu_s(pids)
                watched = await observe(api, gangs(options), pids, many=many)
                after = cpu_s(pids)
            if not watched.is_complete:
                raise SystemExit(f"{watched.load}: not all pods ran before the deadline")
            record = msgspec.structs.replace(watched, floor_s=alone)
            whole = max(record.seen_s["bound"].values())
            await clear(api)
            ratios.append(whole / alone)
            cpu = ", ".join(f"{name} {after[name] - before[name]:.1f}" for name in sorted(pids))
            print(
                f"run {number + 1}: floor {alone:.1f} s ({pods / alone:.0f} pods/s), "
                f"Pumice {whole:.1f} s ({pods / whole:.0f} pods/s), "
                f"ratio {whole / alone:.2f}; CPU s: {cpu}",
                flush=True,
            )
        print(
            f"{options.nodes} nodes, {options.jobs} gangs of {options.replicas}: "
            f"median ratio {statistics.median(ratios):.2f} of {options.runs} runs"
        )
        if options.report:
            for line in store(record, options.report, options.against):
                print(line)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--report", type=Path, help="folder for the last run's JSON and page")
    parser.add_argument("--against", type=Path, help="a stored run, or a folder of them")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
