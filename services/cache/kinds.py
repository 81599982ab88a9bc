"""The table of what the cache watches: to add a kind, add a row (CA01).

A row's view is its projection: msgspec drops the fields that no service reads while it decodes.

Pods are one watch whose filter is applied here. The API server cannot say "our scheduler's, or any
with a node" in one field selector, and two watches would deliver a pod and its namesake in
two orders; what one watch brings too much, other schedulers' pods before they have a node, is a few
events per pod at 10 µs each. Secrets are in no row, and never will be.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from shared.api import kinds
from shared.api.core import Pod
from shared.api.kinds import Kind
from shared.api.workloads import Workload


def everything(_: Any) -> bool:  # noqa: ANN401 - the view of any kind
    """Keep each object."""
    return True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind to watch, and which of its objects are published."""

    kind: Kind
    namespace: str = ""
    """The only one that is watched; empty: all."""
    field_selector: str = ""
    label_selector: str = ""
    keep: Callable[[Any], bool] = everything
    """Returns whether a view is published; an object that no longer is becomes a tombstone."""


_MINDCLUSTER: Final = Row(
    kind=kinds.NPUINFO, namespace="mindx-dl", label_selector="mx-consumer-volcano=true"
)
"""ConfigMaps of MindCluster that are meant for schedulers (DV3)."""


def rows(scheduler_names: Collection[str], *, mindcluster: bool = False) -> tuple[Row, ...]:
    """Return the table; pods of `scheduler_names` are ours from their creation on."""
    ours = frozenset(scheduler_names)

    def ours_or_placed(pod: Pod) -> bool:
        return pod.spec.scheduler_name in ours or bool(pod.spec.node_name)

    def makes_ours(workload: Workload) -> bool:
        return workload.spec.template.spec.scheduler_name in ours

    return (
        Row(kind=kinds.POD, keep=ours_or_placed),
        Row(kind=kinds.NODE),
        Row(kind=kinds.JOB),
        Row(kind=kinds.PODGROUP),
        Row(kind=kinds.NATIVEPODGROUP),
        Row(kind=kinds.QUEUE),
        Row(kind=kinds.COMMAND),
        Row(kind=kinds.PRIORITYCLASS),
        Row(kind=kinds.NAMESPACE),
        Row(kind=kinds.RESOURCEQUOTA),
        Row(kind=kinds.PDB),
        Row(kind=kinds.PVC),
        Row(kind=kinds.PV),
        Row(kind=kinds.STORAGECLASS),
        Row(kind=kinds.CSINODE),
        Row(kind=kinds.VOLUMEATTACHMENT),
        Row(kind=kinds.CSIDRIVER),
        Row(kind=kinds.CSISTORAGECAPACITY),
        Row(kind=kinds.RESOURCECLAIM),
        Row(kind=kinds.DEVICECLASS),
        Row(kind=kinds.RESOURCESLICE),
        Row(kind=kinds.DEVICETAINTRULE),
        Row(kind=kinds.HYPERNODE),
        Row(kind=kinds.NUMATOPOLOGY),
        Row(kind=kinds.NODESHARD),
        Row(kind=kinds.CRONJOB),
        Row(kind=kinds.JOBFLOW),
        Row(kind=kinds.JOBTEMPLATE),
        Row(kind=kinds.PROVISIONINGREQUEST),
        *(Row(kind=kind, keep=makes_ours) for kind in kinds.WORKLOADS),
        *((_MINDCLUSTER,) if mindcluster else ()),
    )
