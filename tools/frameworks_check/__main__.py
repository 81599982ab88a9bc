"""`make frameworks-check`: operators of frameworks, unmodified, on a real API server with Pumice.

Names of kinds, such as `RayCluster`, select these alone. With `--record` the table of
docs/integrations/README.md is written from the run. Operators that no module here pins are built
from checkouts of their repositories below `--sources`, and left out without. What comes from PyPI
is installed into environments in the user's cache.
"""

import argparse
import asyncio
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from pumice.local import admin, parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.errors import LocalError
from pumice.local.fleet import Fleet, NodeShape
from pumice.local.stack import LocalStack, StackOptions
from tests.support.api import Api, connect
from tools.frameworks_check import environments, report, scenarios
from tools.frameworks_check.operators import OPERATORS, SPARK, Operator, cost, manifest
from tools.frameworks_check.running import RunningOperator
from tools.frameworks_check.stage import CPUS, NAMESPACE, NODES, Stage
from tools.frameworks_check.workloads import EXAMPLES, WORKLOADS, Workload

NODE: Final = NodeShape(
    count=NODES,
    cpu=str(CPUS),
    resources={"ephemeral-storage": "100Gi"},  # an init container of MPIJobs requests some
)
_FLAGS: Final = {"controller": ("--workload-groups-config-map=pumice-workload-groups",)}


async def check(workloads: Sequence[Workload], folder: Path, sources: Path) -> list[report.Result]:
    """Play the scenarios of workloads, a cluster for each operator."""
    results: list[report.Result] = []
    for name in dict.fromkeys(each.operator for each in workloads):
        chosen = [each for each in workloads if each.operator == name]
        results += await _of_operator(name, chosen, folder / (name or "kubernetes"), sources)
    return results


async def _of_operator(
    name: str, workloads: Sequence[Workload], folder: Path, sources: Path
) -> list[report.Result]:
    operator = next((each for each in OPERATORS if each.name == name), None)
    options = StackOptions(
        plane=ControlPlaneOptions(directory=folder),
        fleet=Fleet(nodes=(NODE,)),
        flags=_FLAGS,
    )
    results = []
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(LocalStack(options, parts.require()))
        api = await stack.enter_async_context(connect(local.plane.kubeconfig))
        await _prepare(local, api)
        running = await _started(operator, local, api, sources, stack)
        for workload in workloads:
            stage = Stage(local, api, running, workload)
            for title, scenario in scenarios.of(workload).items():
                results.append(await _play(stage, title, scenario, operator))
    return results


async def _prepare(local: LocalStack, api: Api) -> None:
    """Create what all examples need."""
    await api.create("namespaces", {"metadata": {"name": NAMESPACE}})
    async with admin.connect(local.plane.url, local.plane.pki) as client:
        process = local.plane.processes[local.plane.api_program]
        await process.ready(lambda: client.accounts_ready(NAMESPACE), deadline_s=30)
    queue, high = manifest(EXAMPLES / "queue.yaml")
    await api.create("queues", queue)
    await api.create("priorityclasses", high)
    await api.create("priorityclasses", {"metadata": {"name": "low-priority"}, "value": 1})


async def _started(
    operator: Operator | None, local: LocalStack, api: Api, sources: Path, stack: AsyncExitStack
) -> RunningOperator | None:
    """Install an operator and those that it needs, and start them."""
    needed = [each for each in OPERATORS if operator is not None and each.name in operator.needs]
    found = None
    for each in (*needed, *([operator] if operator is not None else [])):
        found = RunningOperator(each, api, local.plane, sources / each.name)
        await found.install()
        await stack.enter_async_context(found.running())
    return found


async def _play(
    stage: Stage,
    title: str,
    scenario: scenarios.Scenario,
    operator: Operator | None,
) -> report.Result:
    error = ""
    try:
        async with stage.clean():
            await scenario(stage)
    except Exception as found:  # noqa: BLE001 - a scenario that fails is a result
        error = " ".join(str(found).split())[:500] or type(found).__name__
        traceback.print_exception(found)
    sender = stage.workload.submitter or operator
    name = f"{sender.title} {sender.version}" if sender is not None else "Kubernetes"
    result = report.Result(operator=name, kind=stage.workload.title, scenario=title, error=error)
    print(result.line(), flush=True)
    return result


def _has_source(workload: Workload, sources: Path) -> bool:
    known = {"", *(each.name for each in OPERATORS if each.module or each.environment)}
    return workload.operator in known or (sources / workload.operator / "go.mod").exists()


def _environments(workload: Workload) -> list[str]:
    """Return the environments that a workload needs."""
    found = [each.environment for each in OPERATORS if each.name == workload.operator]
    if workload.submitter is not None:
        found.append(workload.submitter.environment)
    if workload.operator == SPARK.name:
        found.append("spark")  # its spark-submit
    return list(filter(None, found))


def main() -> int:
    """Check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="such as RayCluster; default: all")
    parser.add_argument("--record", action="store_true", help="write the table of the docs")
    parser.add_argument("--sources", type=Path, help="folder of checkouts, such as kthena")
    parser.add_argument("--keep", type=Path, help="folder that keeps the logs")
    args = parser.parse_args()
    chosen = [each for each in WORKLOADS if not args.kinds or each.title in args.kinds]
    if unknown := set(args.kinds) - {each.title for each in chosen}:
        print(f"error: no kinds: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    sources = (args.sources or Path()).absolute()
    for each in chosen:
        if not _has_source(each, sources):
            print(f"left out: {each.title}: --sources has no folder {each.operator}", flush=True)
    chosen = [each for each in chosen if _has_source(each, sources)]
    needed = [name for each in chosen for name in _environments(each)]
    for words in filter(None, (cost(), environments.cost(needed))):
        print(words, flush=True)
    try:
        with tempfile.TemporaryDirectory() as name:
            results = asyncio.run(check(chosen, args.keep or Path(name), sources))
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.record:
        report.write(results)
    failed = sum(bool(each.error) for each in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
