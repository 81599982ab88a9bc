"""The report as one HTML page that needs nothing else, and as lines for a terminal. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import msgspec

from benchmarks.report import svg
from benchmarks.report.record import (
    STAGES,
    Ratio,
    Record,
    compare,
    cpu_share,
    latencies,
    memory,
    spread,
    throughput,
)

_NOTABLE: Final = 1.1
"""A ratio that far from 1, either way, is marked."""
_KINDS: Final = 20
_TIMES: Final = "-fold"
STYLE: Final = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 0.15em 0.8em; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr:nth-child(even) { background: #8881; }
.more { color: #d62728; } .less { color: #2ca02c; }
"""


def page(now: Record, before: Record | None = None, *, against: str = "") -> str:
    """Return the page of a run; with `before`, the run stored in `against`, the comparison too."""
    parts = [f"<h1>{escape(now.load)}</h1>", _summary(now)]
    if before is not None:
        parts += [f"<h2>Against {escape(against)}</h2>"]
        parts += ["" if before.load == now.load else f"<p>Another load: {escape(before.load)}</p>"]
        rows = map(_ratio_row, compare(now, before))
        parts += [table(("figure", "now", "before", "ratio"), rows)]
    seen = {stage: throughput(now.seen_s.get(stage, {}).values()) for stage in STAGES}
    parts += ["<h2>Throughput over time</h2>", svg.lines(seen, across="s", up="pods")]
    parts += ["<h2>Latency per stage</h2>", _latency(now)]
    busy = {name: cpu_share(samples) for name, samples in now.processes.items()}
    parts += ["<h2>CPU per process</h2>", svg.lines(busy, across="s", up="processors")]
    held = {name: memory(samples) for name, samples in now.processes.items()}
    parts += ["<h2>Memory per process</h2>", svg.lines(held, across="s", up="MiB")]
    kinds = dict(list(now.requests.items())[:_KINDS])
    parts += ["<h2>Requests by kind</h2>", svg.bars(kinds, unit="")]
    head = f'<meta charset="utf-8"><title>{escape(now.load)}</title><style>{STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'
    )


def _summary(record: Record) -> str:
    ends = [
        f"all {stage} after {max(record.seen_s[stage].values()):.1f} s"
        for stage in STAGES
        if record.seen_s.get(stage)
    ]
    floor = [f"floor {record.floor_s:.1f} s"] if record.floor_s else []
    return f"<p>{escape('; '.join([*ends, *floor]))}</p>"


def _latency(record: Record) -> str:
    """Return the table of quantiles, and each step's latencies as a line over the share of pods."""
    steps = {name: values for name, values in latencies(record).items() if values}
    rows = []
    for name, values in steps.items():
        rows.append((name, *(f"{each:.2f}" for each in msgspec.structs.astuple(spread(values)))))
    curves = {
        name: [(100.0 * rank / len(values), value) for rank, value in enumerate(values, start=1)]
        for name, values in steps.items()
    }
    head = ("step", "p50 s", "p90 s", "p99 s", "most s")
    return table(head, rows) + svg.lines(curves, across="% of pods", up="s")


def _ratio_row(each: Ratio) -> tuple[str, ...]:
    ratio = each.ratio
    words = "" if ratio is None else f"{ratio:.2f}{_TIMES}"
    return (each.figure, svg.shown(each.now), svg.shown(each.before), words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a last cell that is a ratio is marked."""
    top = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _cells(row: Sequence[str]) -> str:
    *cells, last = row
    mark = _mark(last)
    return "".join(f"<td>{escape(cell)}</td>" for cell in cells) + f"<td{mark}>{escape(last)}</td>"


def _mark(word: str) -> str:
    """Return how a ratio is marked: more than before, less, or about the same."""
    if not word.endswith(_TIMES):
        return ""
    ratio = float(word.removesuffix(_TIMES))
    if ratio >= _NOTABLE:
        return ' class="more"'
    return ' class="less"' if ratio <= 1 / _NOTABLE else ""


def notable(now: Record, before: Record) -> list[str]:
    """Return a line for each figure that has become notably more or less, but for rare requests."""
    found = []
    for each in compare(now, before):
        ratio = each.ratio
        is_rare = each.figure.startswith("requests:") and max(each.now, each.before) < now.pods / 10
        if ratio is None or is_rare or 1 / _NOTABLE < ratio < _NOTABLE:
            continue
        found.append(
            f"{each.figure}: {svg.shown(each.now)}, was {svg.shown(each.before)}, ratio {ratio:.2f}"
        )
    return found
