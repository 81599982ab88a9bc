"""The fake machines of a local cluster: their resources, and the network between them.

They come from flags of `pumice up`, or from a file (`--nodes-file`) for machines of several kinds:

    nodes:
      - {prefix: cpu, count: 10, cpu: "64", memory: 256Gi}
      - {prefix: gpu, count: 4, cpu: "96", memory: 1Ti, gpus: 8, labels: {pool: gpu}}
    hyperNodes:
      - {name: rack-0, nodes: [gpu-0, gpu-1]}
      - {name: rack-1, nodes: [gpu-2, gpu-3]}
      - {name: spine, tier: 2, hyperNodes: [rack-0, rack-1]}

Everything is checked here, before a program is started.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from pumice.local.errors import WrongSettingError
from shared.model import quantity

GPU: Final = "nvidia.com/gpu"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class FleetTaint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint as Kubernetes has it."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fake nodes of one kind: their number and the resources of each, as Kubernetes quantities."""

    count: int = 3
    cpu: str = "8"
    memory: str = "32Gi"
    pods: str = "110"
    gpus: int = 0
    resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further resources of each node, by name."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[FleetTaint, ...] = ()
    prefix: str = "node"

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [f"{self.prefix}-{number}" for number in range(self.count)]

    def offers(self) -> dict[str, str]:
        """Return the resources of each node."""
        offers = {"cpu": self.cpu, "memory": self.memory, "pods": self.pods}
        return {**offers, **({GPU: str(self.gpus)} if self.gpus else {}), **self.resources}


class FleetHyperNode(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """A part of the network: nodes, or parts of a lower tier."""

    name: str
    tier: int = 1
    nodes: tuple[str, ...] = ()
    hyper_nodes: tuple[str, ...] = ()


class Fleet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """All fake machines of a cluster."""

    nodes: tuple[NodeShape, ...] = ()
    hyper_nodes: tuple[FleetHyperNode, ...] = ()

    @property
    def count(self) -> int:
        """The number of nodes."""
        return sum(shape.count for shape in self.nodes)


def read(path: Path) -> Fleet:
    """Return the fleet of a file. Raises WrongSettingError that names the place in it."""
    try:
        fleet = msgspec.yaml.decode(path.read_bytes(), type=Fleet)
        check(fleet)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WrongSettingError(f"--nodes-file {path}: {reason}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise WrongSettingError(f"--nodes-file {path}: {' '.join(str(error).split())}") from error
    return fleet


def check(fleet: Fleet) -> None:
    """Raise ValueError for values that the API server or the scheduler would refuse."""
    for shape in fleet.nodes:
        _check_shape(shape)
    prefixes = Counter(shape.prefix for shape in fleet.nodes)
    if double := [prefix for prefix, count in prefixes.items() if count > 1]:
        raise ValueError(f"two kinds of nodes have the prefix {double[0]!r}")
    tiers = {hyper.name: hyper.tier for hyper in fleet.hyper_nodes}
    names = {name for shape in fleet.nodes for name in shape.names()}
    for hyper in fleet.hyper_nodes:
        _check_hyper_node(hyper, names, tiers)


def _check_shape(shape: NodeShape) -> None:
    if not _NAME.fullmatch(shape.prefix):
        raise ValueError(f"{shape.prefix!r} cannot begin the name of a node")
    if shape.count < 0 or shape.gpus < 0:
        raise ValueError(f"nodes {shape.prefix!r}: count and gpus must not be negative")
    for name, amount in shape.offers().items():
        if quantity.milli(amount) <= 0:
            raise ValueError(f"nodes {shape.prefix!r}: {name} {amount} is not more than 0")


def _check_hyper_node(hyper: FleetHyperNode, nodes: set[str], tiers: Mapping[str, int]) -> None:
    if not _NAME.fullmatch(hyper.name):
        raise ValueError(f"{hyper.name!r} is no name of a HyperNode")
    if bool(hyper.nodes) == bool(hyper.hyper_nodes):
        raise ValueError(f"HyperNode {hyper.name!r} needs either nodes or hyperNodes")
    if unknown := [name for name in hyper.nodes if name not in nodes]:
        raise ValueError(f"HyperNode {hyper.name!r}: there is no node {unknown[0]!r}")
    for name in hyper.hyper_nodes:
        if name not in tiers:
            raise ValueError(f"HyperNode {hyper.name!r}: there is no HyperNode {name!r}")
        if tiers[name] >= hyper.tier:
            raise ValueError(
                f"HyperNode {hyper.name!r} of tier {hyper.tier} cannot hold {name!r}"
                f" of tier {tiers[name]}"
            )


def racks(shapes: Iterable[NodeShape], size: int) -> tuple[FleetHyperNode, ...]:
    """Return a HyperNode of tier 1 for each `size` nodes, and one of tier 2 around them."""
    names = [name for shape in shapes for name in shape.names()]
    low = [
        FleetHyperNode(name=f"rack-{start // size}", nodes=tuple(names[start : start + size]))
        for start in range(0, len(names), size)
    ]
    top = FleetHyperNode(name="spine", tier=2, hyper_nodes=tuple(rack.name for rack in low))
    return (*low, top) if low else ()


def node_manifests(shape: NodeShape) -> Iterator[dict[str, Any]]:
    """Yield the nodes of one kind as Kubernetes objects, for KWOK to make them ready."""
    for name in shape.names():
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "type": "kwok",
                    **shape.labels,
                },
            },
            "spec": {"taints": msgspec.to_builtins(shape.taints)} if shape.taints else {},
            "status": {"allocatable": shape.offers(), "capacity": shape.offers()},
        }


def hyper_node_manifest(hyper: FleetHyperNode) -> dict[str, Any]:
    """Return a HyperNode as an object of Volcano's kind."""
    members = [("Node", name) for name in hyper.nodes]
    members += [("HyperNode", name) for name in hyper.hyper_nodes]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": hyper.name},
        "spec": {
            "tier": hyper.tier,
            "members": [
                {"type": kind, "selector": {"exactMatch": {"name": name}}} for kind, name in members
            ],
        },
    }
