"""The page of frameworks: its table is that of a run of the check, of all kinds."""

import re

from tools.frameworks_check import report
from tools.frameworks_check.report import BEGIN, END, PAGE, Result
from tools.frameworks_check.scenarios import of
from tools.frameworks_check.workloads import EXAMPLES, WORKLOADS


def recorded() -> dict[str, list[str]]:
    """Return the cells of the table by kind."""
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    lines = rest.partition(END)[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[1]: row for row in rows}


def test_the_table_has_a_row_for_each_kind_and_a_result_for_each_of_its_scenarios() -> None:
    rows = recorded()

    assert set(rows) == {workload.kind for workload in WORKLOADS}
    for workload in WORKLOADS:
        results = [cell for cell in rows[workload.kind] if cell in {"passed", "failed"}]
        assert len(results) == len(of(workload))


def test_a_guide_names_each_example() -> None:
    texts = "".join(page.read_text("utf-8") for page in PAGE.parent.glob("*.md"))

    named = set(re.findall(r"`(?:examples/frameworks/)?([a-z]+\.yaml)`", texts))
    assert {path.name for path in EXAMPLES.glob("*.yaml")} - {"queue.yaml"} <= named


def test_a_table_has_a_row_for_each_kind_and_a_column_for_each_scenario() -> None:
    [kind] = [each for each in WORKLOADS if each.kind == "RayCluster"]
    results = [
        Result(operator="KubeRay 1", kind=kind.kind, scenario="runs"),
        Result(operator="KubeRay 1", kind=kind.kind, scenario="scales", error="not within 60 s"),
    ]

    assert report.table(results).splitlines() == [
        "| operator | kind | runs | scales | not checked |",
        "|---|---|---|---|---|",
        "| KubeRay 1 | RayCluster | passed | failed |  |",
    ]
