"""The report of a benchmark: figures of a record, their ratios, its charts and its page."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from benchmarks.report import svg
from benchmarks.report.files import load, store
from benchmarks.report.page import notable, page
from benchmarks.report.record import (
    Record,
    Sample,
    compare,
    cpu_share,
    difference,
    figures,
    latencies,
    spread,
    throughput,
)

PODS = [f"gang-0-w-{n}" for n in range(4)]
RECORD = Record(
    load="3 nodes, 1 gangs of 4",
    pods=4,
    floor_s=1.0,
    submitted_s={"gang-0": 0.5},
    seen_s={
        "created": dict.fromkeys(PODS, 1.0),
        "bound": {pod: 1.0 + n for n, pod in enumerate(PODS)},
        "running": {pod: 2.0 + n for n, pod in enumerate(PODS)},
    },
    job_of=dict.fromkeys(PODS, "gang-0"),
    processes={"binder": [Sample(0.0, 1.0, 50.0), Sample(2.0, 2.0, 60.0), Sample(4.0, 2.5, 55.0)]},
    requests={"POST pods": 4.0, "PATCH jobs/status": 2.0},
)


def changed(**fields) -> Record:
    return msgspec.structs.replace(RECORD, **fields)


def test_latencies_are_told_per_step_and_pod() -> None:
    steps = latencies(RECORD)
    assert steps["POST to created"] == [0.5, 0.5, 0.5, 0.5]
    assert steps["created to bound"] == [0.0, 1.0, 2.0, 3.0]
    assert steps["bound to running"] == [1.0, 1.0, 1.0, 1.0]
    assert steps["POST to running"] == [1.5, 2.5, 3.5, 4.5]


def test_a_spread_holds_the_quantiles() -> None:
    found = spread([float(n) for n in range(100)])
    assert (found.p50, found.p90, found.p99, found.most) == (50.0, 90.0, 99.0, 99.0)
    assert spread([7.0]).p50 == 7.0


def test_throughput_counts_up_over_time() -> None:
    assert throughput([3.0, 1.0]) == [(0.0, 0.0), (1.0, 1.0), (3.0, 2.0)]


def test_the_share_of_a_processor_is_that_between_two_samples() -> None:
    assert cpu_share(RECORD.processes["binder"]) == [(2.0, 0.5), (4.0, 0.25)]
    assert cpu_share([Sample(1.0, 1.0, 1.0)]) == []


def test_requests_are_the_growth_of_the_counters() -> None:
    before = {"GET pods": 5.0, "POST pods": 1.0}
    after = {"GET pods": 5.0, "POST pods": 4.0, "PATCH jobs": 9.0}
    assert list(difference(before, after).items()) == [("PATCH jobs", 9.0), ("POST pods", 3.0)]


def test_the_figures_of_a_run() -> None:
    found = figures(RECORD)
    assert found["s until all bound"] == 4.0
    assert found["s until all running"] == 5.0
    assert found["bound, as a multiple of the floor"] == 4.0
    assert found["created to bound, p50 s"] == 1.5
    assert (found["binder: CPU s"], found["binder: most MiB"]) == (1.5, 60.0)
    assert found["requests: all"] == 6.0


def test_two_runs_are_compared_by_ratio_figure_by_figure() -> None:
    before = changed(requests={"POST pods": 8.0, "GET pods": 3.0})
    ratios = {each.figure: each for each in compare(RECORD, before)}
    assert ratios["requests: POST pods"].ratio == 0.5
    assert ratios["requests: GET pods"].now == 0.0
    assert ratios["requests: PATCH jobs/status"].ratio is None
    assert ratios["s until all bound"].ratio == 1.0


def test_what_has_become_notably_more_or_less_is_told() -> None:
    before = changed(floor_s=2.0, requests={"POST pods": 4.0, "PATCH jobs/status": 1.9})
    assert notable(RECORD, before) == ["bound, as a multiple of the floor: 4, was 2, ratio 2.00"]
    assert notable(RECORD, RECORD) == []


@pytest.mark.parametrize(("value", "end"), [(0.0, 1.0), (0.7, 1.0), (1.1, 2.0), (230.0, 250.0)])
def test_an_axis_ends_at_a_round_number(value: float, end: float) -> None:
    assert svg.nice(value) == end


def test_a_long_line_keeps_its_first_and_last_point() -> None:
    points = [(float(n), 0.0) for n in range(1001)]
    kept = svg.thinned(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert len(kept) <= 402
    assert svg.thinned([]) == []


def test_charts_are_well_formed_and_hold_each_series() -> None:
    chart = ET.fromstring(svg.lines({"a<b": [(0.0, 0.0), (2.0, 4.0)]}, across="s", up="pods"))
    (line,) = chart.iter("polyline")
    assert line.get("points") == f"64.0,{svg.HEIGHT - 34:.1f} 590.0,{12 + (260 - 46) / 5:.1f}"
    assert "a<b" in {text.text for text in chart.iter("text")}
    bars = ET.fromstring(svg.bars({"GET pods": 2.0, "POST pods": 4.0}, unit=""))
    short, long = (float(each.get("width", "")) for each in bars.iter("rect"))
    assert long == 2 * short


def test_the_page_needs_nothing_from_outside() -> None:
    text = page(RECORD, changed(floor_s=2.0), against="last.json")
    assert text.count("<svg") == 5
    assert '<td class="more">2.00-fold</td>' in text
    assert "http://" not in text
    assert "src=" not in text
    assert "Against last.json" in text
    assert "Against" not in page(RECORD)


def test_a_run_is_stored_drawn_and_compared_with_the_stored_one(tmp_path: Path) -> None:
    first = store(RECORD, tmp_path / "first")
    assert first[0].endswith("3-nodes-1-gangs-of-4.json")
    stored = tmp_path / "first" / "3-nodes-1-gangs-of-4.json"
    assert load(stored, "") == RECORD
    slower = changed(floor_s=0.5)
    second = store(slower, tmp_path / "second", tmp_path / "first")
    assert second[-1] == "  bound, as a multiple of the floor: 8, was 4, ratio 2.00"
    drawn = (tmp_path / "second" / "3-nodes-1-gangs-of-4.html").read_text()
    assert f"Against {tmp_path / 'first'}" in drawn
