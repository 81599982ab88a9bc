"""Results as tables: what `kubectl get` prints, with more columns for `-o wide`.

An object is one row, except that an explanation has a row per gate and a timeline one per entry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from services.visibility.api.resources import ServedResource
from shared.api.base import Json, View
from shared.api.time import read
from shared.api.usage_reports import UsageReport, UsageReportStatus
from shared.api.visibility import (
    ExpectedStart,
    Explanation,
    Gate,
    NodeUse,
    PendingJob,
    QueueResource,
    QueueTree,
    RunningJob,
    Timeline,
    TimelineEntry,
    UsageHistory,
    UsagePoint,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIf
from shared.model.quantity import decimal

_UNITS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m"))
_ENOUGH: Final = 10
"""Of a unit so many are shown without the next smaller one, from minutes on."""


class TableColumn(msgspec.Struct, frozen=True):
    """One column; `cell` takes the subject of a row and the time of now."""

    name: str
    cell: Callable[[Any, float], str | int]
    type: str = "string"
    is_wide: bool = False


class _Form(msgspec.Struct, frozen=True):
    """The columns of a kind, and the subjects of the rows of one object."""

    columns: tuple[TableColumn, ...]
    rows: Callable[[Any], Iterable[Any]] = lambda obj: (obj,)


def table(
    resource: ServedResource,
    objects: Sequence[View],
    *,
    now: float,
    version: str = "",
    include: str = "Metadata",
    headed: bool = True,
) -> Json:
    """Return objects as a Table; `include` says how much of an object each row carries."""
    form = _FORMS[resource.kind]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version} if version else {},
        "columnDefinitions": [_definition(column) for column in form.columns] if headed else [],
        "rows": [
            {
                "cells": [column.cell(subject, now) for column in form.columns],
                **_carried(resource, obj, include),
            }
            for obj in objects
            for subject in form.rows(obj)
        ],
    }


def _definition(column: TableColumn) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": int(column.is_wide),
    }


def _carried(resource: ServedResource, obj: View, include: str) -> Json:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": whole(resource, obj)}
    metadata = msgspec.to_builtins(obj.metadata)  # type: ignore[attr-defined]
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {"object": {**head, "metadata": metadata}}


def whole(resource: ServedResource, obj: View) -> Json:
    """Return an object with its kind."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    if isinstance(obj, WhatIf):  # pod templates in it are JSON that was never read
        return {**head, **msgspec.json.decode(msgspec.json.encode(obj))}
    return {**head, **msgspec.to_builtins(obj)}


def age(since_s: float) -> str:
    """Return a duration as kubectl shows it: 42s, 3m5s, 17m, 2h30m, 5d."""
    left = int(max(since_s, 0.0))
    for (size, unit), (smaller, word) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        count, rest = divmod(left, size)
        if count:
            next_one = rest // smaller
            shown = f"{next_one}{word}" if count < _ENOUGH and next_one else ""
            return f"{count}{unit}{shown}"
    return f"{left}s"


def _since(time: str | None, now: float) -> str:
    found = read(time)
    return "<unknown>" if found is None else age(now - found)


def _until(time: str | None, now: float) -> str:
    found = read(time)
    if found is None:
        return ""
    return f"in {age(found - now)}" if found - now >= 1 else "now"


def _ref(kind: str, name: str) -> str:
    return f"{kind.lower()}/{name}"


def _expected(job: PendingJob | Explanation | WhatIfStatus, now: float) -> str:
    expected = job.expected_start or ExpectedStart()
    return _forecast(expected, expected.median, now) or "<unknown>"


def _latest(job: PendingJob, now: float) -> str:
    expected = job.expected_start or ExpectedStart()
    return _forecast(expected, expected.latest, now)


def _forecast(expected: ExpectedStart, time: str | None, now: float) -> str:
    """Return a moment of a forecast, with `~` where durations are guessed."""
    text = _until(time, now)
    return text.replace("in ", "in ~") if expected.is_guess else text


def _amounts(field: str) -> Callable[[QueueTree, float], str]:
    def cell(queue: QueueTree, _: float) -> str:
        pairs = ((found.resource, getattr(found, field)) for found in queue.resources)
        return ",".join(
            f"{name}={decimal(amount)}" for name, amount in pairs if amount not in ("", "0")
        )

    return cell


def _overused(queue: QueueTree, _: float) -> str:
    def is_overused(found: QueueResource) -> bool:
        return found.overused

    return ",".join(found.resource for found in filter(is_overused, queue.resources))


def _listed(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={decimal(amount)}" for name, amount in sorted(amounts.items()))


def _state(node: NodeUse, _: float) -> str:
    states = ["Ready" if node.ready else "NotReady"]
    return ",".join([*states, "SchedulingDisabled"] if node.unschedulable else states)


def _runs(job: RunningJob, now: float) -> str:
    return _since(job.running_since, now)


class _GateRow(msgspec.Struct, frozen=True):
    of: Explanation
    gate: Gate


class _EntryRow(msgspec.Struct, frozen=True):
    of: Timeline
    entry: TimelineEntry


def _gates(explanation: Explanation) -> Iterable[_GateRow]:
    gates = explanation.gates or (Gate(name="", state=explanation.phase),)
    return (_GateRow(explanation, gate) for gate in gates)


def _entries(timeline: Timeline) -> Iterable[_EntryRow]:
    return (_EntryRow(timeline, entry) for entry in timeline.entries)


class _PointRow(msgspec.Struct, frozen=True):
    of: UsageHistory
    point: UsagePoint


def _points(history: UsageHistory) -> Iterable[_PointRow]:
    return (_PointRow(history, point) for point in history.points)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else age(seconds)


def _lasted(row: _EntryRow, now: float) -> str:
    if row.entry.goes_on:
        return f">{_since(row.entry.at, now)}"
    return "" if row.entry.seconds is None else age(row.entry.seconds)


def _at(row: _EntryRow, now: float) -> str:
    return f"{_since(row.entry.at, now)} ago"


def _status(what_if: WhatIf) -> WhatIfStatus:
    return what_if.status or WhatIfStatus(starts_now=False)


def _count(what_if: WhatIf, name: str) -> int:
    """Return the length of a list in the result, including entries left out."""
    status = _status(what_if)
    return len(getattr(status, name)) + status.remaining.get(name, 0)


def _report(report: UsageReport) -> UsageReportStatus:
    return report.status or UsageReportStatus()


def _size(status: UsageReportStatus) -> int:
    return len(status.rows) + len(status.jobs) + len(status.shares)


_FORMS: Final[Mapping[str, _Form]] = {
    "PendingJob": _Form(
        (
            TableColumn("Name", lambda job, _: job.metadata.name),
            TableColumn("Queue", lambda job, _: job.queue),
            TableColumn("Position", lambda job, _: job.position, "integer"),
            TableColumn("Gate", lambda job, _: job.gate),
            TableColumn("Short", lambda job, _: ", ".join(map(str, job.shortages))),
            TableColumn("Waiting", lambda job, now: _since(job.waiting_since, now)),
            TableColumn("Start", _expected),
            TableColumn("Latest", _latest, is_wide=True),
            TableColumn("Priority", lambda job, _: job.priority, "integer", is_wide=True),
            TableColumn("Owner", lambda job, _: _ref(job.owner.kind, job.owner.name), is_wide=True),
            TableColumn("Message", lambda job, _: job.message, is_wide=True),
        )
    ),
    "Explanation": _Form(
        (
            TableColumn("Name", lambda row, _: row.of.metadata.name),
            TableColumn("Queue", lambda row, _: row.of.queue),
            TableColumn("Position", lambda row, _: row.of.position, "integer"),
            TableColumn("Gate", lambda row, _: row.gate.name),
            TableColumn("State", lambda row, _: row.gate.state),
            TableColumn("Message", lambda row, _: row.gate.message),
            TableColumn("Start", lambda row, now: _expected(row.of, now), is_wide=True),
            TableColumn("Next", lambda row, _: row.of.next_event, is_wide=True),
        ),
        _gates,
    ),
    "QueueTree": _Form(
        (
            TableColumn("Name", lambda queue, _: queue.metadata.name),
            TableColumn("Parent", lambda queue, _: queue.parent),
            TableColumn("State", lambda queue, _: queue.state),
            TableColumn("Running", lambda queue, _: queue.running_jobs, "integer"),
            TableColumn("Inqueue", lambda queue, _: queue.inqueue_jobs, "integer"),
            TableColumn("Pending", lambda queue, _: queue.pending_jobs, "integer"),
            TableColumn("Allocated", _amounts("allocated")),
            TableColumn("Deserved", _amounts("deserved")),
            TableColumn("Overused", _overused),
            TableColumn("Weight", lambda queue, _: queue.weight, "integer", is_wide=True),
            TableColumn("Guarantee", _amounts("guarantee"), is_wide=True),
            TableColumn("Capability", _amounts("capability"), is_wide=True),
            TableColumn("Asked", _amounts("pending"), is_wide=True),
        )
    ),
    "Timeline": _Form(
        (
            TableColumn("Name", lambda row, _: row.of.metadata.name),
            TableColumn("When", _at),
            TableColumn("Lasted", _lasted),
            TableColumn("What", lambda row, _: row.entry.what),
            TableColumn("About", lambda row, _: _ref(row.entry.about.kind, row.entry.about.name)),
            TableColumn("Message", lambda row, _: row.entry.message),
            TableColumn("At", lambda row, _: row.entry.at, is_wide=True),
        ),
        _entries,
    ),
    "RunningJob": _Form(
        (
            TableColumn("Name", lambda job, _: job.metadata.name),
            TableColumn("Queue", lambda job, _: job.queue),
            TableColumn("Pods", lambda job, _: job.pods, "integer"),
            TableColumn("Min", lambda job, _: job.min_available, "integer"),
            TableColumn("Nodes", lambda job, _: job.nodes, "integer"),
            TableColumn("Holds", lambda job, _: _listed(job.allocated)),
            TableColumn("Running", _runs),
            TableColumn("End", lambda job, now: _until(job.expected_end, now) or "<unknown>"),
            TableColumn("Priority", lambda job, _: job.priority, "integer", is_wide=True),
            TableColumn("Owner", lambda job, _: _ref(job.owner.kind, job.owner.name), is_wide=True),
        )
    ),
    "NodeUse": _Form(
        (
            TableColumn("Name", lambda node, _: node.metadata.name),
            TableColumn("Status", _state),
            TableColumn("Pods", lambda node, _: node.pods, "integer"),
            TableColumn("Allocated", lambda node, _: _listed(node.allocated)),
            TableColumn("Allocatable", lambda node, _: _listed(node.allocatable), is_wide=True),
        )
    ),
    "UsageHistory": _Form(
        (
            TableColumn("Name", lambda row, _: row.of.metadata.name),
            TableColumn("When", lambda row, now: f"{_since(row.point.at, now)} ago"),
            TableColumn("Waiting", lambda row, _: row.point.waiting, "integer"),
            TableColumn("Started", lambda row, _: row.point.started, "integer"),
            TableColumn("Waited-p50", lambda row, _: _span(row.point.waited_p50_seconds)),
            TableColumn("Waited-p90", lambda row, _: _span(row.point.waited_p90_seconds)),
            TableColumn("In-use", lambda row, _: _listed(row.point.in_use)),
        ),
        _points,
    ),
    "UsageReport": _Form(
        (
            TableColumn("Name", lambda report, _: report.metadata.name),
            TableColumn("Report", lambda report, _: report.spec.report),
            TableColumn("Since", lambda report, _: _report(report).since or ""),
            TableColumn("Until", lambda report, _: _report(report).until or ""),
            TableColumn("Rows", lambda report, _: _size(_report(report)), "integer"),
        )
    ),
    "WhatIf": _Form(
        (
            TableColumn("Name", lambda what_if, _: what_if.metadata.name),
            TableColumn("Starts-now", lambda what_if, _: str(_status(what_if).starts_now).lower()),
            TableColumn("Gate", lambda what_if, _: _status(what_if).gate),
            TableColumn("Evicts", lambda what_if, _: _count(what_if, "evictions"), "integer"),
            TableColumn("Delays", lambda what_if, _: _count(what_if, "delays"), "integer"),
            TableColumn("Start", lambda what_if, now: _expected(_status(what_if), now)),
            TableColumn("Message", lambda what_if, _: _status(what_if).message),
        )
    ),
}
