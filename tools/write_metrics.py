"""Writes the table of metrics in `docs/observing.md` from the code that makes them (`make crds`).

A metric is a call that begins with its name and what it says, both as text: it is found by reading
the source, since making every metric would mean to start every service.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.write_flags import filled, plain

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "observing.md"
_MAKERS: Final = {
    "counter": "counter",
    "gauge": "gauge",
    "histogram": "histogram",
    "named_counts": "untyped",
    "UntypedMetricFamily": "untyped",
    "GaugeMetricFamily": "gauge",
    "CounterMetricFamily": "counter",
}
"""Functions that make a metric → its type."""
_WORTH_PARSING: Final = re.compile('"(?:pumice|volcano)_')


class Metric(NamedTuple):
    """A row of the table."""

    name: str
    kind: str
    says: str


def render(page: str) -> str:
    """Return the page with a fresh table. Raises ValueError when a mark is missing."""
    rows = [f"| `{m.name}` | {m.kind} | {m.says} |" for m in sorted(set(metrics()))]
    return filled(page, "metrics", ["| metric | type | says |", "|---|---|---|", *rows])


def metrics() -> Iterator[Metric]:
    """Yield the metrics of all services."""
    for folder in ("services", "shared"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            if not _WORTH_PARSING.search(source):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and len(node.args) > 1:
                    yield from _made_by(node)


def _made_by(call: ast.Call) -> Iterator[Metric]:
    maker = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    name, says = (_text(argument) for argument in call.args[:2])
    if maker in _MAKERS and name.startswith(("pumice_", "volcano_")):
        total = "_total" if _MAKERS[maker] == "counter" else ""  # as the library names them
        yield Metric(f"{name}{total}", _MAKERS[maker], plain(says))


def _text(node: ast.expr) -> str:
    """Return a literal text; what an f-string fills in is shown as `<name>`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return f"<{ast.unparse(node.value)}>" if isinstance(node, ast.FormattedValue) else ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
