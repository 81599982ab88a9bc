"""A minute of a full cluster on the real stack: `python -m benchmarks.churn [--mix teams 1 2]`.

Submits the jobs of a mix (`tests.sim.churn`) at once and prints how many pods were placed, evicted
and completed in a minute. `--volcano-evictions` has pods evicted as Volcano does. With `--volcano
CHECKOUT` Volcano itself plays, built from a checkout of its repository, with its default flags and
without webhooks: the mixes name what these fill in.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from benchmarks.stack import NAMESPACE, many
from benchmarks.volcano.systems import System, pumice, volcano
from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from tests.sim.churn import Mix, Tally, conf, mix_of
from tests.support.api import Api, connect


async def count(api: Api, tally: Tally, version: str) -> None:
    """Count what a watch of pods shows."""
    async for event in api.follow("pods", NAMESPACE, version):
        tally.take(event["object"])


async def play(mix: Mix, text: str, seconds: float, system: System) -> Tally:
    """Play a mix on a control plane of its own, on one system."""
    directory = Path(tempfile.mkdtemp(prefix="pumice-churn-"))
    tally = Tally()
    async with ControlPlane(
        ControlPlaneOptions(directory=directory / "plane"), parts.require()
    ) as plane:
        await plane.add_nodes(NodeShape(count=mix.nodes, cpu=str(mix.cpu), memory=mix.memory))
        async with system(plane, directory, text), connect(plane.kubeconfig) as api:
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
    parser.add_argument("--volcano", type=Path, metavar="CHECKOUT")
    given = parser.parse_args()
    system = pumice(webhooks=False)
    if given.volcano:
        system = volcano(given.volcano, webhooks=False, more_flags=())
    for name in given.mix:
        text = conf(volcano=given.volcano_evictions)
        tally = asyncio.run(play(mix_of(name), text, given.seconds, system))
        print(f"{name}: {tally}", flush=True)


if __name__ == "__main__":
    main()
