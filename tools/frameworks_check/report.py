"""The table of a run in docs/integrations/README.md."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tools.frameworks_check.workloads import ROOT, WORKLOADS

PAGE: Final = ROOT / "docs" / "integrations" / "README.md"
BEGIN: Final = "<!-- begin table: made by `make frameworks-check RECORD=1` -->"
END: Final = "<!-- end table -->"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How one scenario went."""

    operator: str
    kind: str
    scenario: str
    error: str = ""

    def line(self) -> str:
        """Return it as a line."""
        return f"{self.operator}: {self.kind}: {self.scenario}: {self.error or 'passed'}"


COLUMNS: Final = (
    "runs", "waits whole", "priority", "scales", "suspends", "restarts", "deletion"
)  # fmt: skip


def table(results: Sequence[Result], before: Mapping[str, str]) -> str:
    """Return the results as a Markdown table: a row for each kind, a column for each scenario.

    `before` has the rows of an earlier table by kind; those of other kinds stay.
    """
    rows = dict(before)
    for operator, kind in dict.fromkeys((each.operator, each.kind) for each in results):
        found = {
            each.scenario: "failed" if each.error else "passed"
            for each in results
            if (each.operator, each.kind) == (operator, kind)
        }
        cells = [found.get(scenario, "-") for scenario in COLUMNS]
        [limits] = [each.limits for each in WORKLOADS if each.title == kind]
        rows[kind] = f"| {operator} | {kind} | {' | '.join(cells)} | {limits} |"
    order = [each.title for each in WORKLOADS if each.title in rows]
    head = f"| operator | kind | {' | '.join(COLUMNS)} | not checked |"
    return "\n".join([head, f"|{'---|' * (len(COLUMNS) + 3)}", *(rows[kind] for kind in order)])


def rows_of(page: str) -> dict[str, str]:
    """Return the rows of the table of a page by kind."""
    _, _, rest = page.partition(BEGIN)
    lines = rest.partition(END)[0].strip().splitlines()[2:]
    return {line.split("|")[2].strip(): line for line in lines}


def write(results: Sequence[Result]) -> None:
    """Write the results into the table of the page."""
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = table(results, rows_of(page))
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
