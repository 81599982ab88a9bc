"""The benchmark of orders plays a trace: a gang that starves at best effort does not elsewhere."""

from pathlib import Path

import pytest

from benchmarks.engine import reservations


def trace(folder: Path) -> Path:
    """Small jobs that follow one another closely, and a gang of two nodes among them."""
    rows = [("small", 1, at * 3600, 8) for at in range(12)]
    rows.insert(3, ("large", 1, 2 * 3600 + 60, 16))
    file = folder / "small.trace"
    file.write_text("\n".join("\t".join(map(str, (m, "", "", 1, *r))) for m, *r in rows), "utf-8")
    return file


def test_the_jobs_of_a_trace_have_arrival_size_and_duration(tmp_path: Path) -> None:
    jobs = reservations.gavel(trace(tmp_path))
    assert jobs[3] == reservations.Job(at=7260, gpus=16, runs=3600)
    assert jobs[3].pods == 2


def test_a_line_per_order_tells_waits_and_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reservations.main([str(trace(tmp_path)), "--nodes", "2", "--load", "1"])
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "13 jobs, 1 of 16 GPUs or more; 2 nodes of 8"
    waits = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert list(waits) == ["best-effort", "strict", "backfill"]
    assert waits["backfill"] == waits["strict"] < waits["best-effort"]
