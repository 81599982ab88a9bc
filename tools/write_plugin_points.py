"""Writes the table of extension points into docs/plugins.md (`make crds`).

The rows are those of `pumice.plugins.points`; a test compares the page with what is drawn here.
"""

import inspect
from pathlib import Path
from typing import Final

from pumice.plugins.points import POINTS, AnyPoint

PAGE: Final = Path(__file__).parent.parent / "docs" / "plugins.md"
_HEAD: Final = (
    "| method of `hooks` | Volcano's name, flag | is asked | answers of several plugins "
    "| instead of a failure |\n|---|---|---|---|---|\n"
)


def table() -> str:
    """Return the table."""
    return _HEAD + "".join(_row(name, point) for name, point in POINTS.items())


def _row(name: str, point: AnyPoint) -> str:
    flag = f"`{point.flag}`" if point.flag else "none" if point.volcano else ""
    of_volcano = ", ".join(part for part in (point.volcano, flag) if part)
    rule = (inspect.getdoc(point.together) or "").partition("\n")[0].rstrip(".")
    rule = rule[:1].lower() + rule[1:]
    return f"| `{name}` | {of_volcano} | {point.about} | {rule} | {point.failing} |\n"


def render(page: str) -> str:
    """Return the page with the present table in place of the one that it has."""
    before, _, rest = page.partition(_HEAD)
    rows = rest.splitlines(keepends=True)
    after = next(at for at, line in enumerate(rows) if not line.startswith("|"))
    return before + table() + "".join(rows[after:])


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(PAGE.read_text()))


if __name__ == "__main__":
    main()
