"""Draws charts as SVG: lines over time, and bars. Pure; as much as the report needs."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

Points = Sequence[tuple[float, float]]

WIDTH: Final = 760
HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 170
_TOP: Final = 12
_BOTTOM: Final = 34
_ROW: Final = 18
_LABEL: Final = 330
_MOST_POINTS: Final = 400
_TICKS: Final = 5
COLOURS: Final = (
    *("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"),
    *("#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"),
)


def lines(series: Mapping[str, Points], *, across: str, up: str) -> str:
    """Return a chart with a line per series; `across` and `up` name the axes."""
    points = [point for each in series.values() for point in each]
    most_x = nice(max((x for x, _ in points), default=1.0))
    most_y = nice(max((y for _, y in points), default=1.0))

    def place(x: float, y: float) -> str:
        right = _LEFT + x / most_x * (WIDTH - _LEFT - _RIGHT)
        down = HEIGHT - _BOTTOM - y / most_y * (HEIGHT - _TOP - _BOTTOM)
        return f"{right:.1f},{down:.1f}"

    parts = [*_axes(most_x, most_y, across, up)]
    for number, (name, each) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(x, y) for x, y in thinned(each))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        top = _TOP + 12 + number * _ROW
        parts.append(_text(WIDTH - _RIGHT + 12, top, name, colour=colour))
    return _picture(parts, HEIGHT)


def bars(values: Mapping[str, float], *, unit: str) -> str:
    """Return a chart with a horizontal bar per value, in their order."""
    most = max(values.values(), default=0.0) or 1.0
    parts = []
    for number, (name, value) in enumerate(values.items()):
        top = _TOP + number * _ROW
        long = value / most * (WIDTH - _LABEL - 110)
        parts.append(_text(_LABEL - 8, top + 12, name, anchor="end"))
        parts.append(
            f'<rect x="{_LABEL}" y="{top + 2}" width="{long:.1f}" height="{_ROW - 5}" '
            f'fill="{COLOURS[0]}"/>'
        )
        parts.append(_text(_LABEL + long + 6, top + 12, f"{shown(value)} {unit}".rstrip()))
    return _picture(parts, 2 * _TOP + len(values) * _ROW)


def nice(value: float) -> float:
    """Return a round number that is not below a value: the end of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value)


def shown(value: float) -> str:
    """Return a number with as many digits as a reader wants."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def thinned(points: Points) -> list[tuple[float, float]]:
    """Return a line with as many points as can be told apart, first and last among them."""
    step = max(1, math.ceil(len(points) / _MOST_POINTS))
    kept = list(points[::step])
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def _axes(most_x: float, most_y: float, across: str, up: str) -> list[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        x = _LEFT + share * (right - _LEFT)
        y = bottom - share * (bottom - _TOP)
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="currentColor" '
            'stroke-opacity="0.15"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, shown(share * most_y), anchor="end"))
        parts.append(_text(x, bottom + 16, shown(share * most_x), anchor="middle"))
    parts.append(_text(right, bottom + 30, across, anchor="end"))
    parts.append(_text(_LEFT + 6, _TOP + 10, up))
    return parts


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "") -> str:
    fill = colour or "currentColor"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'
    )


def _picture(parts: Sequence[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">' + "".join(parts) + "</svg>"
    )
