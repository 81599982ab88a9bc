"""Jobs of frameworks that really compute, made by their own operators: `FRAMEWORKS=1`."""

from pathlib import Path
from typing import Final

from pumice.local.ports import free_port
from tools.frameworks_check.environments import environment, packages
from tools.frameworks_check.operators import DASK
from tools.node_check.images import DASK_IMAGE
from tools.node_check.jobs import Check, Object
from tools.node_check.machine import Machine, wait_for

_END_S: Final = 150.0
_DASK: Final = """
import os, socket
from distributed import Client
client = Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=60)
client.wait_for_workers(2)
hosts = set(client.run(socket.gethostname).values())
assert len(hosts) == 2, hosts
total = client.submit(sum, client.map(lambda x: x * x, range(100))).result()
assert total == 328350, total
print("two workers have the sum", total)
"""


def programs() -> dict[str, Path]:
    """Return the programs of the operators, and their CRDs, after building or installing them."""
    return {
        "dask": environment(DASK.environment) / "bin" / "python",
        "dask-crds": packages(DASK.environment) / DASK.crds,
    }


def _container(name: str, script: str, image: str) -> Object:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "20m", "memory": "16Mi"}},
    }


def _pod(name: str, script: str, image: str, **labels: str) -> Object:
    """Return a pod's spec; pods with the labels are on nodes of their own."""
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return {
        "schedulerName": "volcano",
        "terminationGracePeriodSeconds": 1,
        "containers": [_container(name, script, image)],
        **({"affinity": affinity} if labels else {}),
    }


def _ended(machine: Machine, plural: str, name: str, path: str, wanted: str) -> str:
    """Wait until an object has a value at a path; return how many seconds that took."""

    def look() -> str:
        found = machine.kubectl("get", plural, name, "-o", f"jsonpath={path}", may_fail=True)
        return "" if found == wanted else f"{found}\n{_pods(machine, name)}"

    seconds = wait_for(f"{plural} {name} ends", look, deadline_s=_END_S)
    return f"{seconds:.1f} s"


def _pods(machine: Machine, name: str) -> str:
    """Return pods and logs, for a person."""
    pods = machine.kubectl("get", "pods", "-o", "wide", may_fail=True)
    names = [line.split()[0] for line in pods.splitlines() if line.startswith(f"{name}-")]
    logs = (machine.kubectl("logs", each, "--tail=8", may_fail=True) for each in names)
    return f"{pods}{''.join(logs)}"


def _gone(machine: Machine, plural: str, name: str) -> None:
    """Delete an object and wait until its pods are gone."""
    machine.kubectl("delete", plural, name, "--timeout=60s")

    def left() -> str:
        pods = machine.kubectl("get", "pods", "-o", "name", may_fail=True)
        return "\n".join(pod for pod in pods.splitlines() if f"/{name}-" in pod)

    wait_for(f"pods of {name} are gone", left, deadline_s=60)


def daskjob(machine: Machine) -> str:
    """Have the runner of a DaskJob compute on two workers on two nodes."""
    machine.apply_crds("dask-crds")
    flags = DASK.flags(machine.folder, 0, free_port(), 0)
    with machine.operator("dask", "-m", DASK.package, *flags):
        module = "exec python3 -m distributed.cli.dask_"
        worker = (
            f'{module}worker --name "$DASK_WORKER_NAME" --no-dashboard "$DASK_SCHEDULER_ADDRESS"'
        )
        runner = _pod("job", f"exec python3 -c '{_DASK}'", DASK_IMAGE)
        apart = {"dask.org/cluster-name": "sums", "dask.org/component": "worker"}
        labels = {"dask.org/cluster-name": "sums", "dask.org/component": "scheduler"}
        machine.apply(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "sums", "namespace": "default"},
                "spec": {"minMember": 4, "queue": "default"},
            },
            {
                "apiVersion": "kubernetes.dask.org/v1",
                "kind": "DaskJob",
                "metadata": {
                    "name": "sums",
                    "namespace": "default",
                    "annotations": {"scheduling.k8s.io/group-name": "sums"},
                },
                "spec": {
                    "job": {"spec": {**runner, "restartPolicy": "Never"}},
                    "cluster": {
                        "spec": {
                            "worker": {
                                "replicas": 2,
                                "spec": _pod("worker", worker, DASK_IMAGE, **apart),
                            },
                            "scheduler": {
                                "spec": _pod("scheduler", f"{module}scheduler", DASK_IMAGE),
                                "service": {
                                    "type": "ClusterIP",
                                    "selector": labels,
                                    "ports": [{"name": "tcp-comm", "port": 8786}],
                                },
                            },
                        }
                    },
                },
            },
        )
        seconds = _ended(machine, "daskjobs", "sums", "{.status.jobStatus}", "Successful")
        _gone(machine, "daskjobs", "sums")
        machine.kubectl("delete", "podgroup", "sums")
    return seconds


CHECKS: Final[dict[str, Check]] = {
    "a DaskJob computes on two workers on two nodes": daskjob,
}
