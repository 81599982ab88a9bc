"""The table of a run in docs/integrations/README.md."""

from collections.abc import Sequence
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


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table: a row for each kind, a column for each scenario."""
    scenarios = list(dict.fromkeys(each.scenario for each in results))
    lines = [
        f"| operator | kind | {' | '.join(scenarios)} | not checked |",
        f"|{'---|' * (len(scenarios) + 3)}",
    ]
    for operator, kind in dict.fromkeys((each.operator, each.kind) for each in results):
        found = {
            each.scenario: "failed" if each.error else "passed"
            for each in results
            if (each.operator, each.kind) == (operator, kind)
        }
        cells = [found.get(scenario, "-") for scenario in scenarios]
        [limits] = [each.limits for each in WORKLOADS if each.kind == kind]
        lines.append(f"| {operator} | {kind} | {' | '.join(cells)} | {limits} |")
    return "\n".join(lines)


def write(results: Sequence[Result]) -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", "utf-8")
