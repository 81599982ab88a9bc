"""Numatopology (nodeinfo.volcano.sh): the NUMA nodes of a node, as its agent reports them (C08).

Full API type, from which `make crds` makes the CRD. Objects have the name of their node.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from shared.api.base import View, doc
from shared.api.meta import ObjectMeta

Number = Annotated[int, Meta(ge=0)]


class ResourceInfo(View, frozen=True, kw_only=True):
    """One resource of a node."""

    allocatable: Annotated[str, doc("Units that pods may have, such as 0-3,8.")] = ""
    capacity: Annotated[int, doc("How many units there are.")] = 0


class CpuInfo(View, frozen=True, kw_only=True):
    """Where a CPU is."""

    numa: Annotated[Number, doc("NUMA node of the CPU.")] = 0
    socket: Annotated[Number, doc("Socket of the CPU.")] = 0
    core: Annotated[Number, doc("Core of the CPU.")] = 0


class ContainerAllocation(View, frozen=True, kw_only=True):
    """Resources of one container."""

    name: Annotated[str, doc("Name of the container.")] = ""
    allocations: Annotated[Mapping[str, str], doc("Units of each resource.")] = field(
        default_factory=dict
    )


class PodAllocation(View, frozen=True, kw_only=True):
    """Resources of one pod."""

    name: Annotated[str, doc("Name of the pod.")] = ""
    namespace: Annotated[str, doc("Namespace of the pod.")] = ""
    uid: Annotated[str, doc("UID of the pod.")] = ""
    container_allocations: Annotated[
        tuple[ContainerAllocation, ...], doc("What its containers have.")
    ] = ()


class NumatopologySpec(View, frozen=True, kw_only=True):
    """NUMA topology of a node and its use (C08a)."""

    policies: Annotated[
        Mapping[str, str], doc("Policies by manager: CPUManagerPolicy, TopologyManagerPolicy.")
    ] = field(default_factory=dict)
    res_reserved: Annotated[Mapping[str, str], doc("What is kept for the system.")] = field(
        default_factory=dict
    )
    numares: Annotated[Mapping[str, ResourceInfo], doc("Resources by name.")] = field(
        default_factory=dict
    )
    cpu_detail: Annotated[Mapping[str, CpuInfo], doc("CPUs by number.")] = field(
        default_factory=dict
    )
    pod_allocations: Annotated[tuple[PodAllocation, ...], doc("What pods have.")] = ()


class Numatopology(View, frozen=True, kw_only=True):
    """The NUMA nodes of a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NumatopologySpec, doc("What the node consists of.")] = NumatopologySpec()
