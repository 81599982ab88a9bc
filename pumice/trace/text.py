"""Writes a tree of spans: as lines for people, or as JSON for programs. Pure."""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from shared.api.time import format_micro
from shared.trace import Span

_HEAD: Final = "     at s    for s"
_WIDTH: Final = 9
_MS: Final = 3


def as_json(root: Span) -> str:
    """Return the tree as one JSON document, indented."""
    return json.dumps(_fields(root), ensure_ascii=False, indent=2)


def _fields(span: Span) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": span.name,
        "about": span.about,
        "detail": span.detail,
        "start": format_micro(span.start),
        "end": None if span.end is None else format_micro(span.end),
        "durationSeconds": None if span.end is None else round(span.end - span.start, _MS),
        "exact": span.exact,
        "spans": [_fields(each) for each in span.spans],
    }
    return {name: value for name, value in fields.items() if value not in ("", [])}


def as_text(root: Span, now_s: float, *, pods_most: int) -> str:
    """Return the tree for a person: seconds since the job was posted, and durations until `now_s`.

    Of pods the first `pods_most` are shown; 0: all of them.
    """
    clock = dt.datetime.fromtimestamp(root.start, tz=dt.UTC).astimezone()
    lines = [f"{root.about}, posted at {clock:%Y-%m-%d %H:%M:%S}", "", _HEAD]
    lines += _Lines(root.start, now_s, pods_most).of(root)
    if not _all_exact(root):
        lines += ["", "~: from an object's time, which has whole seconds;  …: goes on"]
    return "\n".join(lines)


class _Lines(Struct, frozen=True):
    """Writes the lines of a tree."""

    zero_s: float
    now_s: float
    pods_most: int

    def of(self, span: Span, branch: str = "", below: str = "") -> Iterator[str]:
        """Yield the lines of a span; `branch` leads to it, and `below` to its parts."""
        yield f"{self._columns(span)}  {branch}{_words(span)}"
        shown, left_out = _shown(span.spans, self.pods_most)
        for number, each in enumerate(shown, start=1):
            is_last = number == len(shown) and not left_out
            fork, under = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            yield from self.of(each, below + fork, below + under)
        if left_out:
            yield f"{'':{2 * _WIDTH}}  {below}└─ and {left_out} more (--pods 0 shows all pods)"

    def _columns(self, span: Span) -> str:
        sign = "" if span.exact else "~"
        at = f"{sign}{span.start - self.zero_s:.3f}"
        if span.is_moment:
            return f"{at:>{_WIDTH}}{'':{_WIDTH}}"
        end, more = (self.now_s, "…") if span.end is None else (span.end, "")
        lasted = f"{sign}{max(0.0, end - span.start):.3f}{more}"
        return f"{at:>{_WIDTH}}{lasted:>{_WIDTH}}"


def _words(span: Span) -> str:
    about = f" {span.about.rpartition('/')[2]}" if span.about else ""
    return f"{span.name}{about}{f': {span.detail}' if span.detail else ''}"


def _shown(spans: Sequence[Span], pods_most: int) -> tuple[list[Span], int]:
    """Return the spans to show in their order, and how many pods are left out."""
    pods = [span for span in spans if span.name == "pod"]
    if not pods_most or len(pods) <= pods_most:
        return list(spans), 0
    kept = pods[:pods_most]
    return [span for span in spans if span.name != "pod" or span in kept], len(pods) - len(kept)


def _all_exact(span: Span) -> bool:
    return span.exact and all(_all_exact(each) for each in span.spans)
