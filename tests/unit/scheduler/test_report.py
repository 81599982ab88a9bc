"""What a scheduler counts of its cycles, under Volcano's names where it has one (ME1, ME2)."""

from typing import Any, cast

import numpy as np
import structlog

from pumice.events import Event, GangAdmitted
from services.scheduler.adapters.report import GangEvents, Report
from services.scheduler.cycle_metrics import CycleSample, Figures, JobFigures, PlacedJob
from services.scheduler.decision import Decision
from services.scheduler.engine.plan import Eviction, JobExplanation, Plan
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.spans import NO_SPANS


def reporting(metrics: Metrics) -> Report:
    return Report(
        metrics=metrics,
        events=cast("Any", None),  # what is measured here tells subscribers nothing
        gate=Readiness().gate("cycles"),
        log=structlog.get_logger(),
    )


def decision(plan: Plan, sample: CycleSample, *placements: PlacedJob) -> Decision:
    return Decision(
        plan=plan, full_plan=plan, commands=[], statuses=[], sample=sample, placements=placements
    )


def figures(*jobs: str) -> Figures:
    told = {
        f"ns/{name}": JobFigures(
            namespace="ns", name=name, queue="q", created="", share=0.5, missing=1
        )
        for name in jobs
    }
    return Figures(resources=(), present=np.zeros(0, np.bool_), queues=(), jobs=told)


def test_victims_are_told_under_volcanos_own_name_me2() -> None:
    metrics = Metrics()
    report = reporting(metrics)
    victims = tuple(
        Eviction(pod=f"ns/{n}", uid=n, node="n", job="ns/j", reason="preempt") for n in "ab"
    )
    for cycle, evictions in enumerate((victims, ())):
        report.cycle(Plan(cycle=cycle, evictions=evictions), decide_s=0.0, publish_s=0.0)
    lines = metrics.render().decode().splitlines()
    assert "volcano_pod_preemption_victims 2.0" in lines


def test_what_cycles_notice_adds_up_under_volcanos_names_me1_me2() -> None:
    metrics = Metrics()
    report = reporting(metrics)
    sample = CycleSample(
        preemption_attempts=3,
        eviction_transactions={"preempt": 2, "shuffle": 5},
        watched_s=(0.25,),
        bound_s=(1.5,),
        figures=figures("g"),
    )
    waits = JobExplanation(job="ns/g", queue="q", gate="gang", message="")
    placement = PlacedJob(job="ns/h", since_s=2.0, tasks_since_s=(1.0, 0.5))
    for _ in range(2):
        report.sample(decision(Plan(cycle=1, explanations=(waits,)), sample, placement), now=100.0)
    lines = metrics.render().decode().splitlines()
    told = [line for line in lines if line.startswith("volcano_") and "_bucket" not in line]
    assert {
        "volcano_total_preemption_attempts 6.0",
        'volcano_eviction_transactions_total{action="preempt"} 4.0',
        "volcano_e2e_job_scheduling_latency_milliseconds_sum 4000.0",
        'volcano_task_scheduling_latency_milliseconds_sum{stage="Assumed"} 3000.0',
        'volcano_task_scheduling_latency_milliseconds_count{stage="Assumed"} 4.0',
        'volcano_task_scheduling_latency_milliseconds_sum{stage="Watched"} 500.0',
        'volcano_task_scheduling_latency_milliseconds_sum{stage="Bound"} 3000.0',
        'volcano_job_retry_counts{job_id="g"} 2.0',
    } <= set(told)
    assert not [line for line in told if "shuffle" in line]


def test_only_who_leads_shows_queues_and_jobs_me3() -> None:
    metrics = Metrics()
    report = reporting(metrics)
    report.leading(leads=True)
    report.sample(decision(Plan(cycle=1), CycleSample(figures=figures("g"))), now=0.0)
    assert b"volcano_job_share{" in metrics.render()
    report.leading(leads=False)
    assert b"volcano_job_share{" not in metrics.render()


def test_a_successor_announces_an_admission_of_the_same_version_under_the_same_id() -> None:
    ids: list[str] = []

    class EventPublisher:
        def publish(self, event: Event, identity: str) -> None:
            ids.append(identity)

    events = GangEvents(cast("Any", EventPublisher()), NO_SPANS)
    for term, cycle, rv in ((1, 7, "41"), (2, 1, "41"), (2, 2, "42"), (2, 3, ""), (3, 3, "")):
        event = GangAdmitted(gang="ns/g", uid="u", resource_version=rv)
        events.admitted(event, term=term, cycle=cycle, begun=0.0)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4
