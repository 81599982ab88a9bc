"""Prometheus metrics of one process, in a registry of its own.

A registry that is passed in, instead of the library's global one, lets several services live
in one test process and keeps "no module-level instances" true.
"""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
"""The media type of what `Metrics.render` returns."""

LATENCY_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
"""Bucket bounds in seconds for latencies, from a local write to a stuck one."""


def steps(least: float, most: float, count: int) -> tuple[float, ...]:
    """Return `count` bucket bounds from `least` to `most`, each the same factor above the last."""
    factor = (most / least) ** (1 / (count - 1))
    return (*(least * factor**step for step in range(count - 1)), most)


class NamedCounts(Collector):
    """A counter with exactly Volcano's name.

    The library's own counters have `_total` at the end of their names, Volcano's do not. Counts can
    be dropped, so that names of jobs do not pile up.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._counts: defaultdict[tuple[str, ...], Counts[tuple[str, ...]]] = defaultdict(Counts)
        """By the value of the first label, which is what is dropped."""
        if not labels:
            self._counts[()][()] = 0  # shown before there is anything to count

    def add(self, *values: str, count: int = 1) -> None:
        """Add an amount; `values` are those of the labels, in order."""
        self._counts[values[:1]][values] += count

    def drop(self, first: str) -> None:
        """Drop every count whose first label has this value."""
        self._counts.pop((first,), None)

    @override
    def collect(self) -> Iterator[UntypedMetricFamily]:
        """Yield one family with a sample for each set of labels."""
        family = UntypedMetricFamily(self._name, self._text, labels=self._labels)
        for counts in self._counts.values():
            for values, count in counts.items():
                family.add_metric(values, count)
        yield family


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

    def named_counts(self, name: str, text: str, labels: Sequence[str] = ()) -> NamedCounts:
        """Make a counter whose name is left as it is; its type is untyped."""
        counts = NamedCounts(name, text, labels)
        self.registry.register(counts)
        return counts

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
