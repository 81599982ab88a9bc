"""The lists of vcctl: which columns, how wide, what stands in them. Pure.

Objects come as the API server's JSON. Widths are Volcano's: some columns grow with what is in them,
most do not, and nothing is cut, so that a long value moves what comes after it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pumice.vcctl.ages import age, day

Object = Mapping[str, Any]
Rows = Sequence[Sequence[object]]

NOTHING: Final = "No resources found\n"
_TYPE: Final = "volcano.sh/job-type"
_PHASES: Final = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
_JOB_COLUMNS: Final = {
    "Creation": 15,
    "Phase": 12,
    "JobType": 12,
    "Replicas": 12,
    "Min": 6,
    "Pending": 10,
    "Running": 10,
    "Succeeded": 12,
    "Failed": 10,
    "Unknown": 12,
    "RetryCount": 10,
}
_QUEUE_NAME: Final = 25
_QUEUE_COLUMN: Final = 8
_JOB_GAP: Final = 3
_FLOW_GAP: Final = 4
_POD_GAP: Final = 8


def meta(item: Object, field: str) -> str:
    """Return a field of an object's metadata, "" if it has none."""
    return str(item.get("metadata", {}).get(field) or "")


def jobs(items: Sequence[Object], *, everywhere: bool) -> str:
    """Return the list of jobs."""
    if not items:
        return NOTHING
    heads = ["Namespace", "Name"] if everywhere else ["Name"]
    names = [[meta(item, head.lower()) for head in heads] for item in items]
    widths = _widest([heads, *names], _JOB_GAP) + list(_JOB_COLUMNS.values())
    rows = [[*name, *_job(item)] for name, item in zip(names, items, strict=True)]
    return _table(widths, [[*heads, *_JOB_COLUMNS], *rows])


def _job(item: Object) -> list[object]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    counts = ("minAvailable", "pending", "running", "succeeded", "failed", "unknown", "retryCount")
    return [
        day(meta(item, "creationTimestamp")),
        (status.get("state") or {}).get("phase", ""),
        (item["metadata"].get("labels") or {}).get(_TYPE) or "Batch",
        sum(task.get("replicas") or 0 for task in spec.get("tasks") or ()),
        *(status.get(count) or 0 for count in counts),
    ]


def queues(items: Sequence[Object], groups: Iterable[Object]) -> str:
    """Return the list of queues with the PodGroups of each, counted by phase."""
    if not items:
        return NOTHING
    counts = _counted(groups)
    rows = [
        [
            meta(item, "name"),
            *_queue(item),
            (item.get("spec") or {}).get("parent", ""),
            *(counts.get((meta(item, "name"), phase), 0) for phase in _PHASES),
        ]
        for item in items
    ]
    return _table(_queue_widths(8), [["Name", "Weight", "State", "Parent", *_PHASES], *rows])


def queues_by_status(items: Sequence[Object]) -> str:
    """Return the list of queues with the counts of their status, as `vqueues` shows it."""
    if not items:
        return NOTHING
    phases = _PHASES[:-1]
    rows = [
        [
            meta(item, "name"),
            *_queue(item),
            *((item.get("status") or {}).get(phase.lower()) or 0 for phase in phases),
        ]
        for item in items
    ]
    return _table(_queue_widths(6), [["Name", "Weight", "State", *phases], *rows])


def _queue(item: Object) -> list[object]:
    weight = (item.get("spec") or {}).get("weight") or 0
    return [weight, (item.get("status") or {}).get("state", "")]


def _queue_widths(others: int) -> list[int]:
    return [_QUEUE_NAME, *[_QUEUE_COLUMN] * others]


def _counted(groups: Iterable[Object]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for group in groups:
        phase = (group.get("status") or {}).get("phase", "")
        key = ((group.get("spec") or {}).get("queue", ""), phase)
        counts[key] = counts.get(key, 0) + 1
    return counts


def flows(items: Sequence[Object], now_s: float) -> str:
    """Return the list of JobFlows."""
    if not items:
        return NOTHING
    rows = [
        [
            *_place(item),
            ((item.get("status") or {}).get("state") or {}).get("phase", ""),
            age(meta(item, "creationTimestamp"), now_s),
        ]
        for item in items
    ]
    return _grown([["Name", "Namespace", "Phase", "Age"], *rows], _FLOW_GAP)


def templates(items: Sequence[Object]) -> str:
    """Return the list of JobTemplates."""
    if not items:
        return NOTHING
    return _grown([["Name", "Namespace"], *map(_place, items)], _FLOW_GAP)


def pods(rows: Sequence[Sequence[str]], *, everywhere: bool) -> str:
    """Return the list of pods, whose rows begin with their namespace."""
    if not rows:
        return NOTHING
    heads = ["Namespace", "Name", "Ready", "Status", "Restart", "Age"]
    shown = [list(row) if everywhere else list(row[1:]) for row in rows]
    widths = _widest(shown, _POD_GAP)  # ⚠ the heads do not count: they are shorter than the gap
    return _table(widths, [heads if everywhere else heads[1:], *shown])


def _place(item: Object) -> list[str]:
    return [meta(item, "name"), meta(item, "namespace")]


def _grown(rows: Rows, gap: int) -> str:
    return _table(_widest(rows, gap), rows)


def _widest(rows: Rows, gap: int) -> list[int]:
    """Return the width of each column: its longest value and a gap."""
    return [max(len(str(cell)) for cell in column) + gap for column in zip(*rows, strict=True)]


def _table(widths: Sequence[int], rows: Rows) -> str:
    """Return rows with each cell, also the last one, filled up to its width."""
    return "".join(
        "".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)) + "\n"
        for row in rows
    )
