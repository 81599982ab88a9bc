"""Counts and logs what plugins of other distributions do wrong.

Called from the worker's thread. Each different error is logged once; the counter tells how often.
"""

from typing import Final

from services.scheduler.foreign import Failure
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics

_REMEMBERED: Final = 1000


class PluginFailures:
    """The one owner of failures of foreign plugins."""

    def __init__(self, *, metrics: Metrics, log: Logger) -> None:
        self._log = log
        self._seen: set[Failure] = set()
        self._count = metrics.counter(
            "pumice_scheduler_plugin_failures",
            "Calls of plugins of other distributions that failed",
            ["plugin", "point"],
        )

    def __call__(self, failure: Failure) -> None:
        """Take a failure."""
        self._count.labels(failure.plugin, failure.point).inc()
        if failure in self._seen:
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(failure)
        self._log.error(
            "plugin_failed",
            plugin=failure.plugin,
            origin=failure.origin,
            point=failure.point,
            error=failure.error,
        )
