"""The promises that can be seen on the API server alone, checked at every event.

No node carries more than it has, no pod (uid) is ever on two nodes, no gang stays partly placed,
what has succeeded is counted for good and does not run again, every job comes to its end. Shared by
the restart tests (`Watcher`, real processes) and the simulation (virtual time); shares no code with
the services. Objects are plain JSON.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from fractions import Fraction
from typing import NamedTuple

from tests.support.api import Api, ApiError

SUFFIX = {
    "m": Fraction(1, 1000),
    **{letter: Fraction(10 ** (3 * (i + 1))) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(2 ** (10 * (i + 1))) for i, letter in enumerate("KMGTPE")},
}
GROUP = "scheduling.k8s.io/group-name"
VERSION = "volcano.sh/job-version"
FINISHED = ("Succeeded", "Failed")


def amount(quantity: str) -> Fraction:
    """Return a quantity as an exact number."""
    for suffix in sorted(SUFFIX, key=len, reverse=True):
        if quantity.endswith(suffix):
            return Fraction(quantity[: -len(suffix)]) * SUFFIX[suffix]
    return Fraction(quantity)


def requests(pod: dict) -> dict[str, Fraction]:
    """Return what a pod asks for: the sum over its containers, and one pod."""
    total: dict[str, Fraction] = defaultdict(Fraction)
    for container in pod["spec"]["containers"]:
        for name, quantity in container.get("resources", {}).get("requests", {}).items():
            total[name] += amount(quantity)
    total["pods"] += 1
    return total


class Violation(NamedTuple):
    """A promise that was broken, and the object (`namespace/name`, or a node) that shows it."""

    key: str
    text: str

    def __str__(self) -> str:
        return self.text


def key_of(obj: dict) -> str:
    """Return `namespace/name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


class Invariants:
    """Folds pods and nodes as they change; `violations` says what was broken, and by which pod."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.pods: dict[str, dict] = {}
        self.strangers = ""
        """Namespace of a tenant whose pods name their nodes themselves, which is not our doing."""
        self._capacity: dict[str, dict[str, Fraction]] = {}
        self._on_node: dict[str, dict[str, dict[str, Fraction]]] = defaultdict(dict)
        self._node_of_uid: dict[str, str] = {}
        self._succeeded: dict[tuple[str, str], str] = {}

    def node(self, node: dict) -> None:
        """Take a node, new or changed."""
        self._capacity[node["metadata"]["name"]] = {
            name: amount(quantity) for name, quantity in node["status"]["allocatable"].items()
        }

    def listed(self, pods: Iterable[dict]) -> None:
        """Take the whole list of pods: what is not in it is gone."""
        pods = list(pods)
        uids = {pod["metadata"]["uid"] for pod in pods}
        for pod in list(self.pods.values()):
            if pod["metadata"]["uid"] not in uids:
                self.gone(pod)
        for pod in pods:
            self.pod(pod)

    def gone(self, pod: dict) -> None:
        """Take the end of a pod."""
        self.pods.pop(key_of(pod), None)
        if name := pod["spec"].get("nodeName"):
            self._on_node[name].pop(pod["metadata"]["uid"], None)

    def pod(self, pod: dict) -> None:
        """Take a pod, new or changed."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        before = self.pods.get(key)
        if before is not None and before["metadata"]["uid"] != uid:
            self.gone(before)
        self.pods[key] = pod
        if key.startswith(f"{self.strangers}/"):
            return
        self._check_success(key, pod)
        name = pod["spec"].get("nodeName")
        if not name:
            if uid in self._node_of_uid:
                self._broken(key, f"{key} ({uid}) lost its node {self._node_of_uid[uid]}")
            return
        known = self._node_of_uid.setdefault(uid, name)
        if known != name:
            self._broken(key, f"{key} ({uid}) moved from {known} to {name}")
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._on_node[name].pop(uid, None)
            return
        self._on_node[name][uid] = requests(pod)
        self._check_node(name, key)

    def _check_success(self, key: str, pod: dict) -> None:
        """Hold to it that a pod's place is not filled again at the same version of its job."""
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        version = metadata.get("annotations", {}).get(VERSION)
        if version is None:
            return
        known = self._succeeded.get((key, version), uid)
        if known != uid:
            self._broken(key, f"{key} ({known}) had succeeded and was made again as {uid}")
        phase = pod.get("status", {}).get("phase")
        if phase == "Succeeded" and "deletionTimestamp" not in metadata:
            self._succeeded[key, version] = uid

    def job(self, before: dict | None, job: dict) -> None:
        """Take the change of a job."""
        key, after = key_of(job), job.get("status", {})
        was = (before or {}).get("status", {})
        if was.get("state", {}).get("phase") != "Completed":
            return
        if after.get("state", {}).get("phase") != "Completed":
            return
        if after.get("succeeded", 0) < was.get("succeeded", 0):
            fell = f"from {was['succeeded']} to {after.get('succeeded', 0)}"
            self._broken(key, f"{key} is Completed, and its succeeded pods fell {fell}")

    def bound(self, namespace: str) -> list[str]:
        """Return the keys of the pods of a namespace that have a node."""
        return [
            key
            for key, pod in self.pods.items()
            if key.startswith(f"{namespace}/") and pod["spec"].get("nodeName")
        ]

    def partial_gangs(self, minimum: dict[str, int]) -> dict[str, int]:
        """Return the gangs (`namespace/group` to pods with a node) placed, but not whole."""
        placed: dict[str, int] = defaultdict(int)
        for pod in self.pods.values():
            group = pod["metadata"].get("annotations", {}).get(GROUP)
            if group and pod["spec"].get("nodeName"):
                placed[f"{pod['metadata']['namespace']}/{group}"] += 1
        return {g: n for g, n in placed.items() if g in minimum and n < minimum[g]}

    def _check_node(self, name: str, cause: str) -> None:
        used: dict[str, Fraction] = defaultdict(Fraction)
        for wanted in self._on_node[name].values():
            for resource, value in wanted.items():
                used[resource] += value
        for resource, value in used.items():
            has = self._capacity.get(name, {}).get(resource, Fraction(0))
            if name in self._capacity and value > has:
                text = f"node {name}: {resource} {float(value)} of {float(has)} after {cause}"
                self._broken(cause, text)

    def _broken(self, key: str, text: str) -> None:
        self.violations.append(Violation(key, text))


class Watcher(Invariants):
    """Follows pods and nodes of one cluster; `violations` lists what was broken, with the event."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api
        self.events = 0
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; an API server that goes away is waited for."""
        await self.kept(self._list_and_watch)

    async def kept(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Call `follow` again each time it ends, or the API server goes away."""
        while True:
            try:
                await follow()
            except (ApiError, OSError, TimeoutError):
                await asyncio.sleep(0.1)
            except Exception as exc:
                if type(exc).__module__.split(".")[0] != "aiohttp":
                    raise
                await asyncio.sleep(0.1)

    async def _list_and_watch(self) -> None:
        for node in (await self._api.get("nodes"))["items"]:
            self.node(node)
        pods = await self._api.get("pods")
        self.listed(pods["items"])
        self.ready.set()
        async for event in self._api.watch("pods", rv=pods["metadata"]["resourceVersion"]):
            obj = event["object"]
            if event["type"] == "ERROR":
                return
            if event["type"] == "BOOKMARK":
                continue
            self.events += 1
            if event["type"] == "DELETED":
                self.gone(obj)
            else:
                self.pod(obj)
