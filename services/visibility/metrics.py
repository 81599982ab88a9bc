"""Metrics of visibility's HTTP side."""

from shared.runtime.metrics import Metrics


class VisibilityMetrics:
    """The metrics of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "pumice_visibility_requests",
            "Requests answered, by resource, verb and HTTP status",
            ("resource", "verb", "code"),
        )
        self._seconds = metrics.histogram(
            "pumice_visibility_seconds", "Time to answer, without watches", ("resource", "verb")
        )
        self._reviews = metrics.counter(
            "pumice_visibility_access_reviews",
            "SubjectAccessReviews sent",
        )
        self._dropped = metrics.counter(
            "pumice_visibility_connections_dropped",
            "Connections closed: handshake, slow, idle, displaced, busy",
            ("why",),
        )
        self.watches = metrics.gauge("pumice_visibility_watches", "Open watches")
        self.expiry = metrics.gauge(
            "pumice_visibility_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires",
        )

    def answered(self, resource: str, verb: str, code: int, seconds: float) -> None:
        """Count one response."""
        self._requests.labels(resource, verb, str(code)).inc()
        self._seconds.labels(resource, verb).observe(seconds)

    def reviewed(self) -> None:
        """Count a SubjectAccessReview."""
        self._reviews.inc()

    def dropped(self, why: str) -> None:
        """Count a connection that the server ended early."""
        self._dropped.labels(why).inc()
