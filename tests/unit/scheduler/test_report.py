"""What a scheduler counts of its cycles, under Volcano's names where it has one (ME1, ME2)."""

from typing import Any, cast

import structlog

from services.scheduler.adapters.report import Report
from services.scheduler.engine.plan import Eviction, Plan
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics


def test_victims_are_told_under_volcanos_own_name_me2() -> None:
    metrics = Metrics()
    report = Report(
        metrics=metrics,
        events=cast("Any", None),  # what is measured here tells subscribers nothing
        gate=Readiness().gate("cycles"),
        log=structlog.get_logger(),
    )
    victims = tuple(
        Eviction(pod=f"ns/{n}", uid=n, node="n", job="ns/j", reason="preempt") for n in "ab"
    )
    for cycle, evictions in enumerate((victims, ())):
        report.cycle(Plan(cycle=cycle, evictions=evictions), decide_s=0.0, publish_s=0.0)
    lines = metrics.render().decode().splitlines()
    assert "volcano_pod_preemption_victims 2.0" in lines
