"""Durations of the parts of a cycle, under Volcano's names (ME1); called in the worker's thread.

⚠ Plugins of ours do little when a session opens: their functions are asked by actions, and it is
there that most of what they cost shows.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import Histogram

from services.scheduler.decide import Part
from shared.runtime.metrics import Metrics, steps

_OPENING: Final = "OnSessionOpen"
_SESSION_MS: Final = steps(1, 5000, 20)
_ACTION_MS: Final = steps(1, 2000, 20)
_PLUGIN_MS: Final = steps(0.1, 100, 15)


class Timings:
    """A stopwatch for `decide`."""

    def __init__(self, metrics: Metrics, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._begun = self._last = 0.0
        self._open = metrics.histogram(
            "volcano_open_session_duration_milliseconds", "Opening a session", buckets=_SESSION_MS
        )
        self._plugins = metrics.histogram(
            "volcano_plugin_scheduling_latency_milliseconds",
            "A plugin's part in opening a session",
            ["plugin", "OnSession"],
            buckets=_PLUGIN_MS,
        )
        self._actions = metrics.histogram(
            "volcano_action_scheduling_latency_milliseconds",
            "Running an action",
            ["action"],
            buckets=_ACTION_MS,
        )
        self._children: dict[tuple[Part, str], Histogram] = {}

    def __call__(self, part: Part, name: str) -> None:
        """Note the end of a part."""
        now = self._monotonic()
        since = self._begun if part is Part.OPENED else self._last
        if part is Part.BEGUN:
            self._begun = now
        else:
            self._histogram(part, name).observe((now - since) * 1000)
        self._last = now

    def _histogram(self, part: Part, name: str) -> Histogram:
        if part is Part.OPENED:
            return self._open
        found = self._children.get((part, name))
        if found is None:
            actions = part is Part.ACTION
            found = self._actions.labels(name) if actions else self._plugins.labels(name, _OPENING)
            self._children[part, name] = found
        return found
