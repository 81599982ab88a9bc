"""Decides device claims beside the scheduler of Kubernetes (`make dra-check`; needs Go).

On a real API server it applies drawn states: slices, claims, then pods one after another. For each
pod kube-scheduler and the predicates of ours say whether it can be placed; and where
kube-scheduler placed it, both must have chosen the same devices on that node, and made the same
claim for the pod's extended resources. A state is drawn from its number alone:
`python -m tools.dra_check --first 17 --states 1` repeats the one that is named.

Answers of kube-scheduler are counted apart where ours is another on purpose: it ends the whole
attempt when a constraint keeps one node from giving "all" devices, and never binds a pod with other
claims to a node whose device plugins serve its extended resources. Kubernetes 1.36 also compares
each device of one request with the last alone where a constraint wants all values distinct, and
gives "all" devices without shared ones that have too little capacity left.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import convert, to_builtins

from pumice.local import admin, parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from pumice.local.process import Process, ProcessSpec
from pumice.testing import Cluster, binds_of
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.devices.requests import DeviceRefusal
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.api.resource import AllocationResult, DeviceResult
from shared.model.quantity import milli
from tests.native.native_groups import OF_PLANE
from tests.property.device_states import (
    CLASSES,
    NODES,
    RESOURCES,
    DeviceState,
    draw,
    draw_extended,
    draw_rules,
    draw_shared,
)
from tests.support.api import Api, ApiError, connect
from tests.support.goprograms import kube_scheduler, next_kubernetes

STATES: Final = 300
RELEASES: Final = ("1.36", "1.37")
NAMESPACE: Final = "ns"
GROUP: Final = "/apis/resource.k8s.io/v1"
CONF: Final = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: gang}, {name: predicates}]
"""
_HEARD_S: Final = 0.3
"""After so long kube-scheduler has heard of what was written."""
_DOUBT_S: Final = 3.0
"""A difference counts when it is there after so long."""
_VERDICT_S: Final = 20.0

_GIVES_UP: Final = ("a claim constraint would not be satisfied", "nil or empty request mappings")
_DEVICE: Final = ("driver", "pool", "device", "shareID")

Object = dict[str, Any]
Parts = dict[str, int] | None
Device = tuple[str, str, str, str, Parts, tuple[str, ...]]
Chosen = dict[str, Any]
"""Claim → its devices; of the one for extended resources also its requests and their mappings."""
_MADE: Final = "<extended-resources>"


class Check:
    """A cluster, and both schedulers' words on it."""

    def __init__(self, api: Api, release: str) -> None:
        self._api = api
        self._is_next = release != RELEASES[0]
        self.extended = 0
        """Pods that got a claim for extended resources."""
        self.differences: list[str] = []
        self.placed = self.refused = self.apart = 0

    async def open(self) -> None:
        """Make what all states share."""
        labels = {"resource.kubernetes.io/admin-access": "true"}
        await self._post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        for each in CLASSES:
            await self._post(f"{GROUP}/deviceclasses", each)

    async def state(self, number: int) -> None:
        """Apply one state, ask for its pods, and clear it away."""
        chance = Random(number)  # noqa: S311 - a drawn state is no secret
        drawn = draw_shared(chance) if number % 2 else draw(chance)
        if self._is_next:
            drawn = draw_rules(chance, drawn)
        if number % 3:
            drawn = draw_extended(chance, drawn)
        await self._apply(drawn, number)
        for at, claims in enumerate(drawn.pods):
            main, init = drawn.containers[at] if drawn.containers else ([], [])
            names = [f"s{number}-{claim}" for claim in claims]
            uses = [{"name": name, "resourceClaimName": name} for name in names]
            spec = {
                "containers": main or [{"name": "main", "image": "none"}],
                "resourceClaims": uses,
                **({"initContainers": init} if init else {}),
            }
            await self._pod(f"s{number}-{at}", spec)
        await self._clear()

    async def _apply(self, drawn: DeviceState, number: int) -> None:
        for node, labels in drawn.labels.items():
            await self._merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
            offered = dict.fromkeys(RESOURCES) | drawn.plugins.get(node, {})
            status = {"allocatable": offered, "capacity": offered}
            await self._merge(f"/api/v1/nodes/{node}/status", {"status": status})
        for at, rule in enumerate(drawn.taint_rules):
            selector = rule.get("deviceSelector", {})
            pool = {"pool": f"s{number}-{selector['pool']}"} if "pool" in selector else {}
            spec = {**rule, "deviceSelector": {**selector, **pool}}
            meta = {"name": f"s{number}-{at}"}
            await self._post(f"{GROUP}/devicetaintrules", {"metadata": meta, "spec": spec})
        for each in drawn.slices:
            spec = each["spec"]
            pool = {**spec["pool"], "name": f"s{number}-{spec['pool']['name']}"}
            meta = {"name": f"s{number}-{each['metadata']['name']}"}
            await self._post(
                f"{GROUP}/resourceslices", {"metadata": meta, "spec": {**spec, "pool": pool}}
            )
        for name, spec in drawn.claims.items():
            meta = {"name": f"s{number}-{name}"}
            await self._post(self._claims, {"metadata": meta, "spec": spec})
        await asyncio.sleep(_HEARD_S)

    async def _clear(self) -> None:
        at_once = {"gracePeriodSeconds": 0}
        await self._api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", at_once)
        paths = [f"{GROUP}/resourceslices", self._claims]
        if self._is_next:
            paths.append(f"{GROUP}/devicetaintrules")
        for path in paths:
            await self._api.request("DELETE", path)
        for claim in (await self._api.request("GET", self._claims))["items"]:
            name = claim["metadata"]["name"]
            with suppress(ApiError):  # Kubernetes' controller may have been faster
                await self._merge(f"{self._claims}/{name}", {"metadata": {"finalizers": None}})

    # --- one pod -----------------------------------------------------------------------------

    async def _pod(self, name: str, spec: Object) -> None:
        """Ask both about a pod; it stays where kube-scheduler has put it."""
        before = await self._objects()
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        created = await self._api.request("POST", path, {"metadata": {"name": name}, "spec": spec})
        world = world_of(before).group("g")
        world.pod(name, "g", uid=created["metadata"]["uid"], **spec)
        ours = binds_of(world.decide()).get(name, "")
        pod = await self._judged(f"{path}/{name}", time.monotonic() + _HEARD_S)
        if bool(pod["spec"].get("nodeName")) is not bool(ours):
            pod = await self._judged(f"{path}/{name}", time.monotonic() + _DOUBT_S)
        node = pod["spec"].get("nodeName", "")
        self.placed += bool(node)
        self.refused += not node
        claims = [used["resourceClaimName"] for used in spec["resourceClaims"]]
        if await self._is_apart(before, pod, claims):
            self.apart += 1
        elif bool(node) is not bool(ours):
            self._differ(name, f"kube-scheduler: {node or _why(pod)}; ours: {ours or 'no node'}")
        elif node:
            await self._compare_devices(world, pod)
        if not node:
            await self._api.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})

    async def _is_apart(
        self, before: Mapping[str, list[Object]], pod: Object, claims: list[str]
    ) -> bool:
        """Tell whether kube-scheduler's answer is one that ours need not be."""
        if not pod["spec"].get("nodeName"):
            return any(text in _why(pod) for text in _GIVES_UP)
        slices = before[kinds.RESOURCESLICE.token]
        found = [] if self._is_next else [await self._claim(claim) for claim in claims]
        return any(repeats(claim, slices) or skips(claim, slices) for claim in found)

    async def _judged(self, path: str, settled: float) -> Object:
        """Return a pod with a node, or one without that stays so until it counts as settled."""
        deadline = time.monotonic() + _VERDICT_S
        while True:
            pod: Object = await self._api.request("GET", path)
            if pod["spec"].get("nodeName"):
                return pod
            await self._prepare(pod)
            if _why(pod) and time.monotonic() > settled:
                return pod
            if time.monotonic() > deadline:
                raise TimeoutError(f"kube-scheduler says nothing about {path}")
            await asyncio.sleep(0.02)

    async def _prepare(self, pod: Object) -> None:
        """Play the drivers: meet all conditions of devices that a pod waits for."""
        for claim in (await self._api.request("GET", self._claims))["items"]:
            status = claim.get("status", {})
            if all(user["uid"] != pod["metadata"]["uid"] for user in status.get("reservedFor", [])):
                continue
            results = status.get("allocation", {}).get("devices", {}).get("results", [])
            if "devices" not in status and (said := _prepared(results)):
                path = f"{self._claims}/{claim['metadata']['name']}/status"
                await self._merge(path, {"status": {"devices": said}})

    async def _compare_devices(self, world: Cluster, pod: Object) -> None:
        """Compare the devices of a pod's claims, and the claim for its extended resources."""
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        theirs: Chosen = {}
        for claim in (each["resourceClaimName"] for each in pod["spec"].get("resourceClaims", [])):
            theirs[claim] = _chosen((await self._claim(claim))["status"]["allocation"])
        made = pod["status"].get("extendedResourceClaimStatus")
        if made is not None:
            self.extended += 1
            claim = await self._claim(made["resourceClaimName"])
            theirs[_MADE] = (
                _chosen(claim["status"]["allocation"]),
                [_request(each) for each in claim["spec"]["devices"]["requests"]],
                [(m["containerName"], m["resourceName"], m["requestName"])
                 for m in made["requestMappings"]],
            )  # fmt: skip
        ours = devices_on(world, f"{NAMESPACE}/{name}", node)
        is_made = made is not None
        differs = isinstance(ours, str) or any(theirs.get(claim) != ours[claim] for claim in ours)
        if differs or (_MADE in ours) is not is_made:
            self._differ(name, f"on {node} kube-scheduler chose {theirs}, ours {ours}")

    def _differ(self, name: str, text: str) -> None:
        self.differences.append(f"{name}: {text}")
        print(f"{name}: {text}", flush=True)

    # --- requests ----------------------------------------------------------------------------

    async def _objects(self) -> dict[str, list[Object]]:
        """Return all that decides, by token of the kind."""
        paths = {
            kinds.NODE.token: "/api/v1/nodes",
            kinds.DEVICECLASS.token: f"{GROUP}/deviceclasses",
            kinds.RESOURCESLICE.token: f"{GROUP}/resourceslices",
            kinds.RESOURCECLAIM.token: self._claims,
            kinds.POD.token: f"/api/v1/namespaces/{NAMESPACE}/pods",
        }
        if self._is_next:
            paths[kinds.DEVICETAINTRULE.token] = f"{GROUP}/devicetaintrules"
        return {token: (await self._api.request("GET", p))["items"] for token, p in paths.items()}

    async def _claim(self, name: str) -> Object:
        found: Object = await self._api.request("GET", f"{self._claims}/{name}")
        return found

    @property
    def _claims(self) -> str:
        return f"{GROUP}/namespaces/{NAMESPACE}/resourceclaims"

    async def _post(self, path: str, body: Object) -> None:
        await self._api.request("POST", path, body)

    async def _merge(self, path: str, body: Object) -> None:
        await self._api.request("PATCH", path, body, content_type="application/merge-patch+json")


def world_of(objects: Mapping[str, Iterable[Object]]) -> Cluster:
    """Return a cluster state with these objects."""
    world = Cluster(CONF)
    for kind in (
        kinds.NODE,
        kinds.DEVICECLASS,
        kinds.RESOURCESLICE,
        kinds.DEVICETAINTRULE,
        kinds.RESOURCECLAIM,
        kinds.POD,
    ):
        for each in objects.get(kind.token, ()):
            world.put(kind, each)
    return world


def devices_on(world: Cluster, pod: str, node: str) -> Chosen | str:
    """Return what we would choose on a node for claims of a pod without devices; or why none."""
    state = world.cluster_state
    devices, attributes, task = state.store(Devices), state.store(NodeAttributes), state.pod(pod)
    assert task is not None
    keys, asks = devices.lacks_on(task, node)
    if isinstance(asks, DeviceRefusal):
        return asks.text
    column = devices.fits.column(node, attributes)
    found = devices.fits.allocate(asks, attributes, column, devices.taken())
    if isinstance(found, DeviceRefusal):
        return found.text
    chosen: Chosen = {}
    for key, allocation in zip(keys, found, strict=True):
        results = _chosen(to_builtins(allocation))
        made = devices.made_on(task, node) if devices.extended.is_made(key) else None
        if made is None:
            chosen[key.partition("/")[2]] = results
        else:
            requests = [_request(to_builtins(each)) for each in made.made.claim.requests]
            chosen[_MADE] = (results, requests, [tuple(each) for each in made.made.mappings])
    return chosen


def _request(request: Object) -> tuple[str, str, int]:
    exactly = request["exactly"]
    return request["name"], exactly["deviceClassName"], exactly["count"]


def repeats(claim: Object, slices: Iterable[Object]) -> bool:
    """Tell whether devices of a claim share a value of which a constraint wants each but once."""
    values = {}
    for spec in sorted((s["spec"] for s in slices), key=lambda s: int(s["pool"]["generation"])):
        for device in spec.get("devices", ()):
            place = (spec["driver"], spec["pool"]["name"], device["name"])
            for name, value in device.get("attributes", {}).items():
                values[*place, f"{spec['driver']}/{name}"] = value
    results = claim["status"]["allocation"]["devices"]["results"]
    for constraint in claim["spec"]["devices"].get("constraints", ()):
        attribute, named = constraint.get("distinctAttribute"), constraint.get("requests")
        concerned = [
            (each["driver"], each["pool"], each["device"], attribute)
            for each in results
            if not named or {each["request"], each["request"].partition("/")[0]} & set(named)
        ]
        found = [values[place] for place in concerned if place in values]
        if any(value in found[:at] for at, value in enumerate(found)):
            return True
    return False


def skips(claim: Object, slices: Iterable[Object]) -> bool:
    """Tell whether a claim asks for "all" devices where some are shared."""
    asks = (
        each
        for request in claim["spec"]["devices"]["requests"]
        for each in request.get("firstAvailable") or [request["exactly"]]
    )
    devices = (device for each in slices for device in each["spec"].get("devices", ()))
    return any(each.get("allocationMode") == "All" for each in asks) and any(
        device.get("allowMultipleAllocations") for device in devices
    )


def _chosen(allocation: Object) -> list[Device]:
    results = convert(allocation, AllocationResult).devices.results
    return [
        (r.request, r.driver, r.pool, r.device, _part(r), r.binding_conditions) for r in results
    ]


def _part(result: DeviceResult) -> Parts:
    """Return what a result has of a device that is shared, None of one that is whole."""
    if result.share_id is None:
        return None
    return {name: milli(amount) for name, amount in result.consumed_capacity.items()}


def _prepared(results: Iterable[Object]) -> list[Object]:
    """Return what drivers say of devices once they are prepared."""
    moment = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Drawn", "message": ""}
    return [
        {
            **{name: each[name] for name in _DEVICE if name in each},
            "conditions": [
                {"type": name, "status": "True", **moment} for name in each["bindingConditions"]
            ],
        }
        for each in results
        if each.get("bindingConditions")
    ]


def _why(pod: Object) -> str:
    """Return why a pod is not scheduled; empty: that is not said."""
    conditions = pod["status"].get("conditions", [])
    said = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
    return said[0].get("message") or said[0].get("reason", "no") if said else ""


async def run(numbers: Iterable[int], directory: Path, release: str) -> Check:
    """Check states on a cluster of its own, of a release of Kubernetes."""
    programs, program = {}, kube_scheduler()
    if release != RELEASES[0]:
        programs = {name: next_kubernetes(name) for name in OF_PLANE}
        program = next_kubernetes("kube-scheduler")
    options = ControlPlaneOptions(directory=directory)
    async with ControlPlane(options, {**parts.require(), **programs}) as plane:
        await plane.add_nodes(NodeShape(count=len(NODES)))
        kubeconfig = plane.directory / "pki" / "parts.kubeconfig"
        scheduler = Process(
            ProcessSpec(
                name="kube-scheduler",
                argv=(
                    str(program),
                    f"--kubeconfig={kubeconfig}",
                    f"--authentication-kubeconfig={kubeconfig}",
                    f"--authorization-kubeconfig={kubeconfig}",
                    "--leader-elect=false",
                    "--secure-port=0",
                ),
                log=plane.logs / "kube-scheduler.log",
            )
        )
        scheduler.start()
        try:
            async with connect(plane.kubeconfig) as api:
                check = Check(api, release)
                await check.open()
                async with admin.connect(plane.url, plane.pki) as client:
                    process = plane.processes[plane.api_program]
                    await process.ready(lambda: client.accounts_ready(NAMESPACE), deadline_s=30)
                for number in numbers:
                    await check.state(number)
                return check
        finally:
            await scheduler.stop(grace_s=2.0)


def main(words: list[str]) -> int:
    """Check states and print each difference; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=STATES, help="how many states are checked")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--kubernetes", choices=RELEASES, default=RELEASES[1], help="its release")
    options = parser.parse_args(words)
    numbers = itertools.islice(itertools.count(options.first), options.states)
    with tempfile.TemporaryDirectory() as name:
        check = asyncio.run(run(numbers, Path(name), options.kubernetes))
    asked = check.placed + check.refused
    print(
        f"{options.states} states, {asked} pods: {check.placed} placed and {check.refused} refused"
        f" by kube-scheduler {options.kubernetes}, {check.extended} with a claim for extended"
        f" resources; {check.apart} answers apart, {len(check.differences)} differences"
    )
    return 1 if check.differences or not (check.placed and check.refused) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
