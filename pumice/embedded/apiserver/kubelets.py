"""Fake kubelets, which do the same as KWOK with the stages of `pumice/local/stages.yaml`.

A node with the annotation `kwok.x-k8s.io/node` is made Ready once. A pod that is bound to such a
node runs, ends and stops as its annotations say (`pumice.dev/start-seconds`, `run-seconds`,
`exit-code`, `stop-seconds`); each delay counts from the pod's last change, as on KWOK.
"""

import heapq
from collections.abc import Callable
from typing import Final

from pumice.embedded.apiserver.api_state import NODES, PODS, ApiState, decode
from pumice.embedded.apiserver.patching import merge_list
from pumice.embedded.apiserver.replies import Object
from pumice.embedded.apiserver.store import DELETED, StoreWrite

FAKE: Final = ("kwok.x-k8s.io/node", "fake")
_START: Final = "pumice.dev/start-seconds"
_RUN: Final = "pumice.dev/run-seconds"
_EXIT: Final = "pumice.dev/exit-code"
_STOP: Final = "pumice.dev/stop-seconds"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
Stage = Callable[[str, Object], None]


class Kubelets:
    """The timers of all fake nodes and pods; `work` runs the stages that are due."""

    def __init__(self, api: ApiState) -> None:
        self._api = api
        self._fake: dict[str, str] = {}
        """Fake nodes with their addresses."""
        self._waiting: dict[str, set[str]] = {}
        """Keys of the pods that are bound to nodes which are not known (yet)."""
        self._due: list[tuple[float, int, str, str]] = []
        self._current: dict[str, int] = {}
        """Newest number of each pod's stage; a timer with another number is void."""
        self._count = 0
        api.store.listeners.append(self._note)

    def due_at(self) -> float | None:
        """Return when the next stage is due, None when none is."""
        return self._due[0][0] if self._due else None

    def work(self) -> None:
        """Play all stages that are due."""
        now = self._api.now()
        while self._due and self._due[0][0] <= now:
            _, number, resource, key = heapq.heappop(self._due)
            if resource == NODES:
                self._make_ready(key)
            elif self._current.get(key) == number:
                del self._current[key]
                self._run_stage(key)

    def index(self, resource: str, obj: Object) -> None:
        """Take in an object that a journal brought back."""
        if resource == NODES:
            self._note_node(obj)
        elif resource == PODS:
            self._plan(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj)

    def _note(self, change: StoreWrite, obj: Object) -> None:
        if change.resource == PODS:
            if change.op == DELETED:
                self._current.pop(change.key, None)
            else:
                self._plan(change.key, obj)
        elif change.resource == NODES:
            if change.op == DELETED:
                self._fake.pop(obj["metadata"]["name"], None)
            else:
                self._note_node(obj)

    def _note_node(self, node: Object) -> None:
        meta = node["metadata"]
        name = meta["name"]
        if (meta.get("annotations") or {}).get(FAKE[0]) != FAKE[1]:
            self._fake.pop(name, None)
            return
        if name not in self._fake:
            number = len(self._fake) + 1
            self._fake[name] = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        conditions = (node.get("status") or {}).get("conditions") or ()
        tainted = any(t["key"] == _NOT_READY for t in node["spec"].get("taints") or ())
        if tainted or not any(c["type"] == "Ready" for c in conditions):
            self._at(0.0, NODES, f"/{name}")
        for key in sorted(self._waiting.pop(name, ())):
            entry = self._api.store.get(PODS, key)
            if entry is not None:
                self._plan(key, decode(entry.body))

    def _at(self, delay_s: float, resource: str, key: str) -> None:
        self._count += 1
        if resource == PODS:
            self._current[key] = self._count
        heapq.heappush(self._due, (self._api.now() + delay_s, self._count, resource, key))

    def _plan(self, key: str, pod: Object) -> None:
        """Set the timer of the stage that fits the pod as it is now."""
        self._current.pop(key, None)
        node = pod["spec"].get("nodeName")
        if not node:
            return
        if node not in self._fake:
            self._waiting.setdefault(node, set()).add(key)
            return
        annotations = pod["metadata"].get("annotations") or {}
        phase = (pod.get("status") or {}).get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            self._at(_seconds(annotations, _STOP), PODS, key)
        elif phase == "Pending":
            self._at(_seconds(annotations, _START), PODS, key)
        elif phase == "Running" and _RUN in annotations:
            self._at(_seconds(annotations, _RUN), PODS, key)

    def _run_stage(self, key: str) -> None:
        entry = self._api.store.get(PODS, key)
        if entry is None:
            return
        pod = decode(entry.body)
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(pod)
        elif pod["status"].get("phase") == "Pending":
            self._run(pod)
        else:
            self._end(pod)

    def _make_ready(self, key: str) -> None:
        entry = self._api.store.get(NODES, key)
        if entry is None:
            return
        node = decode(entry.body)
        spec = node["spec"]
        taints = [t for t in spec.get("taints") or () if t["key"] != _NOT_READY]
        if taints:
            spec["taints"] = taints
        else:
            spec.pop("taints", None)
        conditions = (node.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Ready" for c in conditions):
            stamp, name = self._api.timestamp(), node["metadata"]["name"]
            node["status"] = (node.get("status") or {}) | _node_status(
                name, self._fake.get(name, "10.0.0.1"), stamp
            )
        self._api.write(NODES, node)

    def _run(self, pod: Object) -> None:
        stamp = self._api.timestamp()
        status, spec = pod["status"], pod["spec"]
        address = self._fake[spec["nodeName"]]
        status |= {"phase": "Running", "startTime": stamp, "hostIP": address, "podIP": address}
        status["podIPs"] = [{"ip": address}]
        ready = ["Initialized", "ContainersReady", "Ready"]
        ready += [gate["conditionType"] for gate in spec.get("readinessGates") or ()]
        _set_conditions(status, [{"type": t, "status": "True"} for t in ready], stamp)
        if spec.get("initContainers"):
            done = {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": stamp,
                "finishedAt": stamp,
            }
            status["initContainerStatuses"] = [
                _container(c, ready=True) | {"state": {"terminated": done}}
                for c in spec["initContainers"]
            ]
        status["containerStatuses"] = [
            _container(c, ready=True)
            | {"started": True, "state": {"running": {"startedAt": stamp}}}
            for c in spec["containers"]
        ]
        self._api.write(PODS, pod)

    def _end(self, pod: Object) -> None:
        stamp = self._api.timestamp()
        status = pod["status"]
        text = (pod["metadata"].get("annotations") or {}).get(_EXIT) or "0"
        code = int(text) if text.lstrip("-").isdecimal() else 1
        status["phase"] = "Failed" if code else "Succeeded"
        reason = "PodFailed" if code else "PodCompleted"
        ended = [
            {"type": kind, "status": "False", "reason": reason}
            for kind in ("ContainersReady", "Ready")
        ]
        _set_conditions(status, ended, stamp)
        done = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": status.get("startTime"),
            "finishedAt": stamp,
        }
        status["containerStatuses"] = [
            _container(c, ready=False) | {"started": False, "state": {"terminated": done}}
            for c in pod["spec"]["containers"]
        ]
        self._api.write(PODS, pod)

    def _stop(self, pod: Object) -> None:
        """Take away a pod that was being deleted; finalizers of others keep it."""
        if pod["metadata"].get("finalizers"):
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                pod["metadata"]["deletionGracePeriodSeconds"] = 0
                self._api.write(PODS, pod)
            return
        self._api.remove(PODS, pod)


def _seconds(annotations: dict[str, str], name: str) -> float:
    try:
        return max(0.0, float(annotations.get(name, "0")))
    except ValueError:
        return 0.0


def _container(container: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "lastState": {},
    }


def _set_conditions(status: Object, new: list[Object], stamp: str) -> None:
    stamped = [{**condition, "lastTransitionTime": stamp} for condition in new]
    status["conditions"] = merge_list(status.get("conditions") or [], stamped, "type", {})


def _node_status(name: str, address: str, stamp: str) -> Object:
    return {
        "phase": "Running",
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "kwok",
            "kernelVersion": "kwok",
            "kubeProxyVersion": "",
            "kubeletVersion": "kwok",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "",
            "systemUUID": "",
        },
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "a fake node is always ready",
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": stamp,
            }
        ],
    }
