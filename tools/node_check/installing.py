"""Installs k8s/base by the commands of docs/deployment.md; judges the installation at the end."""

import http
import json
import subprocess
import sys
from typing import Any, Final

from tools.compose_docker import ROOT, CheckError
from tools.node_check.machine import NODES, Machine, wait_for

NAMESPACE: Final = "pumice-system"
_PREEMPTS: Final = 'actions: "enqueue, allocate, preempt, reclaim, backfill"'


def install(machine: Machine) -> str:
    """Install, wait until all is ready; return how long that took."""
    data = machine.folder / "nats"
    data.mkdir()
    machine.apply(_volume(str(data)))
    machine.kubectl("create", "namespace", NAMESPACE)
    secrets = subprocess.run(
        [sys.executable, "-P", "-m", "pumice.deploy.nats_secrets"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    machine.kubectl("create", "-f", "-", stdin=secrets.stdout)
    base = machine.kubectl("kustomize", str(ROOT / "k8s" / "base"))
    machine.kubectl("apply", "--server-side", "-f", "-", stdin=_with_preemption(base))
    machine.kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "--timeout=2m")
    seconds = wait_for("all pods are ready", lambda: _unready(machine), deadline_s=60)
    return f"{seconds:.1f} s after the roll-out"


def _with_preemption(base: str) -> str:
    actions = 'actions: "enqueue, allocate, backfill"'
    if actions not in base:
        raise CheckError("k8s/base/scheduler-config.yaml has other actions than expected")
    return base.replace(actions, _PREEMPTS)


def _volume(path: str) -> dict[str, Any]:
    """Return a volume for NATS: the cluster has no provisioner."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "nats"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": path},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": [NODES[0]],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }


def _pods(machine: Machine) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = machine.get("pods", "-n", NAMESPACE)["items"]
    return pods


def _unready(machine: Machine) -> str:
    late = [
        pod["metadata"]["name"]
        for pod in _pods(machine)
        if not any(
            (c["type"], c["status"]) == ("Ready", "True")
            for c in pod["status"].get("conditions", [])
        )
    ]
    return ", ".join(late)


def kept_its_promises(machine: Machine) -> str:
    """Judge the installation: no restart, no unready pod, no refused request of its accounts."""
    if dead := machine.died():
        raise CheckError(f"ended by themselves: {', '.join(dead)}")
    wait_for("all pods are ready", lambda: _unready(machine), deadline_s=60)
    restarts = {
        pod["metadata"]["name"]: status["restartCount"]
        for pod in _pods(machine)
        for status in pod["status"].get("containerStatuses", [])
        if status["restartCount"]
    }
    if restarts:
        raise CheckError(f"restarted: {restarts}")
    refused = _refused(machine)
    if refused:
        raise CheckError(f"refused requests: {refused}")
    return ""


def _refused(machine: Machine) -> list[str]:
    found = set()
    with machine.audit.open() as log:
        for line in log:
            event = json.loads(line)
            user = event["user"].get("username", "")
            if (
                event.get("responseStatus", {}).get("code") == http.HTTPStatus.FORBIDDEN
                and NAMESPACE in user
            ):
                found.add(f"{user}: {event['verb']} {event['requestURI']}")
    return sorted(found)
