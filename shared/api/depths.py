"""Computes the nesting depth of each byte of a JSON text with numpy: megabytes take milliseconds.

For texts with very many brackets, where a Python loop would block the process for seconds. Only
`shared.api.nesting` uses it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPEN, _CLOSE = (ord("["), ord("{")), (ord("]"), ord("}"))

Depths = npt.NDArray[np.int32]


def depths(json: bytes) -> Depths:
    """Return the number of open objects and lists after each byte, strings ignored.

    Invalid JSON gives arbitrary numbers.
    """
    signs = np.frombuffer(json, dtype=np.uint8)
    quotes = signs == _QUOTE
    quotes[1:] &= ~_escaped(signs)[1:]
    outside = np.cumsum(quotes, dtype=np.int32) % 2 == 0
    opened = ((signs == _OPEN[0]) | (signs == _OPEN[1])) & outside
    closed = ((signs == _CLOSE[0]) | (signs == _CLOSE[1])) & outside
    return np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int32)


def _escaped(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return for each byte whether an odd number of backslashes precedes it."""
    places = np.arange(len(signs), dtype=np.int32)
    others = np.where(signs != _BACKSLASH, places, np.int32(-1))
    last = np.maximum.accumulate(others)
    before = np.empty_like(last)
    before[0], before[1:] = -1, last[:-1]
    escaped: npt.NDArray[np.bool_] = (places - 1 - before) % 2 == 1
    return escaped


def is_deeper(json: bytes, levels: int) -> bool:
    """Tell whether more than `level` levels are open anywhere."""
    return bool(json) and int(depths(json).max()) > levels


def _edges(inside: Depths, level: int) -> npt.NDArray[np.intp]:
    """Return the begin and end offsets of deeper values, alternating."""
    return np.flatnonzero(np.diff((inside > level).astype(np.int8), prepend=0))


def cut_below(json: bytes, levels: Sequence[int], mark: bytes, *, most: int) -> bytes:
    """Return JSON with `mark` in place of each value below a number of levels.

    Uses the first of `levels` at which at most `most` values are cut, else the last: marks may be
    longer than the values that they replace.
    """
    if not json:
        return json
    inside = depths(json)
    edges = _edges(inside, levels[0])
    for level in levels[1:]:
        if len(edges) > 2 * most:
            edges = _edges(inside, level)
    parts: list[bytes] = []
    kept_to = 0
    for number, edge in enumerate(edges.tolist()):
        if number % 2 == 0:
            parts += [json[kept_to:edge], mark]
        else:
            kept_to = edge + 1  # the closing bracket belongs to what is cut
    if len(edges) % 2 == 0:
        parts.append(json[kept_to:])
    return b"".join(parts)
