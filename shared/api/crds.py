"""The table of CRDs: names, short names, columns and subresources of the installed kinds.

`crdgen` adds the schema from the kind's type. A new kind is a `Kind` with a type in `kinds.py` and
one row here. Printer columns are what `kubectl get` shows: Volcano's (C01 to C09), then ours.
"""

from typing import Final

import msgspec

from shared.api import kinds
from shared.api.cron import CRON_NAME_MAX, CRON_NAME_TOO_LONG
from shared.api.kinds import Kind


class PrinterColumn(msgspec.Struct, frozen=True):
    """One column of `kubectl get`."""

    name: str
    type: str
    path: str
    priority: int = 0
    """0 is always shown, 1 with `-o wide`."""


class Crd(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a CRD beside its schema."""

    kind: Kind
    description: str
    short_names: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    """Volcano's."""
    more_columns: tuple[PrinterColumn, ...] = ()
    """Ours, which come behind them."""
    subresources: tuple[str, ...] | None = ("status",)
    """None leaves the member out, `()` writes it empty; both mean that there are none."""
    rules: tuple[tuple[str, str], ...] = ()
    """Message and CEL expression of what must hold of a whole object, its name included."""


_AGE: Final = PrinterColumn("AGE", "date", ".metadata.creationTimestamp")
_QUEUE: Final = PrinterColumn("QUEUE", "string", ".spec.queue", 1)
_WAITS: Final = '.status.conditions[?(@.type=="Unschedulable")].message'

CRDS: Final = (
    Crd(
        kind=kinds.JOB,
        description="Job is a set of pods of several kinds that run as one.",
        short_names=("vcjob", "vj"),
        columns=(
            PrinterColumn("STATUS", "string", ".status.state.phase"),
            PrinterColumn("minAvailable", "integer", ".status.minAvailable"),
            PrinterColumn("RUNNINGS", "integer", ".status.running"),
            _AGE,
            _QUEUE,
        ),
        more_columns=(PrinterColumn("WHY", "string", ".status.state.message", 1),),
    ),
    Crd(
        kind=kinds.COMMAND,
        description="Command is an order to a job or a queue.",
        subresources=None,
    ),
    Crd(
        kind=kinds.PODGROUP,
        description="PodGroup is a set of pods that are scheduled together.",
        short_names=("pg", "podgroup-v1beta1"),
        columns=(
            PrinterColumn("STATUS", "string", ".status.phase"),
            PrinterColumn("minMember", "integer", ".spec.minMember"),
            PrinterColumn("RUNNINGS", "integer", ".status.running"),
            _AGE,
            _QUEUE,
        ),
        more_columns=(PrinterColumn("WHY", "string", _WAITS, 1),),
        # Volcano's has none (C03): tools write its status through the object, and must go on to.
        subresources=(),
    ),
    Crd(
        kind=kinds.QUEUE,
        description="Queue is a share of the cluster that jobs draw resources from.",
        short_names=("q", "queue-v1beta1"),
        columns=(PrinterColumn("PARENT", "string", ".spec.parent"),),
        more_columns=(
            PrinterColumn("STATE", "string", ".status.state"),
            PrinterColumn("ALLOCATED", "string", ".status.allocated"),
            PrinterColumn("DESERVED", "string", ".spec.deserved"),
            PrinterColumn("PENDING", "integer", ".status.pending"),
        ),
    ),
    Crd(
        kind=kinds.HYPERNODE,
        description="HyperNode is a group of nodes that are near to each other in the network.",
        short_names=("hn",),
        columns=(
            PrinterColumn("Tier", "string", ".spec.tier"),
            PrinterColumn("TierName", "string", ".spec.tierName"),
            PrinterColumn("NodeCount", "integer", ".status.nodeCount"),
            PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    Crd(
        kind=kinds.NODESHARD,
        description="NodeShard is the set of nodes of one of several schedulers.",
        short_names=("nsh",),
        columns=(_AGE,),
    ),
    Crd(
        kind=kinds.CRONJOB,
        description="CronJob makes jobs by a schedule.",
        short_names=("cronvcjob", "cronvj"),
        more_columns=(
            PrinterColumn("SCHEDULE", "string", ".spec.schedule"),
            PrinterColumn("TIMEZONE", "string", ".spec.timeZone"),
            PrinterColumn("SUSPEND", "boolean", ".spec.suspend"),
            PrinterColumn("LAST RUN", "date", ".status.lastScheduleTime"),
            _AGE,
        ),
        rules=((CRON_NAME_TOO_LONG, f"size(self.metadata.name) <= {CRON_NAME_MAX}"),),
    ),
    Crd(
        kind=kinds.JOBFLOW,
        description="JobFlow is a set of jobs that start when others of them have completed.",
        short_names=("jf",),
        columns=(
            PrinterColumn("Status", "string", ".status.state.phase"),
            PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    Crd(
        kind=kinds.JOBTEMPLATE,
        description="JobTemplate is a job that JobFlows are made of.",
        short_names=("jt",),
    ),
    Crd(
        kind=kinds.NUMATOPOLOGY,
        description="Numatopology says what NUMA nodes a node has and who uses them.",
        short_names=("numatopo",),
        subresources=None,
    ),
    Crd(
        kind=kinds.COLOCATIONCONFIGURATION,
        description="ColocationConfiguration is memory QoS of pods, for Volcano's node agent.",
    ),
)
