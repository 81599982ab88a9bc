"""The controller's metrics: Volcano's names where it has one (J36), ours for the rest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from shared.api.scheduling import PodGroup, PodGroupPhase
from shared.runtime.metrics import Metrics, steps

_LATENESS_S = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_MILLIS = steps(50, 60_000, 30)


class ControllerMetrics:
    """Counters and histograms of one controller process."""

    def __init__(self, metrics: Metrics) -> None:
        self.completed = metrics.named_counts(
            "volcano_job_completed_phase_count",
            "How often a job, by namespace/name, entered phase Completed",
            ("job_name", "queue_name"),
        )
        self.failed = metrics.named_counts(
            "volcano_job_failed_phase_count",
            "How often a job, by namespace/name, entered phase Failed",
            ("job_name", "queue_name"),
        )
        self.flows_succeeded = metrics.named_counts(
            "volcano_jobflow_succeed_phase_count",
            "JobFlows that entered phase Succeed (F04)",
            ("jobflow_namespace",),
        )
        self.flows_failed = metrics.named_counts(
            "volcano_jobflow_failed_phase_count",
            "JobFlows that entered phase Failed (F04)",
            ("jobflow_namespace",),
        )
        self.cron_lateness = metrics.histogram(
            "pumice_controller_cronjob_lateness_seconds",
            "From the time a CronJob's job was due to its creation",
            buckets=_LATENESS_S,
        )
        self.to_pods = metrics.histogram(
            "volcano_controller_job_to_pod_creation_latency_milliseconds",
            "From a job's creation to that of each of its pods",
            buckets=_MILLIS,
        )
        self.writes = metrics.counter(
            "pumice_controller_writes", "Requests that changed the cluster", ("verb", "kind")
        )
        self.reconciles = metrics.histogram(
            "pumice_controller_reconcile_seconds",
            "Time of one reconciliation of a job, writes included",
        )
        self.events = metrics.counter(
            "pumice_controller_events", "Kubernetes Events by result", ("result",)
        )
        self.unreadable = metrics.counter(
            "pumice_controller_facts_unreadable", "Facts that could not be folded", ("kind",)
        )

    def forget_job(self, key: str) -> None:
        """Drop what is counted under the name of a job that is gone."""
        self.completed.drop(key)
        self.failed.drop(key)


_COUNTED: Final = {
    "pending": PodGroupPhase.PENDING,
    "inqueue": PodGroupPhase.INQUEUE,
    "running": PodGroupPhase.RUNNING,
    "unknown": PodGroupPhase.UNKNOWN,
    "completed": PodGroupPhase.COMPLETED,
}


class QueueCounts(Collector):
    """PodGroups by queue and phase under Volcano's names (Q03), counted when metrics are scraped.

    `groups` and `queues` are what the informers know; a process that does not keep the
    queues yields none, so that the sum over all replicas is right.
    """

    def __init__(
        self, groups: Callable[[], Iterable[PodGroup]], queues: Callable[[], Iterable[str]]
    ) -> None:
        self._groups = groups
        self._queues = queues

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family per phase, with a sample for each queue."""
        counts = Counter(
            (group.spec.queue, group.status.phase or PodGroupPhase.PENDING)
            for group in self._groups()
        )
        queues = sorted(self._queues())
        for word, phase in _COUNTED.items():
            family = GaugeMetricFamily(
                f"volcano_queue_pod_group_{word}_count",
                f"PodGroups in phase {phase} per queue",
                labels=("queue_name",),
            )
            for queue in queues:
                family.add_metric((queue,), counts[queue, phase])
            yield family
