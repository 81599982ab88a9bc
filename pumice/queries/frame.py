"""One frame of `pumice top`: queues with bars, pending and running gangs, nodes. Pure.

Rows of the terminal are given to queues first, then to pending and then to running jobs: users
look for jobs that wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pumice.queries.text import expected, since, until
from pumice.queries.workloads import title
from shared.api.visibility import NodeUse, PendingJob, QueueTree, RunningJob
from shared.model.quantity import BadQuantity, decimal, milli

_BAR: Final = 12
_HEADS: Final = 4
"""Lines of a section beside its rows: an empty one, title, heads, and how much is left out."""
_LEAST_ROWS: Final = 3
_NAMES: Final = 14
"""Least width of the first column."""
_PODS: Final = "pods"
"""Left out of the dominant share: pod counts do not show how much of the cluster a queue uses."""
_GAP: Final = 2
"""Columns between two cells."""
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
            ratio=1 if at == 0 else None,
            min_width=_NAMES if at == 0 else None,
        )
    return table


class _JobTable(Struct, frozen=True, kw_only=True):
    """A table of jobs. The first cell of a row is a name, the one at `resources` has resources.

    On a narrow terminal a list of resources is shortened by whole entries, and counts the rest.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Sequence[Sequence[str]]]]
    """The cell at `resources` has forms of a list, the longest first."""
    resources: int
    left_out: int

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table for a console of `options.max_width` columns."""
        width = self._width(options.max_width)
        table = _section(self.title, *self.heads)
        table.columns[self.resources].width = width
        for row in self.rows:
            table.add_row(*(c if isinstance(c, str) else _shortened(c, width) for c in row))
        yield _more(table, self.left_out)

    def _width(self, most: int) -> int:
        """Return the width of the resources: what names leave, at least half of both."""
        longest = [len(head) for head in self.heads]
        for row in self.rows:
            for at, cell in enumerate(row):
                words = cell if isinstance(cell, str) else ", ".join(cell[0])
                longest[at] = max(longest[at], len(words))
        wanted, names = longest[self.resources], max(longest[0], _NAMES)
        room = most - sum(longest) - _GAP * (len(longest) - 1) + longest[0] + wanted
        least = len(self.heads[self.resources])
        return max(least, min(wanted, max(room - names, room // 2)))


def _shortened(forms: Sequence[Sequence[str]], width: int) -> str:
    """Return the first form of a list that fits, else as much of the last one as does."""
    for form in forms:
        if len(text := ", ".join(form)) <= width:
            return text
    entries = forms[-1]
    for count in range(len(entries) - 1, 0, -1):
        text = f"{', '.join(entries[:count])} +{len(entries) - count}"
        if len(text) <= width:
            return text
    return ", ".join(entries)


def _more(table: Table, left_out: int) -> Table:
    if left_out > 0:
        table.caption = f"and {left_out} more"
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
    return _more(table, len(queues) - rows)


def dominant(queue: QueueTree) -> tuple[float, str]:
    """Return a queue's dominant share (0 to 1 or more of what it deserves) and its resource.

    The root queue deserves the whole cluster. Of equal shares that of the resource counts
    of which the queue has most of the cluster.
    """
    shares = list[tuple[float, float, str]]()
    for found in queue.resources:
        whole = amount(found.total)
        deserved = amount(found.deserved) or amount(found.capability)
        deserved = deserved or (0.0 if queue.depth else whole)
        if found.resource != _PODS and deserved:
            used = amount(found.allocated)
            shares.append((used / deserved, used / whole if whole else 0.0, found.resource))
    share, _, resource = max(shares, default=(0.0, 0.0, ""))
    return share, resource


def amount(text: str) -> float:
    """Return a quantity as a number; none, or one that is no quantity, is 0."""
    try:
        return milli(text) / 1000 if text else 0.0
    except BadQuantity:
        return 0.0


def _bar(share: float) -> str:
    filled = round(min(max(share, 0.0), 1.0) * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


def _waiting(jobs: Sequence[PendingJob], rows: int, now_s: float) -> _JobTable:
    longest = sorted(
        jobs, key=lambda job: (job.waiting_since or "", job.metadata.namespace, job.position)
    )
    return _JobTable(
        title="Waiting",
        heads=("job", "queue", "place", "gate", "short", "since", "start"),
        rows=[_wait(job, now_s) for job in longest[:rows]],
        resources=4,
        left_out=len(jobs) - rows,
    )


def _wait(job: PendingJob, now_s: float) -> Sequence[str | Sequence[Sequence[str]]]:
    forms = (
        [str(each) for each in job.shortages],
        [f"{each.resource} {decimal(each.requested)}" for each in job.shortages],
    )
    median = job.expected_start.median if job.expected_start else None
    times = since(job.waiting_since, now_s), expected(job.expected_start, median, now_s)
    return _name(job), job.queue, str(job.position or "-"), job.gate, forms, *times


def _running(jobs: Sequence[RunningJob], rows: int, now_s: float) -> _JobTable:
    largest = sorted(jobs, key=lambda job: (-job.pods, job.metadata.namespace, job.metadata.name))
    return _JobTable(
        title="Running",
        heads=("job", "queue", "pods", "nodes", "holds", "since", "end"),
        rows=[_run(job, now_s) for job in largest[:rows]],
        resources=4,
        left_out=len(jobs) - rows,
    )


def _run(job: RunningJob, now_s: float) -> Sequence[str | Sequence[Sequence[str]]]:
    holds = [f"{name} {decimal(amount)}" for name, amount in sorted(job.allocated.items())]
    times = since(job.running_since, now_s), until(job.expected_end, now_s)
    return _name(job), job.queue, str(job.pods), str(job.nodes), (holds,), *times


def _name(job: PendingJob | RunningJob) -> str:
    return f"{job.metadata.namespace}/{title(job)}"


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
