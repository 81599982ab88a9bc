"""`python -m services.scheduler replay DUMP`: a recorded cycle once more, offline.

Exit codes: 0 the same plan resulted, 1 another one (a line says where), 2 the dump cannot be used.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from services.scheduler.adapters.entry_points import load_plugins
from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.dump import BadDump, Dump, read
from services.scheduler.engine.plan import JobExplanation, Plan, Shortage
from services.scheduler.engine.resources.dimensions import readable
from services.scheduler.foreign import PluginFailure
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.catalog import ACTIONS, PLUGINS, Plugins
from services.scheduler.scheduler_state import SchedulerState
from shared.runtime.errors import Rejected

_SAME: Final = 0
_DIFFERS: Final = 1
_UNUSABLE: Final = 2
_ANY_SIZE: Final = sys.maxsize
_INDENT: Final = "  "


def main(argv: Sequence[str]) -> int:
    """Read the dump that the arguments name, decide again, print; return the exit code."""
    arguments = _arguments(argv)
    try:
        with Path(arguments.dump).open("rb") as file:
            dump = read(file)
        plan = replayed(dump, {**PLUGINS, **load_plugins(PLUGINS, note=_note)})
    except OSError as error:
        return _refuse(f"{arguments.dump}: {error.strerror or error}")
    except (BadDump, BadArgument, Rejected) as error:
        return _refuse(f"{arguments.dump}: {error}")
    unlike = differences(dump.plan, plan)
    if arguments.json:
        output = {"same": not unlike, "differs": unlike, "plan": plan}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(output), indent=2).decode() + "\n")
    else:
        sys.stdout.write(show(dump, plan, unlike))
    return _DIFFERS if unlike else _SAME


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m services.scheduler replay",
        description="Run a recorded scheduling cycle again and print its plan and explanation.",
    )
    parser.add_argument("dump", metavar="DUMP", help="file that a scheduler wrote on SIGUSR1")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser.parse_args(argv)


def _note(failure: PluginFailure) -> None:
    sys.stderr.write(f"plugin {failure.plugin} failed in {failure.point}: {failure.error}\n")


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return _UNUSABLE


def replayed(dump: Dump, plugins: Plugins = PLUGINS) -> Plan:
    """Return the plan that comes out now. Raises `BadDump` and `BadArgument`."""
    header = dump.header
    plugin_names = {option.name for tier in header.config.tiers for option in tier.plugins}
    missing = sorted(plugin_names - plugins.keys()) + sorted(
        set(header.config.actions) - ACTIONS.keys()
    )
    if missing:
        raise BadDump(f"the cycle was decided with what is not installed: {', '.join(missing)}")
    scheduler_state = SchedulerState(
        header.settings,
        gang_message=_ANY_SIZE,
        settle_s=0.0,
        plugins=plugins,
        evaluator=waiting_evaluator(),
    )
    try:
        scheduler_state.prepare_replay(header.memory)
    except msgspec.ValidationError as error:
        raise BadDump(f"the dump is cut off or damaged in the first line: {error}") from error
    scheduler_state.fold(dump.facts)
    scheduler_state.restore(header.memory, header.waiting_groups)
    return scheduler_state.decide(
        header.config, now=header.now, cycle=header.cycle, token=0
    ).full_plan


def differences(recorded: Plan, plan: Plan) -> list[str]:
    """Return the names of the plan's parts that are not as recorded."""
    return [
        name
        for name in Plan.__struct_fields__
        if _plain(getattr(recorded, name)) != _plain(getattr(plan, name))
    ]


def _plain(part: object) -> object:
    return msgspec.to_builtins(part)


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
        preemptor = f" for {eviction.preemptor}" if eviction.preemptor else ""
        yield f"{_INDENT}evict {eviction.pod} from {eviction.node}{preemptor} ({eviction.reason})"
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


def _waiting(explanations: Sequence[JobExplanation]) -> Iterator[str]:
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
    desired, free = (
        readable(shortage.resource, amount)
        for amount in (shortage.requested, shortage.largest_free)
    )
    return f"short of {shortage.resource}: a task asks for {desired}, no node has more than {free}"


def _verdict(unlike: Sequence[str]) -> str:
    if not unlike:
        return "\nThis is the plan that was recorded."
    return f"\nThis is NOT the plan that was recorded; it differs in: {', '.join(unlike)}."


def _table(rows: Sequence[Sequence[str]], *, indent: int) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield _INDENT * indent + "  ".join(cells).rstrip()
