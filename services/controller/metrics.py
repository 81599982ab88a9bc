"""The controller's metrics: Volcano's names where it has one (J36), ours for the rest."""

from shared.runtime.metrics import Metrics

_MILLIS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)


class ControllerMetrics:
    """Counters and histograms of one controller process."""

    def __init__(self, metrics: Metrics) -> None:
        self.completed = metrics.counter(
            "volcano_job_completed_phase_count",
            "Jobs that entered phase Completed",
            ("job_name", "queue_name"),
        )
        self.failed = metrics.counter(
            "volcano_job_failed_phase_count",
            "Jobs that entered phase Failed",
            ("job_name", "queue_name"),
        )
        self.to_first_pods = metrics.histogram(
            "volcano_controller_job_to_pod_creation_latency_milliseconds",
            "From a job's creation to the moment its first pods are made",
            ("queue_name",),
            buckets=_MILLIS,
        )
        self.writes = metrics.counter(
            "pumice_controller_writes", "Requests that changed the cluster", ("verb", "kind")
        )
        self.looks = metrics.histogram(
            "pumice_controller_look_seconds", "Time of one look at a job, writes included"
        )
        self.events = metrics.counter(
            "pumice_controller_events", "Kubernetes Events, by what became of them", ("result",)
        )
        self.unreadable = metrics.counter(
            "pumice_controller_facts_unreadable", "Facts that could not be folded", ("kind",)
        )
