"""Metrics of the cache: objects observed, facts to publish, watches that broke."""

from shared.runtime.metrics import Metrics


class CacheMetrics:
    """Counters, gauges and histograms of one cache process."""

    def __init__(self, metrics: Metrics) -> None:
        self.objects = metrics.gauge("pumice_cache_objects", "Objects observed", ["kind"])
        self.published = metrics.counter(
            "pumice_cache_facts_published", "Facts published", ["kind", "op"]
        )
        self.failed = metrics.counter(
            "pumice_cache_publish_failures",
            "Facts without an acknowledgement, published again",
            ["reason"],
        )
        self.waiting = metrics.gauge("pumice_cache_facts_waiting", "Facts not published yet")
        self.oversized = metrics.counter(
            "pumice_cache_oversized", "Objects too large for a message", ["kind"]
        )
        self.unreadable = metrics.counter(
            "pumice_cache_unreadable", "Objects that cannot be decoded", ["kind"]
        )
        self.ignored = metrics.gauge(
            "pumice_cache_ignored_versions", "Ignored versions older than the observed one"
        )
        self.cut_off = metrics.counter(
            "pumice_cache_watch_interruptions", "Lists and watches that broke", ["kind", "status"]
        )
        self.leads = metrics.gauge("pumice_cache_leader", "1 while this replica publishes")
        self.latency = metrics.histogram(
            "pumice_cache_publish_seconds",
            "From taking a fact from the queue to its acknowledgement",
        )
