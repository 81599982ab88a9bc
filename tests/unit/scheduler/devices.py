"""Short forms of ResourceSlices, DeviceClasses and claims, as documents and as views."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import convert

from pumice.testing import Cluster
from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.policy.devices.allocation import allocate
from services.scheduler.policy.devices.pools import DeviceId, Inventory, OfferedPool
from services.scheduler.policy.devices.requests import (
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
    read,
)
from services.scheduler.policy.devices.shares import AllocatedDevices, Parts
from shared.api import kinds
from shared.api.resource import AllocationResult, DeviceClaim, DeviceClass, ResourceSlice

Document = dict[str, Any]
DRIVER = "gpu.example.com"


def device(name: str, **attributes: Any) -> Document:
    """Return a device; an attribute's type is that of its value."""
    kinds = {bool: "bool", int: "int", str: "string"}
    said = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    return {"name": name, "attributes": said} if said else {"name": name}


def slice_of(
    name: str,
    devices: Sequence[Document | str] = (),
    *,
    node: str = "",
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    driver: str = DRIVER,
    **spec: Any,
) -> Document:
    """Return a slice: of one node, or of whatever `spec` says."""
    place = {"nodeName": node} if node else {}
    listed = [{"name": each} if isinstance(each, str) else each for each in devices]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {
                "name": pool or node or name,
                "generation": generation,
                "resourceSliceCount": count,
            },
            **({"devices": listed} if listed else {}),
            **place,
            **spec,
        },
    }


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Document:
    """Return a class whose devices meet all expressions."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def request(
    name: str = "r", *expressions: str, device_class: str = "gpu", **exactly: Any
) -> Document:
    """Return a request for devices of a class."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    said = {"deviceClassName": device_class, **exactly}
    return {"name": name, "exactly": {**said, "selectors": selectors} if selectors else said}


def first_of(name: str, *alternatives: Document) -> Document:
    """Return a request that any of some requests meets, the first one best."""
    listed = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": listed}


def spec_of(*requests: Document, **devices: Any) -> Document:
    """Return the spec of a claim."""
    return {"devices": {"requests": list(requests), **devices}}


def part_of_card(name: str, memory: str, **attributes: Any) -> Document:
    """Return a device that takes of the memory of a card."""
    uses = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return {**device(name, **attributes), "consumesCounters": uses}


def card(name: str, memory: str = "40Gi", **place: Any) -> Document:
    """Return the slice that states the memory of a card; the parts are in another."""
    counters = [{"name": "card", "counters": {"memory": {"value": memory}}}]
    return slice_of(name, count=2, sharedCounters=counters, **place)


def nodes_in(rack: str) -> Document:
    """Return a selector of the nodes of a rack."""
    need = {"key": "rack", "operator": "In", "values": [rack]}
    return {"nodeSelectorTerms": [{"matchExpressions": [need]}]}


class Offer:
    """The offers of drivers, to be asked directly."""

    def __init__(
        self,
        *slices: Document,
        classes: Sequence[Document] = (),
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.inventory = Inventory()
        for each in slices:
            self.inventory.put(each["metadata"]["name"], convert(each, ResourceSlice))
        named = classes or [device_class()]
        self.classes = {each["metadata"]["name"]: convert(each, DeviceClass) for each in named}
        self.labels = labels or {}
        self.judge = DeviceMatcher(waiting_evaluator())

    def ask(
        self,
        *specs: Document,
        node: str = "n1",
        taken: Sequence[str] = (),
        parts: Mapping[DeviceId, Parts] | None = None,
    ) -> tuple[AllocationResult, ...] | DeviceRefusal:
        """Return what claims get on a node; `taken` are devices as `driver/pool/device`."""
        asks: list[ClaimRequest] = []
        for spec in specs:
            found = read(convert(spec["devices"], DeviceClaim), self.classes)
            if isinstance(found, DeviceRefusal):
                return found
            asks.append(found)
        return allocate(
            asks,
            self.pools(node),
            node=node,
            taken=AllocatedDevices({DeviceId(*each.split("/")) for each in taken}, parts or {}),
            matcher=self.judge,
        )

    def pools(self, node: str) -> tuple[OfferedPool, ...]:
        """Return the pools of which a node reaches something."""
        labels = self.labels.get(node, {})

        def selects(selector: Any) -> bool:
            return any(
                all(labels.get(need.key) in need.values for need in term.match_expressions)
                for term in selector.node_selector_terms
            )

        return self.inventory.offer(node, selects)

    def names(self, *specs: Document, **where: Any) -> list[list[str]] | str:
        """Return the devices of each claim, or why there are none."""
        found = self.ask(*specs, **where)
        if isinstance(found, DeviceRefusal):
            return found.text
        return [[result.device for result in one.devices.results] for one in found]


def claim(
    world: Cluster, name: str, *requests: dict[str, Any], status: Any = None, **meta: Any
) -> None:
    """Put a claim with these requests, one for a device of the class where none are given."""
    world.put(
        kinds.RESOURCECLAIM,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **meta},
            "spec": spec_of(*(requests or (request(),))),
            "status": status or {},
        },
    )


def using(*names: str) -> dict[str, Any]:
    """Return what the spec of a pod says that uses these claims."""
    return {"resourceClaims": [{"name": n, "resourceClaimName": n} for n in names]}
