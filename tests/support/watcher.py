"""The judge of the restart tests: watches the API server alone and checks every event.

It holds the promises that can be seen from outside: no node carries more than it has, no pod (uid)
is ever on two nodes, no gang stays partly placed. It shares no code with the services.
"""

import asyncio
from collections import defaultdict
from fractions import Fraction

from tests.support.api import Api, ApiError

SUFFIX = {
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}
GROUP = "scheduling.k8s.io/group-name"


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


class Watcher:
    """Follows pods and nodes of one cluster; `violations` lists what was broken, with the event."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.violations: list[str] = []
        self.events = 0
        self.ready = asyncio.Event()
        self._capacity: dict[str, dict[str, Fraction]] = {}
        self._on_node: dict[str, dict[str, dict[str, Fraction]]] = defaultdict(dict)
        self._node_of_uid: dict[str, str] = {}
        self.pods: dict[str, dict] = {}

    async def run(self) -> None:
        """Watch until cancelled; an API server that goes away is waited for."""
        while True:
            try:
                await self._list_and_watch()
            except (ApiError, OSError, TimeoutError):
                await asyncio.sleep(0.1)
            except Exception as exc:
                if type(exc).__module__.split(".")[0] != "aiohttp":
                    raise
                await asyncio.sleep(0.1)

    async def _list_and_watch(self) -> None:
        nodes = await self._api.get("nodes")
        for item in nodes["items"]:
            self._node(item)
        pods = await self._api.get("pods")
        listed = {item["metadata"]["uid"] for item in pods["items"]}
        for key, pod in list(self.pods.items()):
            if pod["metadata"]["uid"] not in listed:
                self._forget(key, pod)
        for item in pods["items"]:
            self._pod(item)
        self.ready.set()
        async for event in self._api.watch("pods", rv=pods["metadata"]["resourceVersion"]):
            obj = event["object"]
            if event["type"] == "ERROR":
                return
            if event["type"] == "BOOKMARK":
                continue
            self.events += 1
            if event["type"] == "DELETED":
                self._forget(self._key(obj), obj)
            else:
                self._pod(obj)

    @staticmethod
    def _key(pod: dict) -> str:
        return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"

    def _node(self, node: dict) -> None:
        self._capacity[node["metadata"]["name"]] = {
            name: amount(quantity) for name, quantity in node["status"]["allocatable"].items()
        }

    def _forget(self, key: str, pod: dict) -> None:
        self.pods.pop(key, None)
        if name := pod["spec"].get("nodeName"):
            self._on_node[name].pop(pod["metadata"]["uid"], None)

    def _pod(self, pod: dict) -> None:
        key, uid = self._key(pod), pod["metadata"]["uid"]
        before = self.pods.get(key)
        if before is not None and before["metadata"]["uid"] != uid:
            self._forget(key, before)
        self.pods[key] = pod
        name = pod["spec"].get("nodeName")
        if not name:
            if uid in self._node_of_uid:
                self.violations.append(f"{key} ({uid}) lost its node {self._node_of_uid[uid]}")
            return
        known = self._node_of_uid.setdefault(uid, name)
        if known != name:
            self.violations.append(f"{key} ({uid}) moved from {known} to {name}")
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._on_node[name].pop(uid, None)
            return
        self._on_node[name][uid] = requests(pod)
        self._check_node(name, key)

    def _check_node(self, name: str, cause: str) -> None:
        used: dict[str, Fraction] = defaultdict(Fraction)
        for wanted in self._on_node[name].values():
            for resource, value in wanted.items():
                used[resource] += value
        for resource, value in used.items():
            has = self._capacity.get(name, {}).get(resource, Fraction(0))
            if name in self._capacity and value > has:
                self.violations.append(
                    f"node {name}: {resource} {float(value)} of {float(has)} after {cause}"
                )

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
