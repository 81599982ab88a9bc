"""Prometheus metrics of one process, in a registry of its own.

A registry that is passed in, instead of the library's global one, lets several services live
in one test process and keeps "no module-level instances" true.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
"""The media type of what `Metrics.render` returns."""

LATENCY_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
"""Bucket bounds in seconds for latencies, from a local write to a stuck one."""


def steps(least: float, most: float, count: int) -> tuple[float, ...]:
    """Return `count` bucket bounds from `least` to `most`, each the same factor above the last."""
    factor = (most / least) ** (1 / (count - 1))
    return (*(least * factor**step for step in range(count - 1)), most)


class Metrics:
    """Makes the metrics of a service; names are given whole, since Volcano's must be kept."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Make a counter; the library appends `_total` to its name."""
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Make a gauge."""
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_S,
    ) -> Histogram:
        """Make a histogram; `buckets` are upper bounds in the unit that the name says."""
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def render(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self.registry)
