"""The comparison as one HTML page that needs nothing else, and as lines of a Markdown table. Pure.

A ratio is the median over the rounds of (a system's figure / Volcano's figure in the same round).
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from benchmarks.report import svg
from benchmarks.report.page import STYLE, table
from benchmarks.report.record import Record, cpu_s, latencies, peak_mib, spread, throughput
from benchmarks.volcano.cases import Case
from benchmarks.volcano.play import Result

VOLCANO: Final = "Volcano"
SERVER: Final = "kube-apiserver"
_KINDS: Final = 12


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Where, when and how the comparison was made."""

    machine: str
    versions: Mapping[str, str]
    date: str
    command: str
    webhooks: bool


def figures(result: Result) -> dict[str, float]:
    """Return the figures of one play; one that was not reached by the deadline is left out."""
    record = result.record
    if result.next_bind_s is not None:
        return {"s from the kill to the next bind": result.next_bind_s}
    found = {}
    for stage in ("bound", "running"):
        seen = record.seen_s[stage]
        if len(seen) == record.pods:
            found[f"s until all {stage}"] = max(seen.values())
    steps = latencies(record)
    for step in ("created to bound", "POST to running"):
        if steps[step]:
            quantiles = spread(steps[step])
            found[f"{step}, p50 s"], found[f"{step}, p99 s"] = quantiles.p50, quantiles.p99
    own = {name: each for name, each in record.processes.items() if name != SERVER}
    found["CPU s of its processes"] = sum(map(cpu_s, own.values()))
    found[f"CPU s of {SERVER}"] = cpu_s(record.processes[SERVER])
    found["most MiB of its processes"] = sum(map(peak_mib, own.values()))
    found["requests"] = sum(record.requests.values())
    return found


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the rows of a case's table: a figure's median per system, then its ratios."""
    systems = _systems(results)
    by_round = {(each.system, each.round): figures(each) for each in results}
    names = dict.fromkeys(name for found in by_round.values() for name in found)
    found = []
    for name in names:
        medians = [_median(by_round, system, name) for system in systems]
        ratios = [_ratio(by_round, system, name) for system in systems if system != VOLCANO]
        found.append((name, *map(_shown, medians), *map(_shown, ratios)))
    late = [each for each in results if not each.record.is_complete]
    for each in late:
        running = len(each.record.seen_s["running"])
        words = f"{running:,} of {each.record.pods:,} pods ran before the deadline"
        cells = [words if system == each.system else "" for system in systems]
        found.append((f"round {each.round}", *cells, *([""] * (len(systems) - 1))))
    return found


def head(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the head of the table of `rows`."""
    systems = _systems(results)
    others = [system for system in systems if system != VOLCANO]
    return ("figure", *systems, *(f"{system} / {VOLCANO}" for system in others))


def markdown(case: Case, results: Sequence[Result]) -> list[str]:
    """Return the table of a case for a page of docs."""
    top = head(results)
    lines = [f"**{case.name}**: {case.about}", "", _line(top), _line(["---"] * len(top))]
    return [*lines, *map(_line, rows(results))]


def page(
    cases: Iterable[Case], results: Mapping[str, Sequence[Result]], where: Circumstances
) -> str:
    """Return the whole page; `results` are those of each case by its name."""
    title = "Volcano and Pumice under the same loads"
    versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    hooks = "with" if where.webhooks else "without"
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{escape(where.machine)}; {escape(versions)}; {escape(where.date)}.</p>",
        f"<p>Both systems run {hooks} webhooks.</p>",
        f"<p>Command: <code>{escape(where.command)}</code></p>",
    ]
    for case in cases:
        if played := results.get(case.name):
            parts += _section(case, played)
    style = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{style}</head><body>{"".join(parts)}</body></html>\n'
    )


def _section(case: Case, results: Sequence[Result]) -> list[str]:
    last = {each.system: each.record for each in results}
    parts = [f"<h2>{escape(case.name)}</h2><p>{escape(case.about)}</p>"]
    parts.append(table(head(results), rows(results)))
    for stage in ("bound", "running"):
        lines = {name: throughput(record.seen_s[stage].values()) for name, record in last.items()}
        parts += [f"<h3>Pods {stage} over time (last round)</h3>"]
        parts.append(svg.lines(lines, across="s", up="pods"))
    if case.kill_after_s is not None:
        return parts
    busy, held, asked = {}, {}, {}
    for name, record in last.items():
        for process, samples in record.processes.items():
            busy[f"{name}: {process}"] = cpu_s(samples)
            held[f"{name}: {process}"] = peak_mib(samples)
        asked |= _most(name, record)
    parts += ["<h3>CPU per process</h3>", svg.bars(busy, unit="s")]
    parts += ["<h3>Most memory per process</h3>", svg.bars(held, unit="MiB")]
    parts += ["<h3>Requests by kind</h3>", svg.bars(asked, unit="")]
    return parts


def _most(name: str, record: Record) -> dict[str, float]:
    return {f"{name}: {kind}": n for kind, n in list(record.requests.items())[:_KINDS]}


def _systems(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(each.system for each in results))


def _median(
    by_round: Mapping[tuple[str, int], Mapping[str, float]], system: str, name: str
) -> float | None:
    values = [found[name] for (of, _), found in by_round.items() if of == system and name in found]
    return statistics.median(values) if values else None


def _ratio(
    by_round: Mapping[tuple[str, int], Mapping[str, float]], system: str, name: str
) -> float | None:
    """Return the median of the rounds in which both have the figure; None where there is none."""
    ratios = [
        found[name] / volcano[name]
        for (of, number), found in by_round.items()
        if of == system and name in found
        if (volcano := by_round.get((VOLCANO, number), {})).get(name)
    ]
    return statistics.median(ratios) if ratios else None


def _shown(value: float | None) -> str:
    return "-" if value is None else svg.shown(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
