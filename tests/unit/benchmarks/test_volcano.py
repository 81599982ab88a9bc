"""The comparison with Volcano: what its profiles ask for, and the table that is drawn."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.report.record import Record, Sample
from benchmarks.volcano.cases import Case, our_cases, volcano_cases
from benchmarks.volcano.page import SERVER, Circumstances, head, page, rows
from benchmarks.volcano.play import Result, next_bind_s

CONF = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
"""
PROFILES = {
    "gang/config/scheduler-config.yaml": """
data:
  volcano-scheduler.conf: |
    actions: "allocate"
    tiers:
    - plugins:
      - name: gang
""",
    "gang/config/queue.yaml": "{kind: Queue, metadata: {name: of-benchmark}}",
    "gang/cases/case-template.yaml": """
jobs: ${JOBS}
jobTemplate:
  name: equal
  minAvailable: ${MIN_AVAILABLE}
  tasks: [{name: w, replicas: ${REPLICAS}, cpu: "1", memory: 1Gi}]
""",
    "gang/cases/comprehensive.yaml": """
jobs: 2
jobTemplate:
  name: mixed
  minAvailable: 3
  tasks:
  - {name: m, replicas: 1, cpu: 100m, memory: 1Mi}
  - {name: w, replicas: 4, cpu: 50m, memory: 1Mi}
""",
    "gang/cases/net-topo.yaml": """
jobs: 1
jobTemplate:
  name: near
  minAvailable: 2
  enableNetworkTopology: true
  networkTopologyMode: hard
  networkTopologyHighestTier: 2
  tasks:
  - name: w
    replicas: 2
    cpu: "1"
    memory: 1Gi
    enableNodeSelector: true
    nodeSelector: {type: kwok}
""",
    "pod/cases/case-template.yaml": """
pods: ${PODS}
podTemplate: {name: bare, schedulerName: ${SCHEDULER_NAME}, cpu: "1", memory: 1Gi}
""",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the files of a checkout that the cases are read from."""
    for name, text in PROFILES.items():
        file = tmp_path / "benchmark" / "testcases" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    conf = tmp_path / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(CONF)
    return tmp_path


def test_profiles_of_gangs_become_jobs_of_their_size(checkout: Path) -> None:
    cases = {case.name: case for case in volcano_cases(checkout)}
    assert [(name, case.load.pods, len(case.load.objects)) for name, case in cases.items()] == [
        ("gang", 1000, 10),
        ("comprehensive", 10, 2),
        ("net-topo", 2, 1),
        ("pod", 500, 500),
    ]
    near = cases["net-topo"].load.objects[0]["spec"]
    assert near["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert near["tasks"][0]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert cases["comprehensive"].load.objects[1]["spec"]["minAvailable"] == 3
    assert cases["pod"].load.objects[0]["spec"]["schedulerName"] == "volcano"


def test_the_case_of_topology_has_racks_and_the_plugin_for_them(checkout: Path) -> None:
    near = {case.name: case for case in volcano_cases(checkout)}["net-topo"]
    nodes = {name for shape in near.nodes for name in shape.names()}
    assert {name for each in near.hyper_nodes for name in each.nodes} == nodes
    assert "network-topology-aware" in near.conf


def test_our_loads_fit_on_their_nodes(checkout: Path) -> None:
    for case in our_cases(checkout):
        room = sum(shape.count * int(shape.cpu) for shape in case.nodes)
        assert case.load.pods <= room, case.name
        names = [body["metadata"]["name"] for body in case.load.objects]
        assert len(set(names)) == len(names), case.name


def record(running_s: float, *, pods: int = 2) -> Record:
    names = ["a-w-0", "a-w-1"]
    return Record(
        load="a",
        pods=pods,
        submitted_s={"a": 0.0},
        seen_s={
            "created": dict.fromkeys(names, 0.5),
            "bound": dict.fromkeys(names, running_s - 1),
            "running": dict.fromkeys(names, running_s),
        },
        job_of=dict.fromkeys(names, "a"),
        processes={
            "scheduler": [Sample(0.0, 0.0, 10.0), Sample(2.0, running_s, 20.0)],
            SERVER: [Sample(0.0, 1.0, 100.0), Sample(2.0, 3.0, 100.0)],
        },
        requests={"POST pods": 2.0},
    )


def results(*times: tuple[str, int, float], pods: int = 2) -> list[Result]:
    return [
        Result(case="gang", system=system, round=number, record=record(running_s, pods=pods))
        for system, number, running_s in times
    ]


def test_a_ratio_is_the_median_of_the_ratios_within_the_rounds() -> None:
    played = results(
        *(("Volcano", 1, 10.0), ("Volcano", 2, 20.0), ("Volcano", 3, 40.0)),
        *(("Pumice", 1, 8.0), ("Pumice", 2, 4.0), ("Pumice", 3, 20.0)),
    )
    table = {row[0]: row[1:] for row in rows(played)}
    assert head(played) == ("figure", "Volcano", "Pumice", "Pumice / Volcano")
    assert table["s until all running"] == ("20", "8", "0.50")
    assert table["CPU s of its processes"] == ("20", "8", "0.50")
    assert table["CPU s of kube-apiserver"] == ("2", "2", "1")


def test_a_play_that_met_its_deadline_has_no_end_and_says_so() -> None:
    played = results(("Volcano", 1, 10.0), pods=3) + results(("Pumice", 1, 5.0))
    table = {row[0]: row[1:] for row in rows(played)}
    assert table["s until all running"] == ("-", "5", "-")
    assert table["round 1"] == ("2 of 3 pods ran before the deadline", "", "")


def test_the_next_bind_is_one_of_a_job_that_was_posted_after_the_kill() -> None:
    seen = msgspec.structs.replace(
        record(3.0),
        submitted_s={"a": 0.0, "b": 1.0},
        job_of={"a-w-0": "a", "b-w-0": "b"},
        seen_s={"created": {}, "bound": {"a-w-0": 0.9, "b-w-0": 2.5}, "running": {}},
    )
    assert next_bind_s(seen, 0.5) == 2.0
    assert next_bind_s(seen, 2.0) is None


def test_the_page_names_machine_versions_and_command(checkout: Path) -> None:
    cases: list[Case] = volcano_cases(checkout)
    where = Circumstances(
        machine="2 cores",
        versions={"Volcano": "abc"},
        date="2026-01-01",
        command="python -m benchmarks.volcano <folder>",
        webhooks=True,
    )
    text = page(cases, {"gang": results(("Volcano", 1, 2.0), ("Pumice", 1, 1.0))}, where)
    for words in ("2 cores", "Volcano abc", "with webhooks", "&lt;folder&gt;", "CPU per process"):
        assert words in text
