"""The binder's metrics, all in one place."""

from shared.runtime.metrics import Metrics


class BinderMetrics:
    """Counters and gauges of one binder process."""

    def __init__(self, metrics: Metrics) -> None:
        self.items = metrics.counter(
            "pumice_binder_items",
            "Pods of finished intents, by intent and result",
            ("intent", "result"),
        )
        self.request_seconds = metrics.histogram(
            "pumice_binder_request_seconds", "Time of API requests for intents", ("verb",)
        )
        self.intent_seconds = metrics.histogram(
            "pumice_binder_intent_seconds",
            "From publishing an intent to its outcome",
            ("intent",),
        )
        self.retries = metrics.counter(
            "pumice_binder_retries", "API requests that are retried", ("verb",)
        )
        self.in_flight = metrics.gauge("pumice_binder_in_flight", "API requests in flight")
        self.limit = metrics.gauge(
            "pumice_binder_in_flight_limit", "Current limit of API requests in flight"
        )
        self.backlog = metrics.gauge(
            "pumice_binder_backlog", "Messages waiting for a binder", ("stream", "partition")
        )
        self.quarantined = metrics.counter(
            "pumice_binder_messages_quarantined", "Messages that could not be read", ("stream",)
        )
        self.newer = metrics.counter(
            "pumice_binder_messages_newer",
            "Deliveries delayed because their version is newer than this binder",
            ("stream",),
        )
        self.statuses = metrics.counter(
            "pumice_binder_statuses", "Desired statuses handled", ("kind", "result")
        )
        self.events = metrics.counter(
            "pumice_binder_events", "Kubernetes Events by result", ("result",)
        )
