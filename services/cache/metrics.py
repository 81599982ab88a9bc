"""Metrics of the cache: objects held, facts on their way to the stream, watches that broke."""

from shared.runtime.metrics import Metrics


class CacheMetrics:
    """Counters, gauges and histograms of one cache process."""

    def __init__(self, metrics: Metrics) -> None:
        self.objects = metrics.gauge("pumice_cache_objects", "Objects held", ["kind"])
        self.published = metrics.counter(
            "pumice_cache_facts_published", "Facts in the stream", ["kind", "op"]
        )
        self.failed = metrics.counter(
            "pumice_cache_publish_failures", "Facts without an answer, said again", ["reason"]
        )
        self.waiting = metrics.gauge("pumice_cache_facts_waiting", "Facts not in the stream yet")
        self.oversized = metrics.counter(
            "pumice_cache_oversized", "Objects too large for a message", ["kind"]
        )
        self.unreadable = metrics.counter(
            "pumice_cache_unreadable", "Objects that do not fit their view", ["kind"]
        )
        self.ignored = metrics.gauge(
            "pumice_cache_ignored_versions", "Versions that were older than the one held"
        )
        self.cut_off = metrics.counter(
            "pumice_cache_watch_interruptions", "Lists and watches that broke", ["kind", "status"]
        )
        self.leads = metrics.gauge("pumice_cache_leader", "1 while this replica publishes")
        self.latency = metrics.histogram(
            "pumice_cache_publish_seconds", "From taking a fact from the line to its answer"
        )
