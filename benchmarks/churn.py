"""A minute of a full cluster on the real stack: `python -m benchmarks.churn [--mix teams 1 2]`.

Submits the jobs of a mix (`tests.sim.churn`) at once and prints how many pods were placed, evicted
and completed in a minute. `--volcano-evictions` has pods evicted as Volcano does. With `--volcano
FOLDER` Volcano itself plays: its programs `vc-scheduler` and `vc-controller-manager` are in that
folder, and the CRDs of its checkout (`config/crd/*/bases`) in `crds` there.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.stack import CRDS, NAMESPACE, many
from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from pumice.local.process import Process, ProcessSpec, go_environ
from tests.sim.churn import Mix, Tally, conf, mix_of
from tests.support.api import Api, connect
from tests.support.fleet import SERVICES, fleet
from tests.support.wait import until


async def count(api: Api, tally: Tally, version: str) -> None:
    """Count what a watch of pods shows."""
    async for event in api.follow("pods", NAMESPACE, version):
        tally.take(event["object"])


@asynccontextmanager
async def pumice(plane: ControlPlane, directory: Path) -> AsyncIterator[None]:
    """Run our services."""
    await plane.apply_crds(CRDS)
    async with fleet(plane, directory, forked=False) as running:
        await running.start_all(*(name for name in SERVICES if name != "scheduler"))
        await running.start("scheduler", scheduler_conf=str(directory / "scheduler.yaml"))
        yield


@asynccontextmanager
async def volcano(plane: ControlPlane, directory: Path, programs: Path) -> AsyncIterator[None]:
    """Run Volcano's scheduler and controllers, with its default settings.

    Its webhooks are left out: the mixes name what these fill in.
    """
    await plane.apply_crds(programs / "crds")
    common = (f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false")
    flags = {
        "vc-controller-manager": common,
        "vc-scheduler": (*common, f"--scheduler-conf={directory / 'scheduler.yaml'}"),
    }
    running = [
        Process(
            ProcessSpec(
                name=name,
                argv=(str(programs / name), *flags[name]),
                log=directory / f"{name}.log",
                environ=go_environ(),
            )
        )
        for name in flags
    ]
    async with connect(plane.kubeconfig) as api:
        try:
            for process in running:
                process.start()

            async def default_queue() -> bool:
                return any(
                    queue["metadata"]["name"] == "default"
                    for queue in (await api.get("queues"))["items"]
                )

            await until(default_queue, deadline_s=60)
            yield
        finally:
            for process in running:
                await process.stop(grace_s=3)


async def play(mix: Mix, text: str, seconds: float, programs: Path | None) -> Tally:
    """Play a mix on a control plane of its own, with our services or Volcano's programs."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-churn-"))
    (directory / "scheduler.yaml").write_text(text)
    tally = Tally()
    async with ControlPlane(
        ControlPlaneOptions(directory=directory / "plane"), parts.require()
    ) as plane:
        await plane.add_nodes(NodeShape(count=mix.nodes, cpu=str(mix.cpu), memory=mix.memory))
        run = volcano(plane, directory, programs) if programs else pumice(plane, directory)
        async with run, connect(plane.kubeconfig) as api:
            for queue in mix.queues:
                await api.create("queues", queue)
            version = (await api.get("pods", NAMESPACE))["metadata"]["resourceVersion"]
            watching = asyncio.create_task(count(api, tally, version))
            bodies = [job.manifest(f"j{number:02}") for number, job in enumerate(mix.jobs)]
            await many(lambda i: api.create("jobs", bodies[i], NAMESPACE), range(len(bodies)))
            await asyncio.wait([watching], timeout=seconds)
            watching.cancel()
    return tally


def main() -> None:
    """Play mixes and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__)
    parser.add_argument("--mix", nargs="*", default=["teams", "1", "2"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--volcano-evictions", action="store_true")
    parser.add_argument("--volcano", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    for name in given.mix:
        text = conf(volcano=given.volcano_evictions)
        tally = asyncio.run(play(mix_of(name), text, given.seconds, given.volcano))
        print(f"{name}: {tally}", flush=True)


if __name__ == "__main__":
    main()
