"""The lists of vcctl: which columns, how wide, and their contents, such as ages. Pure.

Objects come as the API server's JSON. Widths are Volcano's: some columns grow with what is in them,
most do not, and nothing is cut, so that a long value moves what comes after it.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

UNKNOWN: Final = "<unknown>"
_INVALID: Final = "<invalid>"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Upper bound in seconds, the unit, and the smaller unit for the remainder."""


def parsed(moment: str) -> dt.datetime | None:
    """Return a moment of the API server's, None for an empty one."""
    return dt.datetime.fromisoformat(moment) if moment else None


def age(moment: str, now_s: float) -> str:
    """Return how long ago a moment was; `<unknown>` if there is none."""
    then = parsed(moment)
    return span(now_s - then.timestamp()) if then else UNKNOWN


def event_age(moment: str, now_s: float) -> str:
    """Return the age of an event: ⚠ Volcano shows the days beside whole years there (`2y0d`)."""
    text = age(moment, now_s)
    then = parsed(moment)
    years = then is not None and 2 * _YEAR <= now_s - then.timestamp() < 8 * _YEAR
    return f"{text}0d" if years and text.endswith("y") else text


def span(seconds: float) -> str:
    """Return a duration in one or two units, more exact the shorter it is."""
    whole = int(seconds)
    if whole < -1:
        return _INVALID
    whole = max(whole, 0)
    for below, unit, sign, smaller, small_sign in _STEPS:
        if whole < below:
            rest = whole % unit // smaller if smaller else 0
            return f"{whole // unit}{sign}" + (f"{rest}{small_sign}" if rest else "")
    return f"{whole // _YEAR}y"


def stamp(moment: str) -> str:
    """Return a moment in local time as Go prints it."""
    then = parsed(moment)
    if then is None:
        return "0001-01-01 00:00:00 +0000 UTC"
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")


def day(moment: str) -> str:
    """Return the local day of a moment."""
    then = parsed(moment)
    return then.astimezone().strftime("%Y-%m-%d") if then else "0001-01-01"


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
