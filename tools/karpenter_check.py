"""Runs Karpenter, unmodified, beside Pumice on a cluster without nodes (`make karpenter-check`).

Karpenter's KWOK provider makes nodes that KWOK keeps ready. Gangs of the queue `pods`, whose
annotation `pumice.dev/autoscaling` is `pods`, wait for them. Needs Go.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pumice.local.control_plane import ControlPlane
from shared.api import time as times
from tests.integration.scheduler.test_autoscalers import CONF, NAMESPACE, pods_of, reason_of
from tests.support import world
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, fleet
from tests.support.goprograms import source_of
from tests.support.stack import real_plane
from tests.support.wait import until
from tools.frameworks_check.operators import Operator
from tools.frameworks_check.running import RunningOperator

CPU: Final = 4
"""Of each node."""
PODS: Final = 6
"""Of a gang; each needs a node of its own."""
_WAIT_S: Final = 90.0
_AT_ONCE_S: Final = 2.0
"""Longest time from the first bind of a gang to the last one."""


def _flags(_: Path, metrics: int, health: int, __: int) -> tuple[str, ...]:
    return (
        f"--metrics-port={metrics}",
        f"--health-probe-port={health}",
        "--disable-leader-election",
        "--batch-idle-duration=1s",
        "--log-level=info",
    )


KARPENTER: Final = Operator(
    name="karpenter",
    title="Karpenter",
    version="1.14.1",
    source="sigs.k8s.io/karpenter",
    package="sigs.k8s.io/karpenter/kwok",
    module="karpenter",
    crds="pkg/apis/crds",
    flags=_flags,
    environ={"SYSTEM_NAMESPACE": "kube-system"},
)


class Check:
    """The cluster, and what is looked at in it."""

    def __init__(self, api: Api, services: Fleet, log: Path) -> None:
        self._api = api
        self._services = services
        self._log = log

    async def scale_from_zero(self, name: str) -> None:
        """Check that a gang of a cluster without nodes gets some, and starts whole."""
        assert await self._api.items("nodes") == [], "the cluster has nodes"
        await self._submit(name, PODS, queue="pods")
        placed = await self._placed(name, PODS)
        nodes = {pod["spec"]["nodeName"] for pod in placed}
        assert len(nodes) == PODS, f"{len(nodes)} nodes for {PODS} pods that need one each"
        bound = [_bound_s(pod) for pod in placed]
        assert max(bound) - min(bound) <= _AT_ONCE_S, f"bound at {sorted(bound)}"

    async def no_node_beyond_a_queue(self, name: str) -> None:
        """Check that pods that their queue has no share for make no nodes."""
        await self._submit(name, PODS, queue="narrow", least=1)
        await self._placed(name, 1)

        async def refused() -> bool:
            pods = await pods_of(self._api, name)
            waiting = [reason_of(pod) for pod in pods if not pod["spec"].get("nodeName")]
            return waiting == ["NotWaitingForNodes"] * (PODS - 1)

        await self._until(refused)
        await asyncio.sleep(5.0)  # several of its batches: Karpenter reports nothing about them
        found = await self._api.items("nodes")
        assert len(found) == 1, f"{len(found)} nodes for one pod"

    async def scale_to_zero(self, name: str) -> None:
        """Check that the nodes go when the gang is gone."""
        await self._api.delete("jobs", NAMESPACE, name)

        async def gone() -> bool:
            return await self._api.items("nodes") == []

        await self._until(gone)

    async def _submit(self, name: str, pods: int, *, queue: str, least: int = 0) -> None:
        task = world.task("w", pods, cpu=str(CPU - 1))
        job = world.job(name, task, queue=queue, min_available=least or pods)
        await self._api.create("jobs", job, NAMESPACE)

    async def _placed(self, name: str, count: int) -> list[dict[str, Any]]:
        async def placed() -> list[dict[str, Any]]:
            found = [pod for pod in await pods_of(self._api, name) if pod["spec"].get("nodeName")]
            return found if len(found) == count else []

        return await self._until(placed)

    async def _until(self, probe: Any) -> Any:  # noqa: ANN401 - as `until`
        def what() -> str:
            return f"{self._services.logs()}\n{self._log.read_text()[-6000:]}"

        return await until(probe, deadline_s=_WAIT_S, describe=what)


def _bound_s(pod: dict[str, Any]) -> float:
    shown = pod["status"]["conditions"]
    (found,) = [each for each in shown if each["type"] == "PodScheduled"]
    return times.read(found["lastTransitionTime"]) or 0.0


async def _prepare(api: Api, plane: ControlPlane) -> None:
    """Create queues, and a pool of nodes of one size."""
    for name, most in (("pods", 90), ("narrow", 4)):
        marked = {"pumice.dev/autoscaling": "pods"}
        queue = world.queue(name, annotations=marked, capability={"cpu": str(most)})
        await api.create("queues", queue)
    source = source_of(KARPENTER.source, module=KARPENTER.module)
    await plane.apply_crds(source / "kwok/apis/crds")
    await _create(api, "karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", {})
    ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    size = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": [str(CPU)]}
    spec = {
        "template": {"spec": {"nodeClassRef": ref, "requirements": [size]}},
        "limits": {"cpu": "100"},
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "5s",
            "budgets": [{"nodes": "100%"}],
        },
    }
    await _create(api, "karpenter.sh/v1", "NodePool", spec)


async def _create(api: Api, version: str, kind: str, spec: dict[str, Any]) -> None:
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": "default"}}
    plural = "nodepools" if kind == "NodePool" else "kwoknodeclasses"
    await api.request("POST", f"/apis/{version}/{plural}", {**head, "spec": spec})


async def run(directory: Path) -> None:
    """Play all scenarios on one cluster."""
    conf = directory / "volcano-scheduler.conf"
    conf.write_text(CONF)
    async with real_plane(directory) as plane, connect(plane.kubeconfig) as api:
        karpenter = RunningOperator(KARPENTER, api, plane, Path())
        await karpenter.install()
        await _prepare(api, plane)
        async with karpenter.running(), fleet(plane, directory) as services:
            await services.start("scheduler", wait=False, scheduler_conf=str(conf))
            await services.start_all("cache", "binder", "controller")
            check = Check(api, services, directory / KARPENTER.name / "log")
            for title, scenario in (
                ("a gang makes nodes from none, and starts whole", check.scale_from_zero("first")),
                ("its nodes go with it", check.scale_to_zero("first")),
                ("surplus pods of a queue make none", check.no_node_beyond_a_queue("narrow")),
                ("again its nodes go", check.scale_to_zero("narrow")),
                ("a later gang makes nodes from none", check.scale_from_zero("second")),
            ):
                await scenario
                print(f"{KARPENTER.title} {KARPENTER.version}: {title}", flush=True)


def main() -> int:
    """Run the check; returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
