"""Metrics of admission."""

from typing import Final

from shared.runtime.metrics import Metrics

_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class AdmissionMetrics:
    """The metrics of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "pumice_admission_requests",
            "Reviews answered, by hook and outcome (allowed, refused, malformed, failed)",
            ("hook", "outcome"),
        )
        self._seconds = metrics.histogram(
            "pumice_admission_seconds", "Time to answer a review", ("hook",), _BUCKETS_S
        )
        self._dropped = metrics.counter(
            "pumice_admission_connections_dropped",
            "Connections closed: handshake, stranger, slow, idle, displaced, busy",
            ("why",),
        )
        self.expiry = metrics.gauge(
            "pumice_admission_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires",
        )

    def dropped(self, why: str) -> None:
        """Count a connection that the server closed."""
        self._dropped.labels(why).inc()

    def answered(self, hook: str, outcome: str, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(hook, outcome).inc()
        self._seconds.labels(hook).observe(seconds)
