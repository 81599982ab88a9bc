"""Queues and jobs on the metrics page, under Volcano's names (ME1 to ME4).

Samples are made on each scrape, from the last figures that the last cycle took: what is gone from
those is gone from the page. Only the leader shows any.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from pumice.plugins import QueueFigures
from pumice.plugins.values import Amounts
from services.scheduler.cycle_metrics import Figures, JobFigures, PlacedJob
from services.scheduler.engine.resources.dimensions import (
    CPU_DIM,
    MEMORY_DIM,
    PODS_DIM,
    is_in_bytes,
)
from shared.api import time as times

_AMOUNTS: Final = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")
_QUEUE: Final = ("queue_name",)
_JOB: Final = ("job_name", "queue", "job_namespace")


class FigurePages(Collector):
    """The figures of the leader's last cycles."""

    def __init__(self) -> None:
        self._figures: Figures | None = None
        self._placed: dict[str, tuple[float, float]] = {}
        """PodGroup → when it last was given nodes, in Unix seconds, and how old it was then."""
        self._retries: Counter[str] = Counter()

    def show(self, figures: Figures) -> None:
        """Show these figures from now on."""
        self._figures = figures
        self._placed = {key: was for key, was in self._placed.items() if key in figures.jobs}
        still_present = self._retries.keys() & figures.jobs.keys()
        self._retries = Counter({key: self._retries[key] for key in sorted(still_present)})

    def placed(self, placements: Iterable[PlacedJob], *, now: float) -> None:
        """Note when jobs were given nodes."""
        for placement in placements:
            if placement.since_s is not None:
                self._placed[placement.job] = (now, placement.since_s)

    def waited(self, jobs: Iterable[str]) -> None:
        """Record that a cycle left these PodGroups waiting."""
        self._retries.update(jobs)

    def clear(self) -> None:
        """Show nothing: another scheduler leads."""
        self._figures = None
        self._placed.clear()
        self._retries.clear()

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the samples of this moment."""
        if self._figures is not None:
            yield from _amounts(self._figures)
            yield from _of_queues(self._figures.queues)
            yield from self._of_jobs(self._figures)

    def _of_jobs(self, figures: Figures) -> Iterator[Metric]:
        shares = GaugeMetricFamily(
            "volcano_job_share", "Dominant share of a job", labels=("job_ns", "job_id")
        )
        missing: Counter[str] = Counter()
        retries: Counter[str] = Counter()
        for key, job in figures.jobs.items():
            if job.share is not None:
                shares.add_metric((job.namespace, job.name), job.share)
            missing[job.name] += job.missing  # by name alone, as Volcano has it
            retries[job.name] += self._retries[key]
        yield shares
        unscheduled = GaugeMetricFamily(
            "volcano_unschedule_task_count", "Tasks that a gang lacks", labels=("job_id",)
        )
        retried = UntypedMetricFamily(
            "volcano_job_retry_counts", "Cycles that left a job waiting", labels=("job_id",)
        )
        for name, count in missing.items():
            unscheduled.add_metric((name,), count)
        for name, count in retries.items():
            if count:
                retried.add_metric((name,), count)
        yield unscheduled
        yield retried
        yield from self._times(figures)

    def _times(self, figures: Figures) -> Iterator[Metric]:
        started = GaugeMetricFamily(
            "volcano_e2e_job_scheduling_start_time",
            "When a job was made, in Unix seconds",
            labels=_JOB,
        )
        ended = GaugeMetricFamily(
            "volcano_e2e_job_scheduling_last_time",
            "When tasks of a job were last placed, in Unix seconds",
            labels=_JOB,
        )
        lasted = GaugeMetricFamily(
            "volcano_e2e_job_scheduling_duration",
            "Milliseconds from a job's creation to its last placement",
            labels=_JOB,
        )
        for key, job in figures.jobs.items():
            labels = (job.name, job.queue, job.namespace)
            if (made := _made(job)) is not None:
                started.add_metric(labels, made)
            if key in self._placed:
                at, age_s = self._placed[key]
                ended.add_metric(labels, int(at))
                lasted.add_metric(labels, age_s * 1000)
        yield from (started, ended, lasted)


def _made(job: JobFigures) -> float | None:
    try:
        return times.parse(job.created)
    except ValueError:
        return None  # a PodGroup that does not say when it was made


def _amounts(figures: Figures) -> Iterator[Metric]:
    for figure in _AMOUNTS:
        cpu = GaugeMetricFamily(
            f"volcano_queue_{figure}_milli_cpu", "Thousandths of CPUs of a queue", labels=_QUEUE
        )
        memory = GaugeMetricFamily(
            f"volcano_queue_{figure}_memory_bytes", "Memory of a queue", labels=_QUEUE
        )
        scalars = GaugeMetricFamily(
            f"volcano_queue_{figure}_scalar_resources",
            "Other resources of a queue: pods by number, all others in thousandths",
            labels=("queue_name", "resource"),
        )
        for queue in figures.queues:
            amounts: Amounts | None = getattr(queue, figure)
            if amounts is None:
                continue
            cpu.add_metric((queue.name,), float(amounts[CPU_DIM]))
            memory.add_metric((queue.name,), float(amounts[MEMORY_DIM]))
            for dim in _scalars(figures, amounts):
                name = figures.resources[dim]
                scale = 1000 if is_in_bytes(name) else 1  # as Volcano counts them
                scalars.add_metric((queue.name, name), float(amounts[dim]) * scale)
        yield from (cpu, memory, scalars)


def _scalars(figures: Figures, amounts: Amounts) -> list[int]:
    """Return the dimensions to show: what the cluster has or the queue names, unless unlimited."""
    names = len(figures.resources)
    shown = (figures.present[:names] | (amounts[:names] > 0)) & np.isfinite(amounts[:names])
    return [int(dim) for dim in np.flatnonzero(shown) if dim >= PODS_DIM]


def _of_queues(queues: Iterable[QueueFigures]) -> Iterator[Metric]:
    share = GaugeMetricFamily(
        "volcano_queue_share", "Largest part of what a queue deserves that it holds", labels=_QUEUE
    )
    weight = GaugeMetricFamily("volcano_queue_weight", "Weight of a queue", labels=_QUEUE)
    overused = GaugeMetricFamily(
        "volcano_queue_overused",
        "1 while a queue has its due: all it deserves (proportion), or more (capacity)",
        labels=_QUEUE,
    )
    for queue in queues:
        share.add_metric((queue.name,), queue.share)
        overused.add_metric((queue.name,), int(queue.overused))
        if queue.weight is not None:
            weight.add_metric((queue.name,), queue.weight)
    yield from (share, weight, overused)
