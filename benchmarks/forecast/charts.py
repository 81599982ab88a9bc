"""A chart of answers: how large a part of them is off by how much, for each way of answering."""

from collections.abc import Sequence

from benchmarks.forecast.measure import Answer
from benchmarks.report.svg import lines

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
