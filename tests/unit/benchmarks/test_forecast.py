"""The measure of forecasts: traces as jobs, their replay in virtual time, the scores."""

from pathlib import Path

import pytest

from benchmarks.forecast import __main__ as command
from benchmarks.forecast.__main__ import chart
from benchmarks.forecast.measure import Answer, Asker, calibrated, score, waiting_jobs
from benchmarks.forecast.traces import GPU, Trace, read, replay_of, stating
from pumice.replays.engine import ReplayedJob
from services.visibility.forecast.simulation import SimulationBounds

NODE = {"cpu": 8_000, "memory": 1 << 34, GPU: 8_000}


def trace(*jobs: tuple[float, float, int]) -> Trace:
    """Return a trace on one node of eight cards: jobs by arrival, duration and pods."""
    asks = {"cpu": 1_000, GPU: 1_000}
    made = [
        ReplayedJob(f"train-{number}", at, seconds, pods, asks)
        for number, (at, seconds, pods) in enumerate(jobs)
    ]
    return Trace("drawn", {"n0": NODE}, made)


def gavel_file(folder: Path) -> Path:
    rows = [
        "\t".join(("ResNet-18 (batch size 64)", "run", "-n", "1", str(steps), str(at), str(gpus)))
        for steps, at, gpus in ((100, 0, 1), (200, 10, 8), (400, 20, 2), (50, 30, 100))
    ]
    file = folder / "x.trace"
    file.write_text("\n".join(rows) + "\n")
    return file


def openb_folder(folder: Path) -> Path:
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time"
    from_s = 140 * 86_400
    rows = [
        f"p{number},4000,1024,1,{milli},,LS,Running,{from_s + at},{from_s + at + seconds},0"
        for number, (milli, at, seconds) in enumerate(
            ((500, 0, 60), (500, 5, 90), (1000, 9, 100_000), (1000, 20, 30))
        )
    ]
    text = "\n".join((f"{columns},deletion_time,scheduled_time", *rows))
    (folder / "openb_pod_list_default.csv").write_text(text + "\n")
    return folder


def test_a_job_waits_until_the_cards_that_it_needs_are_free() -> None:
    replay = replay_of(trace((0, 100, 8), (10, 50, 4), (20, 50, 4), (30, 10, 8)))
    replay.run(lambda _: None, lambda _: None, ())
    assert replay.waits == {
        "ns/train-0": 0.0, "ns/train-1": 90.0, "ns/train-2": 80.0, "ns/train-3": 120.0,
    }  # fmt: skip
    assert [key for key, _ in replay.ended] == [f"ns/train-{n}" for n in range(4)]


def test_questions_are_asked_at_the_submission_of_jobs_that_wait() -> None:
    asked: list[tuple[str, float]] = []
    replay = replay_of(trace((0, 100, 8), (10, 50, 4), (200, 5, 1)))
    begun = replay.now
    replay.run(lambda _: None, lambda key: asked.append((key, replay.now - begun)), replay.jobs)
    assert asked == [("ns/train-1", 10.0)]


def test_answers_are_compared_with_the_waits_that_came() -> None:
    line = trace(*((90.0 * number, 100.0, 8) for number in range(30)))
    keys, waits = waiting_jobs(line, 5)
    answers = Asker(line, draws=4, bounds=SimulationBounds()).run(keys)
    assert [answer.wait for answer in answers] == [waits[key] for key in keys]
    assert all(answer.limits > answer.wait for answer in answers)
    found = score(answers)
    assert found.asked == len(answers) == 5
    assert found.forecast < found.mean
    assert found.forecast < found.limits
    assert found.known < found.mean


def test_with_the_real_durations_only_jobs_to_come_are_not_known() -> None:
    jobs = trace((0, 100, 8), (10, 50, 4), (20, 50, 4), (30, 10, 8))
    answers = Asker(jobs, draws=1, bounds=SimulationBounds()).run(
        [f"ns/train-{n}" for n in (1, 2, 3)]
    )
    assert [answer.known for answer in answers] == [90.0, 80.0, 120.0]


def test_with_durations_that_jobs_state_a_forecast_is_as_good_as_they_are() -> None:
    jobs = trace(*((90.0 * number, 100.0, 8) for number in range(30)))
    line = jobs._replace(jobs=[job._replace(expected_s=job.seconds) for job in jobs.jobs])
    answers = Asker(line, draws=2, bounds=SimulationBounds()).run(waiting_jobs(line, 5)[0])
    assert [answer.median for answer in answers] == pytest.approx(
        [answer.wait for answer in answers], rel=0.05
    )


def test_a_part_of_the_jobs_says_about_how_long_it_runs() -> None:
    said = [j.expected_s / j.seconds for j in stating(trace(*[(0, 50, 1)] * 400), 0.5, seed=1).jobs]
    assert 150 < sum(1 for ratio in said if ratio) < 250
    assert all(0.4 < ratio < 2.5 for ratio in said if ratio)


def test_steps_of_gavel_become_seconds_and_what_fits_nowhere_is_left_out(tmp_path: Path) -> None:
    found = read(gavel_file(tmp_path), load=0.5, most=10)
    assert [job.pods for job in found.jobs] == [1, 8, 2]
    assert [job.seconds for job in found.jobs] == pytest.approx([2400.0, 4800.0, 9600.0])
    asked = sum(job.pods * job.seconds for job in found.jobs)
    assert asked / (64 * found.jobs[-1].at) == pytest.approx(0.5)


def test_a_later_part_of_a_trace_keeps_the_durations_that_the_whole_of_it_gives(
    tmp_path: Path,
) -> None:
    whole = read(gavel_file(tmp_path), load=0.5, most=10)
    later = read(gavel_file(tmp_path), load=0.5, most=2, skip=1)
    kept = [(job.name, job.seconds) for job in later.jobs]
    assert kept == [(job.name, job.seconds) for job in whole.jobs[1:]][: len(kept)]
    assert later.jobs[0].at == 0.0


def test_pods_of_openb_that_ask_for_the_same_share_a_name(tmp_path: Path) -> None:
    found = read(openb_folder(tmp_path), load=0.5, most=10)
    assert [job.name for job in found.jobs] == ["kind0x-0", "kind0x-1", "kind1x-2"]
    assert [job.requests[GPU] for job in found.jobs] == [500, 500, 1000]
    assert [job.seconds for job in found.jobs] == [60.0, 90.0, 30.0]


def test_the_command_prints_a_line_per_trace_and_stores_answers_and_a_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = gavel_file(tmp_path).read_text() * 20
    (tmp_path / "y.trace").write_text(rows)
    into = tmp_path / "found"
    few = ["--asked", "3", "--draws", "2", "--load", "5"]
    command.main([str(tmp_path / "y.trace"), *few, "--into", str(into)])
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["trace", "jobs", "waited", "asked"]
    assert line.startswith("gavel y ")
    assert sorted(file.name for file in into.iterdir()) == [
        "forecast-gavel-y.json",
        "forecast-gavel-y.svg",
    ]


def test_bounds_are_told_by_what_came_of_those_before() -> None:
    asked = [
        Answer(
            job=f"ns/{n}",
            at=1e5 * n,
            wait=2e4,
            median=9e3,
            drawn=1e4,
            latest=0,
            mean=1,
            limits=1,
            known=1,
        )
        for n in range(40)
    ]
    told = [answer.latest for answer in calibrated(asked)]
    assert told[:20] == [1e4] * 20
    assert told[20:] == pytest.approx([2e4] * 20, rel=0.01)


def test_a_chart_has_a_line_for_each_way_of_answering() -> None:
    answer = Answer(
        job="ns/a", at=0, wait=10, median=12, drawn=20, latest=20, mean=30, limits=90, known=10
    )
    drawn = chart([answer])
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert drawn.count("<polyline") == 3
