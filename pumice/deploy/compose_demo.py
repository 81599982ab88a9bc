"""The demo on the Compose stack: submits its jobs, prints their moments, ends with the last job.

`docker compose --profile demo up demo` runs it. It is the demo of `pumice demo` without the cluster
around it; exit code 0 says that every job has completed.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.text import Text

from pumice.demo import story, summary
from pumice.demo.output import choose
from pumice.demo.story import Demo, DemoError
from shared.api.kinds import JOB
from shared.kube.client import Kube
from shared.kube.config import connect
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.errors import Gone, PumiceError

_DEADLINE_S: Final = 180.0
_LOOK_S: Final = 0.2


async def play(*, kubeconfig: Path, examples: Path) -> None:
    """Play the demo. Raises DemoError or PumiceError."""
    clock = SystemClock()
    output = choose(sys.stdout, plain=True)
    async with await connect(str(kubeconfig), user_agent="pumice-demo", clock=clock) as kube:
        demo = Demo(
            kube=kube,
            output=output,
            clock=clock,
            began_s=clock.monotonic(),
            versions="docker compose",
            deaths=tuple,
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await remove_jobs_of_before(kube, clock, examples)
        except TimeoutError:
            raise DemoError("jobs of an earlier run are still being deleted") from None
        try:
            await demo.play(deadline_s=_DEADLINE_S, jobs=examples)
        finally:
            output.close()
            output.write(summary.timeline(demo.scene, output.width))
        output.write([Text(line) for line in summary.totals(demo.scene)])


async def remove_jobs_of_before(kube: Kube, clock: Clock, examples: Path) -> None:
    """Delete the demo's own jobs, which an earlier run has left, with their pods."""
    own = {job.key for wave in story.waves(examples) for job in wave}
    deleted: set[str] = set()
    while left := [job for job in (await kube.list(JOB)).items if job.metadata.key in own]:
        for meta in (job.metadata for job in left if job.metadata.uid not in deleted):
            deleted.add(meta.uid)
            with suppress(Gone):
                await kube.delete(
                    JOB, meta.namespace, meta.name, uid=meta.uid, propagation="Foreground"
                )
        await clock.sleep(_LOOK_S)


def main(argv: Sequence[str]) -> int:
    """Play the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.compose_demo")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--examples", type=Path, required=True, help="examples/ of the checkout")
    given = parser.parse_args(argv)
    try:
        asyncio.run(play(kubeconfig=given.kubeconfig, examples=given.examples))
    except (DemoError, PumiceError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
