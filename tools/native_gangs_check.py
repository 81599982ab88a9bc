"""Runs gangs of Kubernetes 1.37 and decides them beside its scheduler (`make native-gangs-check`).

First the tests of `tests/native` on its API server. Then drawn states: nodes with pods of others,
and gangs that come one after the other. kube-scheduler places each; where it places at least the
minimum, ours has to on the same state. A gang that ours alone places is counted apart: ours may
look further, since kube-scheduler tries one order of pods. A state is drawn from its number:
`python -m tools.native_gangs_check --first 17 --states 1` repeats one. Needs Go.

Then drawn states of less important groups that run, and a gang that needs their places: where
kube-scheduler evicts for it, ours has to, and neither takes a part of a group that is disrupted
together. Last, gangs whose pods share a claim for devices.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from pumice.local.process import Process, ProcessSpec
from pumice.testing import Cluster, binds_of
from shared.api import kinds
from tests.native.gang_states import (
    NODE_CPU,
    NODES,
    RACK,
    DrawnGang,
    GangState,
    draw,
    draw_claims,
    draw_preemption,
)
from tests.native.native_groups import GATES, GROUP, member, native_plane, podgroup
from tests.support import world
from tests.support.api import Api, connect
from tests.support.goprograms import next_kubernetes
from tests.unit.scheduler.devices import device_class, request, slice_of, spec_of
from tools import suite

STATES: Final = 200
NAMESPACE: Final = "gangs"
CONF: Final = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: gang}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
PREEMPTIONS: Final = 40
PREEMPTING: Final = """
actions: "enqueue, allocate, gangpreempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
CLAIMS: Final = 20
LOW: Final = "unimportant"
HIGH: Final = "important"
_SETTLED_S: Final = 0.5
"""A verdict that stays for so long counts."""
_DOUBT_S: Final = 5.0
"""A difference counts when it is there after so long."""
_VERDICT_S: Final = 30.0

Object = dict[str, Any]


class Check:
    """A cluster, and the results of both schedulers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.differences: list[str] = []
        self.whole = self.refused = self.ours_alone = self.fewer = 0
        self.made_room = self.made_none = self.shared = 0

    async def state(self, number: int) -> None:
        """Apply one state, have its gangs placed, and delete all pods."""
        drawn = draw(Random(number))  # noqa: S311 - a drawn state is no secret
        await self._apply(drawn, number)
        for at, gang in enumerate(drawn.gangs):
            await self._gang(f"s{number}-{at}", gang)
        await self._api.request("DELETE", self._pods, {"gracePeriodSeconds": 0})

    async def _apply(self, drawn: GangState, number: int) -> None:
        for node in NODES:
            patch = {
                "metadata": {"labels": drawn.labels[node]},
                "spec": {"unschedulable": node in drawn.closed},
            }
            await self._api.patch("nodes", "", node, patch)
            if used := drawn.used[node]:
                pod = world.pod(f"s{number}-{node}", cpu=str(used), scheduler="", nodeName=node)
                await self._api.create("pods", pod, NAMESPACE)
        await asyncio.sleep(_SETTLED_S)  # kube-scheduler tells nobody what it has read

    async def _gang(self, name: str, drawn: DrawnGang) -> None:
        """Have both place one gang; it stays where kube-scheduler has put it."""
        nodes = await self._api.items("nodes")
        before = await self._api.items("pods", NAMESPACE)
        group = podgroup(name, min_count=drawn.min_count, key=drawn.key)
        pods = [_pod(f"{name}-{at}", name, drawn, at) for at in range(len(drawn.cpus))]
        ours = placed_by_us(nodes, before, group, pods)
        await self._api.request("POST", f"{GROUP}/namespaces/{NAMESPACE}/podgroups", group)
        for pod in pods:
            await self._api.create("pods", pod, NAMESPACE)
        theirs = await self._verdict(name, len(pods), _SETTLED_S)
        if _is_whole(theirs, drawn) is not _is_whole(ours, drawn):
            theirs = await self._verdict(name, len(pods), _DOUBT_S)
        self._compare(name, drawn, theirs, ours)
        if theirs < len(pods):
            for pod in pods:
                await self._delete_waiting(pod["metadata"]["name"])

    async def preemption(self, number: int) -> None:
        """Have both make room for a gang among groups that run, and delete all pods."""
        drawn = draw_preemption(Random(number))  # noqa: S311 - a drawn state is no secret
        for node in NODES:
            await self._api.patch("nodes", "", node, {"spec": {"unschedulable": False}})
        cluster = Cluster(PREEMPTING)
        for node in await self._api.items("nodes"):
            cluster.put(kinds.NODE, node)
        together = {}
        for at, victims in enumerate(drawn.groups):
            name = f"p{number}-low{at}"
            mode = {"disruptionMode": {"all": {}}} if victims.together else {}
            await self._group(cluster, name, victims.min_count, LOW, **mode)
            for pod, (cpu, node) in enumerate(victims.pods):
                await self._member(cluster, f"{name}-{pod}", name, cpu, LOW, nodeName=node)
            if victims.together:
                together[name] = len(victims.pods)
        await asyncio.sleep(_SETTLED_S)  # kube-scheduler tells nobody what it has read
        name = f"p{number}-high"
        await self._group(cluster, name, len(drawn.cpus), HIGH)
        for pod, cpu in enumerate(drawn.cpus):
            await self._member(cluster, f"{name}-{pod}", name, cpu, HIGH)
        plan = cluster.decide()
        ours = bool(plan.binds or plan.nominations)
        theirs = await self._verdict(name, len(drawn.cpus), _DOUBT_S) == len(drawn.cpus)
        self.made_room += theirs
        self.made_none += not theirs
        self._difference(theirs and not ours, name, "kube-scheduler alone makes room")
        left = [pod["metadata"]["name"] for pod in await self._api.items("pods", NAMESPACE)]
        gone = [eviction.pod.partition("/")[2] for eviction in plan.evictions]
        for group, count in together.items():
            evicted = sum(pod.startswith(f"{group}-") for pod in gone)
            stay = sum(pod.startswith(f"{group}-") for pod in left)
            self._difference(evicted not in {0, count}, group, f"ours evicts {evicted} of {count}")
            self._difference(stay not in {0, count}, group, f"kube-scheduler leaves {stay}")
        await self._api.request("DELETE", self._pods, {"gracePeriodSeconds": 0})

    async def claim(self, number: int) -> None:
        """Have both place a gang whose pods share a claim, and delete all pods."""
        drawn = draw_claims(Random(number))  # noqa: S311 - a drawn state is no secret
        cluster = Cluster(CONF)
        cluster.put(kinds.DEVICECLASS, device_class())
        for node in NODES:
            await self._api.patch("nodes", "", node, {"spec": {"unschedulable": False}})
            name = f"c{number}-{node}"  # devices of a pool that no earlier claim has
            if names := [f"d{at}" for at in range(drawn.devices[node])]:
                offered = slice_of(name, names, node=node, pool=name)
                await self._api.create("resourceslices", offered)
                cluster.put(kinds.RESOURCESLICE, offered)
            if used := drawn.used[node]:
                pod = world.pod(name, cpu=str(used), scheduler="", nodeName=node)
                cluster.put(kinds.POD, await self._api.create("pods", pod, NAMESPACE))
        for each in await self._api.items("nodes"):
            cluster.put(kinds.NODE, each)
        await asyncio.sleep(_SETTLED_S)  # kube-scheduler tells nobody what it has read
        name = f"c{number}"
        spec = spec_of(request(count=drawn.count))
        template = {"metadata": {"name": name}, "spec": {"spec": spec}}
        await self._api.create("resourceclaimtemplates", template, NAMESPACE)
        asks = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}
        made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}
        group = podgroup(name, min_count=drawn.min_count, **asks)
        claim = _stored({"metadata": {"name": name}, "spec": spec})
        cluster.put(kinds.RESOURCECLAIM, claim)
        cluster.put(kinds.NATIVEPODGROUP, {**_stored(group), "status": made})
        await self._api.request("POST", f"{GROUP}/namespaces/{NAMESPACE}/podgroups", group)
        for at, cpu in enumerate(drawn.cpus):
            pod = world.pod(f"{name}-{at}", cpu=str(cpu), scheduler="", **member(name), **asks)
            await self._api.create("pods", pod, NAMESPACE)
            own = {**pod["spec"], "schedulerName": "volcano"}
            cluster.put(kinds.POD, {**_stored(pod), "spec": own, "status": made})
        ours = len(binds_of(cluster.decide()))
        theirs = await self._verdict(name, len(drawn.cpus), _DOUBT_S)
        self.shared += bool(theirs)
        self._difference(ours != theirs, name, f"kube-scheduler places {theirs}, ours {ours}")
        for each in await self._api.items("resourceclaims", NAMESPACE):
            users = each.get("status", {}).get("reservedFor", [])
            kinds_of = {user["resource"] for user in users} - {"podgroups"}
            self._difference(bool(kinds_of), name, f"kube-scheduler reserves for {kinds_of}")
        await self._api.request("DELETE", self._pods, {"gracePeriodSeconds": 0})
        await self._api.request("DELETE", "/apis/resource.k8s.io/v1/resourceslices", {})

    def _difference(self, is_one: bool, name: str, words: str) -> None:
        if is_one:
            self.differences.append(name)
            print(f"{name}: {words}", flush=True)

    async def _group(
        self, cluster: Cluster, name: str, least: int, important: str, **spec: object
    ) -> None:
        """Create a group on the server and for ours, as admission leaves it."""
        group = podgroup(name, min_count=least, priorityClassName=important, **spec)
        path = f"{GROUP}/namespaces/{NAMESPACE}/podgroups"
        cluster.put(kinds.NATIVEPODGROUP, await self._api.request("POST", path, group))

    async def _member(
        self, cluster: Cluster, name: str, group: str, cpu: int, important: str, **spec: object
    ) -> None:
        """Create a pod on the server and for ours."""
        spec |= {"priorityClassName": important, "terminationGracePeriodSeconds": 0}
        pod = world.pod(name, cpu=str(cpu), scheduler="", **member(group), **spec)
        made = await self._api.create("pods", pod, NAMESPACE)
        placed = {"phase": "Running" if "nodeName" in spec else "Pending"}
        own = {**made["spec"], "schedulerName": "volcano"}
        cluster.put(kinds.POD, {**made, "spec": own, "status": placed})

    def _compare(self, name: str, drawn: DrawnGang, theirs: int, ours: int) -> None:
        is_whole, is_ours = _is_whole(theirs, drawn), _is_whole(ours, drawn)
        self.whole += is_whole
        self.refused += not is_whole
        self.ours_alone += is_ours and not is_whole
        self.fewer += is_ours and is_whole and ours < theirs
        if is_whole and not is_ours:
            self.differences.append(name)
            print(f"{name}: kube-scheduler places {theirs}, ours {ours} of {drawn}", flush=True)

    async def _verdict(self, name: str, count: int, settled_s: float) -> int:
        """Return how many pods of a gang kube-scheduler has placed, once that stays so."""
        deadline = time.monotonic() + _VERDICT_S
        last, since = None, time.monotonic()
        while True:
            mine = [
                pod
                for pod in await self._api.items("pods", NAMESPACE)
                if pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name
            ]
            placed = sum(bool(pod["spec"].get("nodeName")) for pod in mine)
            told = sum(bool(pod.get("status", {}).get("conditions")) for pod in mine)
            if (placed, told) != last:
                last, since = (placed, told), time.monotonic()
            if placed == count or (told == count and time.monotonic() - since > settled_s):
                return placed
            if time.monotonic() > deadline:
                raise TimeoutError(f"kube-scheduler has no result for {name}: {mine}")
            await asyncio.sleep(0.05)

    async def _delete_waiting(self, name: str) -> None:
        pod = await self._api.get("pods", NAMESPACE, name)
        if not pod["spec"].get("nodeName"):
            await self._api.request("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods"


def _is_whole(placed: int, drawn: DrawnGang) -> bool:
    return placed >= max(1, drawn.min_count)


def _pod(name: str, group: str, drawn: DrawnGang, at: int) -> Object:
    selector = {"nodeSelector": {RACK: drawn.labels[at]}} if drawn.labels[at] else {}
    cpu = str(drawn.cpus[at]) if drawn.cpus[at] else ""
    return world.pod(name, cpu=cpu, scheduler="", **member(group), **selector)


def placed_by_us(
    nodes: Iterable[Object], before: Iterable[Object], group: Object, pods: Iterable[Object]
) -> int:
    """Return how many pods of a gang ours places on nodes with the pods that are there."""
    cluster = Cluster(CONF)
    for node in nodes:
        cluster.put(kinds.NODE, node)
    for pod in before:
        cluster.put(kinds.POD, pod)
    cluster.put(kinds.NATIVEPODGROUP, _stored(group))
    for pod in pods:
        stored = _stored(pod)
        cluster.put(kinds.POD, {**stored, "spec": {**stored["spec"], "schedulerName": "volcano"}})
    return len(binds_of(cluster.decide()))


def _stored(document: Object) -> Object:
    name = document["metadata"]["name"]
    meta = {**document["metadata"], "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return {**document, "metadata": meta}


async def run(
    numbers: Iterable[int], preemptions: Iterable[int], claims: Iterable[int], directory: Path
) -> Check:
    """Check states on a cluster of its own."""
    async with native_plane(directory) as plane, connect(plane.kubeconfig) as api:
        await world.add_nodes(api, len(NODES), cpu=str(NODE_CPU))
        await api.create("namespaces", {"metadata": {"name": NAMESPACE}})
        async with admin.connect(plane.url, plane.pki) as client:
            process = plane.processes[plane.api_program]
            await process.ready(lambda: client.accounts_ready(NAMESPACE), deadline_s=30)
        scheduler = _scheduler(plane)
        scheduler.start()
        try:
            check = Check(api)
            for number in numbers:
                await check.state(number)
            for name, value in ((LOW, 10), (HIGH, 1000)):
                await api.create("priorityclasses", {"metadata": {"name": name}, "value": value})
            for number in preemptions:
                await check.preemption(number)
            await api.create("deviceclasses", device_class())
            for number in claims:
                await check.claim(number)
            return check
        finally:
            await scheduler.stop(grace_s=2.0)


def _scheduler(plane: ControlPlane) -> Process:
    kubeconfig = plane.directory / "pki" / "parts.kubeconfig"
    argv = (
        str(next_kubernetes("kube-scheduler")),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        GATES,
    )
    log = plane.logs / "kube-scheduler.log"
    return Process(ProcessSpec(name="kube-scheduler", argv=argv, log=log))


def main(words: list[str]) -> int:
    """Run tests and states, and print each difference; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=STATES, help="how many states are checked")
    parser.add_argument(
        "--preemptions", type=int, default=PREEMPTIONS, help="how many states with evictions"
    )
    parser.add_argument(
        "--claims", type=int, default=CLAIMS, help="how many states with a shared claim"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--no-tests", action="store_true", help="only the drawn states")
    options = parser.parse_args(words)
    if not options.no_tests and (code := suite.main(["native"])):
        return code
    numbers = range(options.first, options.first + options.states)
    preemptions = range(options.first, options.first + options.preemptions)
    claims = range(options.first, options.first + options.claims)
    with tempfile.TemporaryDirectory() as name:
        check = asyncio.run(run(numbers, preemptions, claims, Path(name)))
    print(
        f"{options.states} states, gangs: {check.whole} placed and {check.refused} refused by"
        f" kube-scheduler; {check.ours_alone} placed by ours alone, {check.fewer} with fewer pods"
        f" beyond the minimum"
    )
    print(
        f"{options.preemptions} states with evictions: {check.made_room} gangs got room from"
        f" kube-scheduler and {check.made_none} none; {options.claims} with a shared claim,"
        f" {check.shared} placed; {len(check.differences)} differences in all"
    )
    return 1 if check.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
