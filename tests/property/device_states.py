"""Drawn states of devices: what drivers offer, classes, claims and the pods that name them.

One source of chance draws everything, so that laws shrink it and a run beside kube-scheduler can
repeat it by its seed.
"""

from random import Random
from typing import Any, Final

import msgspec

from tests.unit.scheduler.devices import (
    Document,
    card,
    device,
    device_class,
    first_of,
    nodes_in,
    part_of_card,
    request,
    slice_of,
    spec_of,
)

GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
RESOURCES: Final = ("example.com/gpu", "deviceclass.resource.kubernetes.io/big", "example.com/no")
"""Extended resources; no class has the last one."""
NODES: Final = ("node-0", "node-1", "node-2")
CLASSES: Final = (
    device_class("gpu", f'device.driver == "{GPU}"', extendedResourceName=RESOURCES[0]),
    device_class("nic", f'device.driver == "{NIC}"'),
    device_class("any"),
    device_class(
        "big", f'device.driver == "{GPU}" && device.attributes["{GPU}"].?size.orValue(0) > 1'
    ),
)
_CONDITIONS: Final = (
    f'device.attributes["{GPU}"].?numa.orValue(-1) == 0',
    f'device.attributes["{GPU}"].?model.orValue("") in ["a", "b"]',
    f'device.capacity["{GPU}"].?memory.orValue(quantity("0")).compareTo(quantity("20Gi")) >= 0',
    f'has(device.attributes["{GPU}"].size) && device.attributes["{GPU}"].size % 2 == 1',
    f'device.attributes["{NIC}"].?speed.orValue(100) >= 100',
)


class DeviceState(msgspec.Struct, frozen=True):
    """Objects as documents; claims without status unless they were allocated before."""

    labels: dict[str, dict[str, str]]
    """Of nodes."""
    slices: list[Document]
    claims: dict[str, Document]
    """Name → spec."""
    pods: list[list[str]]
    """Names of the claims of each pod, in the order in which they come."""
    taint_rules: list[Document] = []
    """Specs of DeviceTaintRules."""
    plugins: dict[str, dict[str, str]] = {}
    """Node → extended resources that its device plugins offer."""
    containers: list[tuple[list[Document], list[Document]]] = []
    """Containers and init containers of each pod, for those that ask for extended resources."""


_POLICIES: Final[tuple[Document, ...]] = (
    {"default": "4Gi", "validValues": ["4Gi", "8Gi", "10Gi"]},
    {"default": "2Gi", "validRange": {"min": "2Gi", "max": "10Gi", "step": "4Gi"}},
    {"default": "2Gi", "validRange": {"min": "2Gi", "max": "10Gi", "step": "2Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
)
_PARTS: Final = ("500Mi", "1Gi", "1Gi", "2Gi", "3Gi", "4Gi", "10Gi", "15Gi")


def draw_rules(rng: Random, drawn: DeviceState) -> DeviceState:
    """Return a state with some DeviceTaintRules."""
    rules = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        selector = {
            name: rng.choice(values)
            for name, values in (("driver", (GPU, NIC)), ("pool", NODES), ("device", _NAMES))
            if rng.random() < 0.4
        }
        effect = rng.choice(("NoSchedule", "NoExecute", "None"))
        taint = {"key": rng.choice(("worn", "hot")), "value": "yes", "effect": effect}
        rules.append({"taint": taint, "deviceSelector": selector})
    return msgspec.structs.replace(drawn, taint_rules=rules)


_NAMES: Final = ("d0", "d1", "p0", "nic0")


def draw_extended(rng: Random, drawn: DeviceState) -> DeviceState:
    """Return a state whose pods ask for extended resources beside some of their claims."""
    plugins = {
        node: {rng.choice(RESOURCES): rng.choice(("1", "2"))}
        for node in NODES
        if rng.random() < 0.25
    }
    pods, containers = [], []
    for claims in drawn.pods:
        asking = rng.random() < 0.6
        pods.append(claims if not asking or rng.random() < 0.3 else [])
        init = [_container(rng, f"i{n}", init=True) for n in range(rng.choice((0, 0, 0, 1, 2)))]
        main = [_container(rng, f"m{n}") for n in range(rng.choice((1, 1, 2)))]
        containers.append((main, init) if asking else ([], []))
    return msgspec.structs.replace(drawn, pods=pods, plugins=plugins, containers=containers)


def _container(rng: Random, name: str, *, init: bool = False) -> Document:
    amounts = {
        resource: rng.choice("1112")
        for resource in rng.sample(RESOURCES[:2], rng.choice((0, 1, 1, 1, 2)))
    }
    if rng.random() < 0.03:
        amounts[RESOURCES[2]] = "1"
    sidecar = {"restartPolicy": "Always"} if init and rng.random() < 0.3 else {}
    asked = {"requests": amounts, "limits": amounts}
    return {"name": name, "image": "none", "resources": asked, **sidecar}


def draw_shared(rng: Random) -> DeviceState:
    """Draw a state in which some devices are shared, and claims ask for parts of them."""
    drawn = draw(rng)
    for each in drawn.slices:
        for one in each["spec"].get("devices", ()):
            _share(rng, one)
    for spec in drawn.claims.values():
        for asked in spec["devices"]["requests"]:
            for exactly in asked.get("firstAvailable") or [asked["exactly"]]:
                if rng.choice((False, True)):
                    name = rng.choice(("memory",) * 14 + (f"{GPU}/memory", "threads", "cores"))
                    exactly["capacity"] = {"requests": {name: rng.choice(_PARTS)}}
                    if name in {"threads", "cores"}:
                        exactly["capacity"]["requests"][name] = rng.choice(("1", "2"))
    return drawn


def _share(rng: Random, device: Document) -> None:
    if not rng.choice((True, True, False)):
        return
    device["allowMultipleAllocations"] = True
    memory = device.get("capacity", {}).get("memory")
    if memory is not None and rng.random() < 0.7:
        memory["requestPolicy"] = rng.choice(_POLICIES)
    if rng.random() < 0.3:
        cores: Document = {"value": "8"}
        if rng.random() < 0.6:
            cores["requestPolicy"] = {"default": "1", "validRange": {"min": "1"}}
        device.setdefault("capacity", {})["cores"] = cores


def draw(rng: Random) -> DeviceState:
    """Draw a state of three nodes."""
    labels = {node: {"rack": rng.choice("ab")} for node in NODES}
    slices = [found for node in NODES for found in _local(rng, node)]
    slices += _network(rng)
    claims = {f"c{number}": _claim(rng) for number in range(rng.randint(1, 5))}
    pods = [
        rng.sample(sorted(claims), min(len(claims), rng.choice((1, 1, 2))))
        for _ in range(rng.randint(1, 5))
    ]
    return DeviceState(labels, slices, claims, pods)


def _local(rng: Random, node: str) -> list[Document]:
    """Draw the pool of GPUs of a node: none, one slice, two, half of it, or two generations."""
    shape = rng.choice(("none", "one", "one", "two", "half", "newer", "parts"))
    names = [f"d{number}" for number in range(rng.randint(1, 4))]
    devices = [_gpu(rng, name) for name in names]
    if shape == "none":
        return []
    if shape == "parts":
        return _partitioned(rng, node)
    if shape == "newer":
        return [
            slice_of(f"{node}-old", [_gpu(rng, "old")], node=node, driver=GPU),
            slice_of(f"{node}-new", devices, node=node, driver=GPU, generation=2),
        ]
    count = 1 if shape == "one" else 2
    found = [slice_of(f"{node}-a", devices, node=node, driver=GPU, count=count)]
    if shape == "two":
        found.append(slice_of(f"{node}-b", [_gpu(rng, "e0")], node=node, driver=GPU, count=2))
    return found


def _gpu(rng: Random, name: str) -> Document:
    said: dict[str, Any] = {}
    if rng.random() < 0.8:
        said["numa"] = rng.randint(0, 1)
    if rng.random() < 0.8:
        said["model"] = rng.choice("abc")
    if rng.random() < 0.8:
        said["size"] = rng.randint(1, 3)
    found = device(name, **said)
    if rng.random() < 0.7:
        found["capacity"] = {"memory": {"value": rng.choice(("10Gi", "20Gi", "40Gi"))}}
    if rng.random() < 0.06:
        found |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    if rng.random() < 0.15:
        effect = rng.choice(("NoSchedule", "NoExecute", "None"))
        found["taints"] = [{"key": "worn", "value": "yes", "effect": effect}]
    return found


def _partitioned(rng: Random, node: str) -> list[Document]:
    """Draw a card that is given whole or in parts."""
    parts = []
    for number in range(rng.randint(2, 5)):
        amount = rng.choice(("10Gi", "20Gi", "40Gi"))
        parts.append(part_of_card(f"p{number}", amount, numa=0))
    return [
        card(f"{node}-c", node=node, driver=GPU),
        slice_of(f"{node}-p", parts, node=node, driver=GPU, count=2),
    ]


def _network(rng: Random) -> list[Document]:
    """Draw devices that several nodes reach."""
    nics = [device(f"nic{number}", speed=rng.choice((10, 100))) for number in range(2)]
    if rng.random() < 0.1:
        conditions = {"bindingConditions": ["linked"], "bindingFailureConditions": ["failed"]}
        nics[0] |= {"bindsToNode": rng.choice((True, False)), **conditions}
    shape = rng.choice(("none", "all", "rack", "each"))
    if shape == "none":
        return []
    if shape == "all":
        return [slice_of("net", nics, driver=NIC, allNodes=True)]
    if shape == "rack":
        return [slice_of("net", nics, driver=NIC, nodeSelector=nodes_in(rng.choice("ab")))]
    placed = [{**nic, "nodeName": rng.choice(NODES)} for nic in nics]
    return [slice_of("net", placed, driver=NIC, perDeviceNodeSelection=True)]


def _claim(rng: Random) -> Document:
    requests = [_request(rng, f"r{number}") for number in range(rng.choice((1, 1, 1, 2)))]
    names = [each["name"] for each in requests]
    constraints = []
    if rng.random() < 0.3:
        kind = rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        constraint: Document = {kind: f"{GPU}/{rng.choice(('numa', 'model'))}"}
        if rng.random() < 0.4:
            constraint["requests"] = [rng.choice(names)]
        constraints.append(constraint)
    return spec_of(*requests, **({"constraints": constraints} if constraints else {}))


def _request(rng: Random, name: str) -> Document:
    if rng.random() < 0.2:
        return first_of(name, *(_exactly(rng, f"a{n}") for n in range(rng.randint(1, 3))))
    found = _exactly(rng, name)
    if rng.random() < 0.1:
        found["exactly"]["adminAccess"] = True
    return found


def _exactly(rng: Random, name: str) -> Document:
    conditions = rng.sample(_CONDITIONS, rng.choice((0, 0, 1, 2)))
    said: dict[str, Any] = {}
    if rng.random() < 0.15:
        said["allocationMode"] = "All"
    else:
        said["count"] = rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.3:
        said["tolerations"] = [
            rng.choice(({"operator": "Exists"}, {"key": "worn", "value": "yes"}))
        ]
    chosen = rng.choice(("gpu", "gpu", "gpu", "nic", "any", "big", "none"))
    return request(name, *conditions, device_class=chosen, **said)
