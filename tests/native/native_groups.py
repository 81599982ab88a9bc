"""A control plane of Kubernetes 1.37 with the gates of its own gangs, and objects for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pumice.local.control_plane import ControlPlane
from tests.support.goprograms import next_kubernetes
from tests.support.stack import real_plane

GROUP = "/apis/scheduling.k8s.io/v1beta1"
GATES = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,"
    "DRAWorkloadResourceClaims=true,PodGroupPreemptionPolicy=true"
)
JOB_GATES = f"{GATES},WorkloadWithJob=true"
SERVED = (
    "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    JOB_GATES,
)
OF_PLANE = ("kube-apiserver", "kube-controller-manager")

Object = dict[str, Any]


@asynccontextmanager
async def native_plane(directory: Path) -> AsyncIterator[ControlPlane]:
    """Run a control plane that serves native PodGroups, with a Job controller that makes them."""
    async with real_plane(
        directory,
        apiserver_flags=SERVED,
        controllers_flags=(JOB_GATES,),
        programs={name: next_kubernetes(name) for name in OF_PLANE},
    ) as plane:
        yield plane


def podgroup(name: str, *, min_count: int = 0, key: str = "", **spec: Any) -> Object:
    """Return a native PodGroup; without a minimum of the basic policy, with a key in one domain."""
    policy: Object = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **constraints, **spec},
    }


def member(group: str) -> Object:
    """Return the part of a pod's spec that names its native PodGroup."""
    return {"schedulingGroup": {"podGroupName": group}}
