"""One frame of `pumice top`: queues with bars, pending and running gangs, nodes. Pure.

Rows of the terminal are given to queues first, then to pending and then to running jobs: users
look for jobs that wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pumice.queries.text import since, until
from pumice.queries.workloads import title
from shared.api.visibility import NodeUse, PendingJob, QueueTree, RunningJob
from shared.model.quantity import BadQuantity, milli

_BAR: Final = 12
_HEADS: Final = 4
"""Lines of a section beside its rows: an empty one, title, heads, and how much is left out."""
_LEAST_ROWS: Final = 3
_NAMES: Final = 14
"""Least width of the first column."""
_PODS: Final = "pods"
"""Left out of the dominant share: pod counts do not show how much of the cluster a queue uses."""
_ELASTIC: Final = frozenset({"holds", "short"})
"""Columns that shrink first when the terminal is narrow, as the first column does."""
_TENTHS: Final = 10
_FULL: Final = 0.995
_HEAT: Final = "░▒▓█"


class FrameModel(Struct, frozen=True, kw_only=True):
    """The data of one frame; None for a part that the user may not read or that is not served."""

    host: str
    now_s: float
    clock: str
    queues: Sequence[QueueTree] | None = None
    waiting: Sequence[PendingJob] | None = None
    running: Sequence[RunningJob] | None = None
    nodes: Sequence[NodeUse] | None = None
    errors: Sequence[str] = ()


def frame(model: FrameModel, *, height: int) -> RenderableType:
    """Return the frame for a terminal with `height` lines."""
    queues, waiting, running = _rows(model, height)
    parts: list[RenderableType] = [_headline(model)]
    if model.queues is not None:
        parts.append(_queues(model.queues, queues))
    if model.waiting is not None:
        parts.append(_waiting(model.waiting, waiting, model.now_s))
    if model.running is not None:
        parts.append(_running(model.running, running, model.now_s))
    if model.nodes is not None:
        parts.append(_nodes(model.nodes))
    parts += [_error_line(each) for each in model.errors]
    return Group(*parts)


def _rows(model: FrameModel, height: int) -> tuple[int, int, int]:
    """Return how many rows queues, waiting and running jobs get."""
    sections = [model.queues, model.waiting, model.running]
    beside = 1 + _HEADS * sum(section is not None for section in sections)
    beside += _HEADS * int(model.nodes is not None) + len(model.errors)
    left = max(height - beside - 1, _LEAST_ROWS)
    shares = []
    for at, section in enumerate(sections):
        equal = max(left // (len(sections) - at), 1)
        rows = len(section or ())
        # Queues may take half, and what comes later takes what those before it leave.
        shares.append(min(rows, max(equal, left // 2 if at == 0 else 0)))
        left -= shares[-1]
    queues, waiting, running = shares
    return queues, waiting + max(left, 0), running


def _headline(model: FrameModel) -> Text:
    counts = [
        f"{len(found)} {word}"
        for found, word in (
            (model.queues, "queues"),
            (model.waiting, "waiting"),
            (model.running, "running"),
            (model.nodes, "nodes"),
        )
        if found is not None
    ]
    return Text(f"{model.clock}  {model.host}  {', '.join(counts)}", style="bold")


def _error_line(message: str) -> Text:
    return Text(message, style="red", no_wrap=True, overflow="ellipsis")


def _section(title: str, *heads: str) -> Table:
    table = Table(box=None, pad_edge=False, title=f"\n{title}", title_justify="left", expand=True)
    for at, head in enumerate(heads):
        table.add_column(
            head,
            no_wrap=True,
            overflow="ellipsis",
            ratio=3 if at == 0 else 2 if head in _ELASTIC else None,
            min_width=_NAMES if at == 0 else None,
        )
    return table


def _more(table: Table, shown: int, of: int) -> Table:
    if of > shown:
        table.caption = f"and {of - shown} more"
        table.caption_justify = "left"
    return table


def _queues(queues: Sequence[QueueTree], rows: int) -> Table:
    table = _section(
        "Queues", "queue", "running", "inqueue", "pending", "used of deserved", "", "most used"
    )
    for queue in queues[:rows]:
        share, resource = dominant(queue)
        bar = Text(_bar(share), style="red" if share > 1 else "green")
        name = f"{'  ' * queue.depth}{queue.metadata.name}"
        counts = (queue.running_jobs, queue.inqueue_jobs, queue.pending_jobs)
        percent = f"{share:.0%}" if resource else "-"
        table.add_row(name, *map(str, counts), bar, percent, resource)
    return _more(table, rows, len(queues))


def dominant(queue: QueueTree) -> tuple[float, str]:
    """Return a queue's dominant share (0 to 1 or more of what it deserves) and its resource."""
    shares = [
        (amount(found.allocated) / whole, found.resource)
        for found in queue.resources
        if found.resource != _PODS and (whole := amount(found.deserved) or amount(found.capability))
    ]
    return max(shares, default=(0.0, ""))


def amount(text: str) -> float:
    """Return a quantity as a number; none, or one that is no quantity, is 0."""
    try:
        return milli(text) / 1000 if text else 0.0
    except BadQuantity:
        return 0.0


def _bar(share: float) -> str:
    filled = round(min(max(share, 0.0), 1.0) * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


def _waiting(jobs: Sequence[PendingJob], rows: int, now_s: float) -> Table:
    table = _section("Waiting", "job", "queue", "place", "gate", "short", "since", "start")
    longest = sorted(
        jobs, key=lambda job: (job.waiting_since or "", job.metadata.namespace, job.position)
    )
    for job in longest[:rows]:
        short = ", ".join(map(str, job.shortages))
        expected = job.expected_start.median if job.expected_start else None
        waits = since(job.waiting_since, now_s)
        place = str(job.position or "-")
        name = f"{job.metadata.namespace}/{title(job)}"
        table.add_row(name, job.queue, place, job.gate, short, waits, until(expected, now_s))
    return _more(table, rows, len(jobs))


def _running(jobs: Sequence[RunningJob], rows: int, now_s: float) -> Table:
    table = _section("Running", "job", "queue", "pods", "nodes", "holds", "since", "end")
    largest = sorted(jobs, key=lambda job: (-job.pods, job.metadata.namespace, job.metadata.name))
    for job in largest[:rows]:
        allocated = ", ".join(f"{name} {amount}" for name, amount in sorted(job.allocated.items()))
        times = since(job.running_since, now_s), until(job.expected_end, now_s)
        name = f"{job.metadata.namespace}/{title(job)}"
        table.add_row(name, job.queue, str(job.pods), str(job.nodes), allocated, *times)
    return _more(table, rows, len(jobs))


def _nodes(nodes: Sequence[NodeUse]) -> Table:
    """Return how many nodes are how full, by the fullest of their resources."""
    table = _section("Nodes", "full to", *(f"{tenth * 10}%" for tenth in range(_TENTHS)), "100%")
    counts = [0] * (_TENTHS + 1)
    for node in nodes:
        counts[tenth(node)] += 1
    most = max(counts, default=0) or 1
    heat = (Text(f"{_HEAT[(count * 3) // most]} {count}" if count else "·") for count in counts)
    away = sum(not node.ready or node.unschedulable for node in nodes)
    table.add_row(f"{len(nodes)} nodes, {away} away" if away else f"{len(nodes)} nodes", *heat)
    return table


def tenth(node: NodeUse) -> int:
    """Return to how many tenths the fullest resource of a node is in use."""
    used = max(_uses(node.allocated, node.allocatable), default=0.0)
    return _TENTHS if used >= _FULL else int(used * _TENTHS)


def _uses(taken: Mapping[str, str], whole: Mapping[str, str]) -> Iterator[float]:
    for name, size in whole.items():
        if amount(size):
            yield min(amount(taken.get(name, "")) / amount(size), 1.0)
