"""The table of CRDs: names, short names, columns and subresources of the kinds that Pumice brings.

`crdgen` adds the schema from the kind's type. A new kind is a `Kind` with a type in `kinds.py` and
one row here. Printer columns are what `kubectl get` shows: Volcano's (C01 to C09), then ours.
"""

from typing import Final

import msgspec

from shared.api import kinds
from shared.api.cron import CRON_NAME_MAX, CRON_NAME_TOO_LONG
from shared.api.kinds import Kind


class Column(msgspec.Struct, frozen=True):
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
    columns: tuple[Column, ...] = ()
    """Volcano's."""
    more_columns: tuple[Column, ...] = ()
    """Ours, which come behind them."""
    subresources: tuple[str, ...] | None = ("status",)
    """None leaves the member out, `()` writes it empty; both mean that there are none."""
    rules: tuple[tuple[str, str], ...] = ()
    """Message and CEL expression of what must hold of a whole object, its name included."""


_AGE: Final = Column("AGE", "date", ".metadata.creationTimestamp")
_QUEUE: Final = Column("QUEUE", "string", ".spec.queue", 1)
_WAITS: Final = '.status.conditions[?(@.type=="Unschedulable")].message'

CRDS: Final = (
    Crd(
        kind=kinds.JOB,
        description="Job is a set of pods of several kinds that run as one.",
        short_names=("vcjob", "vj"),
        columns=(
            Column("STATUS", "string", ".status.state.phase"),
            Column("minAvailable", "integer", ".status.minAvailable"),
            Column("RUNNINGS", "integer", ".status.running"),
            _AGE,
            _QUEUE,
        ),
        more_columns=(Column("WHY", "string", ".status.state.message", 1),),
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
            Column("STATUS", "string", ".status.phase"),
            Column("minMember", "integer", ".spec.minMember"),
            Column("RUNNINGS", "integer", ".status.running"),
            _AGE,
            _QUEUE,
        ),
        more_columns=(Column("WHY", "string", _WAITS, 1),),
        # Volcano's has none (C03): tools write its status through the object, and must go on to.
        subresources=(),
    ),
    Crd(
        kind=kinds.QUEUE,
        description="Queue is a share of the cluster that jobs draw resources from.",
        short_names=("q", "queue-v1beta1"),
        columns=(Column("PARENT", "string", ".spec.parent"),),
        more_columns=(
            Column("STATE", "string", ".status.state"),
            Column("ALLOCATED", "string", ".status.allocated"),
            Column("DESERVED", "string", ".spec.deserved"),
            Column("PENDING", "integer", ".status.pending"),
        ),
    ),
    Crd(
        kind=kinds.HYPERNODE,
        description="HyperNode is a group of nodes that are near to each other in the network.",
        short_names=("hn",),
        columns=(
            Column("Tier", "string", ".spec.tier"),
            Column("TierName", "string", ".spec.tierName"),
            Column("NodeCount", "integer", ".status.nodeCount"),
            Column("Age", "date", ".metadata.creationTimestamp"),
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
            Column("SCHEDULE", "string", ".spec.schedule"),
            Column("TIMEZONE", "string", ".spec.timeZone"),
            Column("SUSPEND", "boolean", ".spec.suspend"),
            Column("LAST RUN", "date", ".status.lastScheduleTime"),
            _AGE,
        ),
        rules=((CRON_NAME_TOO_LONG, f"size(self.metadata.name) <= {CRON_NAME_MAX}"),),
    ),
    Crd(
        kind=kinds.JOBFLOW,
        description="JobFlow is a set of jobs that start when others of them have completed.",
        short_names=("jf",),
        columns=(
            Column("Status", "string", ".status.state.phase"),
            Column("Age", "date", ".metadata.creationTimestamp"),
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
