"""Writes tables of pages from the code that they describe (`make crds`).

The extension points in `docs/plugins.md` are the rows of `pumice.plugins.points`. The metrics in
`docs/observing.md` are those that the services make. Tests compare the pages with what is drawn
here.

A metric is a call that begins with its name and what it says, both as text: it is found by reading
the source, since making every metric would mean to start every service.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pumice.plugins.points import POINTS, AnyPoint
from tools.write_flags import filled, plain

ROOT: Final = Path(__file__).parents[1]
PLUGINS_PAGE: Final = ROOT / "docs" / "plugins.md"
METRICS_PAGE: Final = ROOT / "docs" / "observing.md"
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
_POINTS_HEAD: Final = (
    "| method of `hooks` | Volcano's name, flag | returns | several plugins | if it fails |\n"
    "|---|---|---|---|---|\n"
)


def points() -> str:
    """Return the table of extension points."""
    return _POINTS_HEAD + "".join(_point(name, point) for name, point in POINTS.items())


def _point(name: str, point: AnyPoint) -> str:
    flag = f"`{point.flag}`" if point.flag else "none" if point.volcano else ""
    of_volcano = ", ".join(part for part in (point.volcano, flag) if part)
    rule = (inspect.getdoc(point.together) or "").partition("\n")[0].rstrip(".")
    rule = rule[:1].lower() + rule[1:]
    return f"| `{name}` | {of_volcano} | {point.about} | {rule} | {point.failing} |\n"


def with_points(page: str) -> str:
    """Return the page of plugins with the present table in place of the one that it has."""
    before, _, rest = page.partition(_POINTS_HEAD)
    rows = rest.splitlines(keepends=True)
    after = next(at for at, line in enumerate(rows) if not line.startswith("|"))
    return before + points() + "".join(rows[after:])


class Metric(NamedTuple):
    """A row of the table."""

    name: str
    kind: str
    says: str
    labels: tuple[str, ...]


def with_metrics(page: str) -> str:
    """Return the page of observing with a fresh table. Raises ValueError when a mark is missing."""
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
        yield Metric(f"{name}{total}", _MAKERS[maker], plain(says), _labels(call))


def _labels(call: ast.Call) -> tuple[str, ...]:
    """Return the labels of a metric; those that a variable holds are not seen."""
    given = [*call.args[2:3], *(word.value for word in call.keywords if word.arg == "labels")]
    return tuple(
        _text(label)
        for labels in given
        if isinstance(labels, ast.List | ast.Tuple)
        for label in labels.elts
    )


def _text(node: ast.expr) -> str:
    """Return a literal text; what an f-string fills in is shown as `<name>`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return f"<{ast.unparse(node.value)}>" if isinstance(node, ast.FormattedValue) else ""


def main() -> None:
    """Write the pages."""
    for page, filled_in in ((PLUGINS_PAGE, with_points), (METRICS_PAGE, with_metrics)):
        page.write_text(filled_in(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
