"""Results as text for a terminal. Pure: `now_s` (Unix seconds) is an argument."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pumice.queries.jobs_without_group import WITHOUT_GROUP
from pumice.queries.workloads import called, title
from shared.api.time import read
from shared.api.visibility import (
    Delay,
    EvictedPod,
    ExpectedStart,
    Explanation,
    Finding,
    Holder,
    LosingJob,
    MovedPod,
    ObjectRef,
    PendingJob,
    QueueResource,
    QueueTree,
    ResourceShortage,
    TaskPlacement,
    Timeline,
    TimelineEntry,
    WhatIfStatus,
)
from shared.model.numbers import plural
from shared.model.quantity import decimal

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_ONE_UNIT_FROM: Final = 10
"""From this count on, the next smaller unit is left out."""
_STATES: Final = {"Passed": "passed", "Failed": "FAILED", "NotReached": "not reached"}
_NONE: Final = "-"


def span(seconds: float) -> str:
    """Return a duration in at most two units: `42s`, `3m5s`, `17m`, `2h30m`, `5d`."""
    left = int(max(seconds, 0.0))
    for at, (size, unit) in enumerate(_UNITS[:-1]):
        count, rest = divmod(left, size)
        if count:
            smaller, sign = _UNITS[at + 1]
            more = f"{rest // smaller}{sign}" if rest // smaller and count < _ONE_UNIT_FROM else ""
            return f"{count}{unit}{more}"
    return f"{left}s"


def since(moment: str | None, now_s: float) -> str:
    """Return how long ago a moment was, `-` without one."""
    at = read(moment)
    return _NONE if at is None else span(now_s - at)


def until(moment: str | None, now_s: float) -> str:
    """Return how far away a moment is, `-` without one."""
    at = read(moment)
    if at is None:
        return _NONE
    return f"in {span(at - now_s)}" if at - now_s >= 1 else "now"


def expected(start: ExpectedStart | None, at: str | None, now_s: float) -> str:
    """Return how far away a moment of a forecast is, `in ~12m` for one by guessed durations."""
    text = until(at, now_s)
    return text.replace("in ", "in ~") if start is not None and start.is_guess else text


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a cell that is empty is a dash."""
    cells = [list(heads), *([str(cell) or _NONE for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "".join(f"{line}\n" for line in lines)


def start(found: ExpectedStart | None, now_s: float) -> str:
    """Return when a job is found to start, in one phrase."""
    if found is None:
        return "not known"
    if not is_known(found):
        if found.never:
            return found.unknown
        return f"not known: {found.unknown}" if found.unknown else "not known"
    text = f"{until(found.median, now_s)} (half of the forecasts)"
    if found.latest is not None:
        text += f", {until(found.latest, now_s)} at the latest (nine of ten)"
    elif found.unknown:
        text += f", {found.unknown}"
    return f"{text}; {basis(found.basis)}" if found.basis else text


_BASES: Final = {
    "annotation": "by what the jobs state",
    "deadline": "by the deadlines of the jobs",
    "history": "by how long similar jobs ran",
    "others": "a guess: by how long other jobs ran here",
    "default": "a guess: no similar job has ended here",
}


def basis(names_and_note: str) -> str:
    """Return the source of a forecast's durations as a phrase: the least reliable one."""
    names, _, left_out = names_and_note.partition("; ")
    weakest = names.split(", ")[-1]
    for name in _BASES:
        if name in names.split(", "):
            weakest = name
    source = _BASES.get(weakest, weakest)
    return f"{source}; {left_out}" if left_out else source


def is_known(found: ExpectedStart | None) -> bool:
    """Return whether a start was forecast."""
    return found is not None and (found.median or found.latest) is not None


def shortages(short: Sequence[ResourceShortage], gate: str = "") -> str:
    """Return what is short at a gate: `cpu: 8 asked, 2 free`, or of pods and nodes."""
    of_pods: dict[tuple[int, int, int], list[ResourceShortage]] = {}
    for each in short:
        of_pods.setdefault((each.pods, each.nodes, each.places), []).append(each)
    return "; ".join(
        _shortage_of_pods(equal) if pods else "; ".join(_shortage(each, gate) for each in equal)
        for (pods, _, _), equal in of_pods.items()
    )


def _shortage(short: ResourceShortage, gate: str) -> str:
    requested, left = decimal(short.requested), decimal(short.free)
    # What may be admitted is more than what is free, or less: see plugin overcommit.
    if gate == "enqueue":
        return f"{short.resource}: {requested} asked, at most {left} more may be admitted"
    return f"{short.resource}: {requested} asked, {left} free"


def _shortage_of_pods(short: Sequence[ResourceShortage]) -> str:
    """Return what equal pods lack; the nodes with room for one have all of its resources."""
    first = short[0]
    each = " and ".join(f"{decimal(one.requested)} {one.resource}" for one in short)
    pods = f"1 pod of {each}" if first.pods == 1 else f"{first.pods} pods of {each} each"
    if not first.nodes and [one.resource for one in short] == ["pods"]:
        return f"room for {plural(first.pods, 'pod')}; every node has as many pods as it may have"
    if not first.nodes:
        free = [decimal(one.free) for one in short]
        if len(short) > 1:
            free = [f"{left} {one.resource}" for left, one in zip(free, short, strict=True)]
        return f"{pods}; no node has that free (most: {', '.join(free)})"
    nodes = "1 node has" if first.nodes == 1 else f"{first.nodes} nodes have"
    room = f", room for {first.places}" if first.places != first.nodes else ""
    return f"{pods}; {nodes} that free{room}"


def explanation(found: Explanation, now_s: float) -> str:
    """Return why a job waits: a headline, its gates, and what blocks it."""
    lines = [_headline(found)]
    width = max((len(gate.name) for gate in found.gates), default=0)
    for gate in found.gates:
        line = f"  {gate.name:<{width}}  {_STATES.get(gate.state, gate.state):<11}  {gate.message}"
        lines.append(line.rstrip())
    facts = [(name, words) for name, words in _facts(found, now_s) if words]
    lines += [f"{f'{name}:' if name else '':<12}{words}" for name, words in facts]
    return "\n".join(lines) + "\n"


def _headline(found: Explanation) -> str:
    about = found.about
    name = f"{about.kind} {found.metadata.namespace}/{about.name}{_of_owner(found)}"
    place = f", place {found.position} in line" if found.position else ""
    queue = f" in queue {found.queue}{place}" if found.queue else ""
    return f"{name}: {found.phase or 'unknown'}{queue}"


def _of_owner(found: Explanation | Timeline) -> str:
    """Return the workload that a job belongs to, for behind its name."""
    owner = found.owner
    if owner is None or owner.kind == "PodGroup" or _is_itself(owner, found.metadata.name):
        return ""
    return f" of {owner.kind} {owner.name}"


def _is_itself(owner: ObjectRef, name: str) -> bool:
    """Tell whether an owner is the Job of Volcano of a name; another kind may have the name too."""
    return owner.name == name and owner.api_version.startswith("batch.volcano.sh/")


def _facts(found: Explanation, now_s: float) -> Iterable[tuple[str, str]]:
    failed = next((gate.name for gate in found.gates if gate.state == "Failed"), "")
    yield "short", shortages(found.shortages, failed)
    reasons = sorted(found.reasons, key=lambda reason: (-reason.nodes, reason.reason))
    yield "nodes", "; ".join(f"{r.nodes} of {found.nodes}: {r.reason}" for r in reasons)
    yield "held by", "; ".join(_holder(holder, now_s) for holder in found.holders)
    if found.remaining_holders:
        yield "", f"and {found.remaining_holders} that hold less"
    if found.hidden_holders:
        yield "", f"and {found.hidden_holders} in namespaces that you may not see"
    if found.would_help:
        yield "would help", f"{'; or '.join(found.would_help)} (tried: it then starts now)"
    yield "next", found.next_event
    if found.expected_start is not None:
        yield "start", start(found.expected_start, now_s)
    if found.decided_at is not None:
        yield "decided", f"{since(found.decided_at, now_s)} ago"
    if found.latest is not None:
        yield "latest", _latest(found.latest, now_s)


def _latest(found: Finding, now_s: float) -> str:
    """Return what was found after the leader's decision."""
    what = (
        f"stopped at the gate {found.gate}: {found.message}" if found.gate else "nothing stops it"
    )
    return f"{what}, on the state of {since(found.at, now_s)} ago"


def _holder(holder: Holder, now_s: float) -> str:
    amounts = ", ".join(
        f"{name}={decimal(amount)}" for name, amount in sorted(holder.holds.items())
    )
    ends = f", perhaps ends {until(holder.expected_end, now_s)}" if holder.expected_end else ""
    name = "/".join(filter(None, (holder.job.namespace, called(holder.job, holder.owner))))
    return f"{name} ({amounts}{ends})"


def pending(jobs: Sequence[PendingJob], now_s: float, *, everywhere: bool, wide: bool) -> str:
    """Return jobs that wait as a table."""
    if not jobs:
        return "no job waits\n"
    heads = ["NAMESPACE"] * everywhere + ["NAME", "QUEUE", "PLACE", "GATE", "SHORT", "WAITING"]
    heads += ["START", *(["LATEST", "PRIORITY", "OWNER", "MESSAGE"] if wide else ())]
    rows = (_pending(job, now_s, everywhere, wide) for job in jobs)
    return columns(heads, rows) + "".join("" if wide else _of_controller(job) for job in jobs)


def _of_controller(job: PendingJob) -> str:
    """Return a line with the state of a job that no gate stops yet, "" for another job."""
    if job.gate != WITHOUT_GROUP:
        return ""
    return f"{job.metadata.namespace}/{job.metadata.name}: {job.message}\n"


def _pending(job: PendingJob, now_s: float, everywhere: bool, wide: bool) -> list[object]:
    short = ", ".join(map(str, job.shortages))
    median, latest = _bounds(job, now_s)
    row: list[object] = [job.metadata.namespace] if everywhere else []
    row += [title(job), job.queue, job.position or "", job.gate, short]
    row += [since(job.waiting_since, now_s), median]
    if wide:
        row += [latest, job.priority, _owner(job), job.message]
    return row


def _bounds(job: PendingJob, now_s: float) -> tuple[str, str]:
    """Return by when half and nine of ten of the forecasts start a job."""
    found = job.expected_start or ExpectedStart()
    return expected(found, found.median, now_s), expected(found, found.latest, now_s)


def starts(jobs: Sequence[PendingJob], now_s: float, *, everywhere: bool, wide: bool) -> str:
    """Return the expected starts of jobs that wait as a table."""
    if not jobs:
        return "no job waits\n"
    heads = ["NAMESPACE"] * everywhere + ["NAME", "QUEUE", "PLACE", "WAITING", "START", "LATEST"]
    heads += ["PRIORITY", "OWNER"] * wide + ["BASIS"]
    return columns(heads, (_starts(job, now_s, everywhere, wide) for job in jobs))


def _starts(job: PendingJob, now_s: float, everywhere: bool, wide: bool) -> list[object]:
    found = job.expected_start or ExpectedStart()
    row: list[object] = [job.metadata.namespace] if everywhere else []
    row += [title(job), job.queue, job.position or "", since(job.waiting_since, now_s)]
    row += _bounds(job, now_s)
    if wide:
        row += [job.priority, _owner(job)]
    return [*row, basis(found.basis) if is_known(found) else found.unknown]


def _owner(job: PendingJob) -> str:
    return f"{job.owner.kind.lower()}/{job.owner.name}"


def when(job: PendingJob, now_s: float) -> str:
    """Return when a job that waits is expected to start."""
    name = f"{job.metadata.namespace}/{title(job)}"
    place = f"place {job.position} in queue {job.queue}" if job.position else f"queue {job.queue}"
    waited = since(job.waiting_since, now_s)
    return f"{name}: {start(job.expected_start, now_s)} ({place}, waiting for {waited})\n"


def tree(queues: Sequence[QueueTree], *, wide: bool) -> str:
    """Return the tree of queues, a row for each of their resources."""
    if not queues:
        return "there is no queue\n"
    heads = ["QUEUE", "STATE", "RUNNING", "INQUEUE", "PENDING", "RESOURCE", "ALLOCATED", "DESERVED"]
    heads += ["GUARANTEE", "CAPABILITY", *(["ASKED", "ADMITTED", "WEIGHT"] if wide else ()), " "]
    rows = [row for queue in queues for row in _queue(queue, wide=wide)]
    return columns(heads, rows)


def _queue(queue: QueueTree, *, wide: bool) -> Iterable[list[object]]:
    counts = (queue.running_jobs, queue.inqueue_jobs, queue.pending_jobs)
    own: list[object] = [f"{'  ' * queue.depth}{queue.metadata.name}", queue.state, *counts]
    for resource in queue.resources or (QueueResource(resource="", allocated=""),):
        shown = [resource.allocated, resource.deserved, resource.guarantee, resource.capability]
        if wide:
            shown += [resource.pending, resource.inqueue]
        amounts: list[object] = [resource.resource, *map(decimal, shown)]
        if wide:
            amounts.append(queue.weight)
        yield [*own, *amounts, "overused" if resource.overused else " "]
        own = [" "] * len(own)


def timeline(found: Timeline, now_s: float) -> str:
    """Return a job's life, a line for each thing that happened."""
    queue = f" in queue {found.queue}" if found.queue else ""
    gone = "gone, deleted while " * found.gone
    name = f"{found.metadata.key}{_of_owner(found)}"
    lines = [f"{name}: {gone}{found.phase or 'unknown'}{queue}"]
    own = found.metadata.name
    lines += [_entry(entry, own, now_s) for entry in found.entries]
    if found.hidden_pods:
        lines.append(f"  … {found.hidden_pods} pods are left out")
    return "\n".join(lines) + "\n"


def _entry(entry: TimelineEntry, own: str, now_s: float) -> str:
    lasted = "" if entry.seconds is None else span(entry.seconds)
    if entry.goes_on:
        lasted = f">{since(entry.at, now_s)}"
    mark = "~" * entry.approximate
    about = "" if entry.about.name == own else f"{entry.about.kind.lower()}/{entry.about.name}"
    text = "  ".join(filter(None, (about, entry.message)))
    at = f"{mark}{since(entry.at, now_s)} ago"
    return f"  {at:>12}  {entry.what:<9}  {lasted:>6}  {text}".rstrip()


def what_if(status: WhatIfStatus, now_s: float, *, of_job: bool = True) -> str:
    """Return what would happen: to a job, or with other queues and nodes alone."""
    return "".join(f"{line}\n" for line in _imagined(status, now_s, of_job=of_job))


def _imagined(status: WhatIfStatus, now_s: float, *, of_job: bool) -> Iterable[str]:
    if not of_job:
        count = len(status.starting) + status.remaining.get("starting", 0)
        yield f"{count} of the jobs that wait would start" if count else "no job would start"
    elif status.starts_now:
        yield "starts now"
    else:
        gate = f" at the gate {status.gate}" if status.gate else ""
        yield f"does not start now: stopped{gate}" + f": {status.message}" * bool(status.message)
        short = shortages(status.shortages, status.gate)
        yield from _labelled("short", [short] if short else [])
        yield f"  {'start':<9} {start(status.expected_start, now_s)}"
    if status.needed_nodes:
        needed = [f"{each.count} {each.shape}" for each in status.needed_nodes]
        yield f"  {'nodes':<9} {', '.join(needed)} more"
    yield from _labelled("places", _named(status, "placements", _placement))
    yield from _labelled("evicts", _named(status, "evictions", _key_of))
    yield from _labelled("starts", _named(status, "starting", _key_of))
    yield from _labelled("delays", _named(status, "delays", _delay))
    if status.drained_pods:
        yield f"  {'drained':<9} {_moved(status.drained_pods, status.unplaced_pods)}"
    yield from _labelled("loses", _named(status, "losing", _losing))
    if status.hidden:
        yield f"  and {status.hidden} in namespaces that you may not see"


def moves(status: WhatIfStatus) -> str:
    """Return the pods that would move, what that costs, and what would start."""
    cost = sum(max(0, move.cost) for move in status.moves)
    price = f"{plural(len(status.moves), 'move')}, cost {cost}"
    lines = [price if status.moves else "no move lets a waiting job start"]
    lines += _labelled("moves", _named(status, "moves", _move))
    lines += _labelled("starts", _named(status, "starting", _key_of))
    if status.hidden:
        lines.append(f"  and {status.hidden} in namespaces that you may not see")
    return "".join(f"{line}\n" for line in lines)


def _move(move: MovedPod) -> str:
    cost = f", cost {move.cost}" if move.cost else ""
    claimant = f" for {_key_of(move.starts)}" if move.starts is not None else ""
    return f"{move.namespace}/{move.name} from {move.node} to {move.to or '-'}{claimant}{cost}"


def _moved(pods: int, unplaced: int) -> str:
    """Return what becomes of the pods of drained nodes."""
    moves = "1 pod moves" if pods == 1 else f"{pods} pods move"
    if not unplaced:
        return f"{moves}; {'it finds a place' if pods == 1 else 'all find a place'}"
    if unplaced == pods:
        return f"{moves}; {'it finds no place' if pods == 1 else 'none finds a place'}"
    return f"{moves}; {unplaced} find{'s' if unplaced == 1 else ''} no place"


def _named(status: WhatIfStatus, name: str, render: Callable[[Any], str]) -> Sequence[str]:
    """Return a list of the result as lines, with a last one that counts the entries left out."""
    more = status.remaining.get(name)
    return [*map(render, getattr(status, name)), *([f"and {more} more"] if more else [])]


def _placement(placed: TaskPlacement) -> str:
    return f"{placed.pods} of {placed.task} on {placed.node}"


def _key_of(named: EvictedPod | ObjectRef) -> str:
    return f"{named.namespace}/{named.name}"


def _delay(delay: Delay) -> str:
    by = "not known by how much" if delay.seconds is None else f"by {span(delay.seconds)}"
    return f"{_key_of(delay.job)} {by}"


def _losing(job: LosingJob) -> str:
    text = f"{_key_of(job.job)} {plural(job.pods, 'pod')}"
    return f"{text}, fewer are left than it needs" if job.stops else text


def _labelled(label: str, words: Sequence[str]) -> Iterable[str]:
    for at, each in enumerate(words):
        yield f"  {label if not at else '':<9} {each}"
