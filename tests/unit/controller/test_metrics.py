"""Metrics under the names and labels that Volcano's users have in their dashboards (J36, F04)."""

import re

from services.controller.metrics import ControllerMetrics
from shared.runtime.metrics import Metrics


def exposed(metrics: Metrics) -> dict[str, float]:
    """Return what is scraped: each sample with its labels, and its value."""
    lines = metrics.render().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"
    }


def test_ends_of_jobs_are_counted_under_volcanos_own_names_j36() -> None:
    metrics = Metrics()
    counts = ControllerMetrics(metrics)
    counts.completed.add("ns/a", "q")
    counts.failed.add("ns/b", "q")
    counts.failed.add("ns/b", "q")
    counts.flows_succeeded.add("ns")
    seen = exposed(metrics)
    assert seen['volcano_job_completed_phase_count{job_name="ns/a",queue_name="q"}'] == 1
    assert seen['volcano_job_failed_phase_count{job_name="ns/b",queue_name="q"}'] == 2
    assert seen['volcano_jobflow_succeed_phase_count{jobflow_namespace="ns"}'] == 1


def test_a_job_that_is_gone_is_counted_no_more_j36() -> None:
    metrics = Metrics()
    counts = ControllerMetrics(metrics)
    for name in ("ns/a", "ns/b"):
        counts.completed.add(name, "q")
        counts.failed.add(name, "q")
    counts.forget_job("ns/a")
    counts.forget_job("ns/never")
    seen = exposed(metrics)
    assert [name for name in seen if "ns/a" in name] == []
    assert len([name for name in seen if "ns/b" in name]) == 2


def test_the_latency_of_pods_has_no_labels_and_volcanos_buckets_j36() -> None:
    metrics = Metrics()
    ControllerMetrics(metrics).to_pods.observe(60_000.0)
    name = "volcano_controller_job_to_pod_creation_latency_milliseconds"
    bounds = [b for b in exposed(metrics) if b.startswith(f"{name}_bucket")]
    limits = [float(re.search(r'le="([^"]+)"', bound)[1]) for bound in bounds]  # type: ignore[index]
    assert limits[0] == 50.0
    assert round(limits[-2]) == 60_000
    assert len(limits) == 31, "thirty and the one without end"
    assert exposed(metrics)[f"{name}_count"] == 1
