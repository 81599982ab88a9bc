"""The page of frameworks: its table is that of a run of the check, of all kinds."""

import re

from tools.frameworks_check import report
from tools.frameworks_check.operators import manifest
from tools.frameworks_check.report import PAGE, Result
from tools.frameworks_check.scenarios import of
from tools.frameworks_check.workloads import EXAMPLES, WORKLOADS


def test_the_table_has_a_row_for_each_kind_and_a_result_for_each_of_its_scenarios() -> None:
    rows = {
        kind: [cell.strip() for cell in row.split("|")]
        for kind, row in report.rows_of(PAGE.read_text("utf-8")).items()
    }

    assert set(rows) == {workload.title for workload in WORKLOADS}
    for workload in WORKLOADS:
        results = [cell for cell in rows[workload.title] if cell in {"passed", "failed"}]
        assert len(results) == len(of(workload))


def test_a_guide_names_each_example() -> None:
    texts = "".join(page.read_text("utf-8") for page in PAGE.parent.glob("*.md"))

    named = set(re.findall(r"`(?:examples/frameworks/)?([a-z0-9-]+\.yaml)`", texts))
    assert {path.name for path in EXAMPLES.glob("*.yaml")} - {"queue.yaml"} <= named


def test_a_table_keeps_the_rows_of_kinds_that_were_not_checked() -> None:
    results = [
        Result(operator="KubeRay 1", kind="RayCluster", scenario="runs"),
        Result(operator="KubeRay 1", kind="RayCluster", scenario="scales", error="not in time"),
    ]

    head, _, first, second = report.table(results, {"JobSet": "| a | JobSet |"}).splitlines()

    assert head.startswith("| operator | kind | runs | waits whole |")
    assert first == "| KubeRay 1 | RayCluster | passed | - | - | failed | - | - | - |  |"
    assert second == "| a | JobSet |"


def test_a_name_replaces_the_word_of_an_example_but_not_its_images() -> None:
    group, service, manager, workers = manifest(EXAMPLES / "flink.yaml", "flink", "one")

    names = [each["metadata"]["name"] for each in (group, service, manager, workers)]
    assert names == ["one", "one", "one-jobmanager", "one-taskmanager"]
    template = workers["spec"]["template"]
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "one"}
    assert template["spec"]["containers"][0]["image"].startswith("flink:")
