"""Measures forecasts of starts on traces: `python -m benchmarks.forecast TRACE… [--into FOLDER]`.

A TRACE is the folder with openb's CSV files, or a file of the gavel traces. Each is replayed twice:
once to see which jobs wait, once to ask when they will start. With `--into`, answers go to a JSON
file per trace there, with a chart beside it.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.forecast.measure import Answer, Asker, Score, score, waiting_jobs
from benchmarks.forecast.traces import read, stating
from benchmarks.report.svg import lines
from services.visibility.forecast.simulation import SimulationBounds

_MOST = 2.0
"""Errors beyond this part of the wait are not drawn."""
WAYS = {"forecast": "median", "mean wait so far": "mean", "every job to its limit": "limits"}


def chart(answers: Sequence[Answer]) -> str:
    """Return the chart as a file of its own."""
    series = {name: _within(answers, way) for name, way in WAYS.items()}
    drawn = lines(series, across="error, % of the wait", up="% of the jobs within it")
    return drawn.replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" style="background:#fff" ', 1
    )


def _within(answers: Sequence[Answer], way: str) -> list[tuple[float, float]]:
    errors = sorted(abs(getattr(answer, way) - answer.wait) / answer.wait for answer in answers)
    points = [(0.0, 0.0)]
    for number, error in enumerate(errors, start=1):
        if error <= _MOST:
            points.append((100.0 * error, 100.0 * number / len(errors)))
    return [*points, (100.0 * _MOST, points[-1][1])]


_SEED = 5


def main(argv: list[str] | None = None) -> None:
    """Print a line per trace."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--jobs", type=int, default=1_000, help="the first jobs of a trace")
    parser.add_argument("--skip", type=int, default=0, help="jobs before these")
    parser.add_argument("--load", type=float, default=0.85, help="part of the cluster asked for")
    parser.add_argument("--asked", type=int, default=100, help="jobs that are asked for")
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--stated", type=float, default=0.0, help="part that states a duration")
    parser.add_argument("--into", type=Path, help="folder for the answers")
    given = parser.parse_args(argv)
    print(
        f"{'trace':<16}{'jobs':>6}{'waited':>8}{'asked':>7}{'drawn':>7}{'covered':>9}{'error':>8}",
        end="",
    )
    print(f"{'mean':>8}{'limits':>8}{'known':>8}{'CPU s':>8}", flush=True)
    for path in given.traces:
        paced = read(path, load=given.load, most=given.jobs, skip=given.skip)
        trace = stating(paced, given.stated, seed=_SEED)
        keys, waits = waiting_jobs(trace, given.asked)
        begun = time.process_time()
        answers = Asker(trace, draws=given.draws, bounds=SimulationBounds()).run(keys)
        seconds = time.process_time() - begun
        waited = sum(1 for wait in waits.values() if wait > 0.0)
        print(line(trace.name, len(trace.jobs), waited, score(answers), seconds), flush=True)
        if given.into is not None:
            store(given.into, trace.name, answers)


def line(name: str, jobs: int, waited: int, s: Score, seconds: float) -> str:
    """Return a row of the table."""
    return (
        f"{name:<16}{jobs:>6}{waited:>8}{s.asked:>7}{s.drawn:>7.0%}{s.covered:>9.0%}{s.forecast:>8.0%}"
        f"{s.mean:>8.0%}{s.limits:>8.0%}{s.known:>8.0%}{seconds:>8.0f}"
    )


def store(folder: Path, name: str, answers: list[Answer]) -> None:
    """Write the answers of a trace, and their chart."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"forecast-{name.replace(' ', '-')}.json"
    file.write_bytes(msgspec.json.encode(answers))
    file.with_suffix(".svg").write_text(chart(answers), "utf-8")


if __name__ == "__main__":
    main()
