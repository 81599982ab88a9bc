"""Scheduler plugins of other distributions (PL25): entry points `pumice.plugins`, and failures."""

from collections.abc import Callable, Collection
from typing import Final

from services.scheduler.foreign import ForeignPlugin, PluginFailure
from shared.entry_points import BadPlugin, load
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics

GROUP: Final = "pumice.plugins"
_REMEMBERED: Final = 1000


def load_plugins(
    taken: Collection[str], *, note: Callable[[PluginFailure], None]
) -> dict[str, ForeignPlugin]:
    """Return the plugins by name. Raises Rejected with distribution and entry point.

    `taken` are the names of built-in plugins, which no other may have. `note` is called with each
    later failure of a plugin.
    """
    try:
        offers = load(GROUP, what="scheduler plugin", method="contribute", taken=taken)
    except BadPlugin as error:
        raise Rejected(str(error), field=GROUP) from error
    return {
        offer.name: ForeignPlugin(offer.kind, name=offer.name, origin=offer.origin, note=note)
        for offer in offers
    }


class PluginFailures:
    """Counts and logs what such plugins do wrong: the one owner of their failures.

    Called from the worker thread. Each different error is logged once; the counter tells how
    often.
    """

    def __init__(self, *, metrics: Metrics, log: Logger) -> None:
        self._log = log
        self._seen: set[PluginFailure] = set()
        self._count = metrics.counter(
            "pumice_scheduler_plugin_failures",
            "Failed calls of external plugins",
            ["plugin", "point"],
        )

    def __call__(self, failure: PluginFailure) -> None:
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
