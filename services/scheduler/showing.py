"""A plan and its explanation as text for a person."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from services.scheduler.dump import Dump
from services.scheduler.engine.plan import Explanation, Plan, Shortage
from services.scheduler.engine.resources.dimensions import quantity

_INDENT = "  "


def show(dump: Dump, plan: Plan, unlike: Sequence[str]) -> str:
    """Return the output of a replay: cycle, plan, waiting jobs, and how the plan compares."""
    lines = [_title(dump), *_decisions(plan), *_waiting(plan.explanations), _verdict(unlike)]
    return "\n".join(lines) + "\n"


def _title(dump: Dump) -> str:
    header = dump.header
    kinds = Counter(fact.kind for fact in dump.facts)
    when = datetime.fromtimestamp(header.now, tz=UTC).isoformat(timespec="milliseconds")
    counts = ", ".join(
        f"{kinds[token]} {name}"
        for token, name in (("nodes", "nodes"), ("pods", "pods"), ("podgroups", "PodGroups"))
    )
    return (
        f"Cycle {header.cycle} of {header.instance} at {when} "
        f"(Pumice {header.pumice}): {counts}, actions {', '.join(header.config.actions)}"
    )


def _decisions(plan: Plan) -> Iterator[str]:
    yield ""
    yield "Decided"
    if plan.is_empty:
        yield f"{_INDENT}nothing: all is as it should be, or waits"
    for gang in plan.binds:
        yield f"{_INDENT}bind {len(gang.binds)} of {gang.job} (queue {gang.queue})"
        yield from _table([[bind.pod, "→", bind.node] for bind in gang.binds], indent=2)
    for eviction in plan.evictions:
        taker = f" for {eviction.preemptor}" if eviction.preemptor else ""
        yield f"{_INDENT}evict {eviction.pod} from {eviction.node}{taker} ({eviction.reason})"
    for nomination in plan.nominations:
        yield f"{_INDENT}nominate {nomination.pod} for {nomination.node}"
    for group in plan.podgroups:
        yield f"{_INDENT}PodGroup {group.key}: {group.phase}"
        for condition in group.conditions:
            yield f"{_INDENT * 2}{condition.type}={condition.status} {condition.reason}"
    for pod in plan.pods:
        yield f"{_INDENT}pod {pod.key}: {pod.condition.reason}: {pod.condition.message}"
    for queue in plan.queues:
        amounts = ", ".join(f"{name} {amount}" for name, amount in queue.allocated.items())
        yield f"{_INDENT}queue {queue.name}: allocated {amounts}"


def _waiting(explanations: Sequence[Explanation]) -> Iterator[str]:
    if not explanations:
        return
    yield ""
    yield "Waiting"
    ordered = sorted(explanations, key=lambda e: (e.queue, e.position or len(explanations), e.job))
    rows = [["QUEUE", "PLACE", "JOB", "GATE", "WHY"]]
    rows += [[e.queue, str(e.position or "-"), e.job, e.gate, e.message] for e in ordered]
    heads = list(_table(rows, indent=1))
    yield heads[0]
    for head, explanation in zip(heads[1:], ordered, strict=True):
        yield head
        for reason, count in sorted(explanation.reasons.items(), key=lambda r: (-r[1], r[0])):
            yield f"{_INDENT * 3}{count} of {explanation.nodes} nodes: {reason}"
        for shortage in explanation.shortages:
            yield f"{_INDENT * 3}{_short(shortage)}"


def _short(shortage: Shortage) -> str:
    wanted, free = (
        quantity(shortage.resource, amount)
        for amount in (shortage.requested, shortage.largest_free)
    )
    return f"short of {shortage.resource}: a task asks for {wanted}, no node has more than {free}"


def _verdict(unlike: Sequence[str]) -> str:
    if not unlike:
        return "\nThis is the plan that was recorded."
    return f"\nThis is NOT the plan that was recorded; it differs in: {', '.join(unlike)}."


def _table(rows: Sequence[Sequence[str]], *, indent: int) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield _INDENT * indent + "  ".join(cells).rstrip()
