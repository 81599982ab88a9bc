"""One job's trace in OpenTelemetry: spans of all services, on the real API server."""

from pathlib import Path

import pytest

from pumice.local.fleet import NodeShape
from shared.api.scheduling import podgroup_of
from shared.runtime.spans import root_id, trace_id
from tests.support.api import connect
from tests.support.collector import Collector
from tests.support.pumice_run import pumice_run
from tests.support.roles import run_flags
from tests.support.stack import real_plane
from tests.support.wait import until
from tests.support.world import job, task

SERVICES = {"admission", "cache", "controller", "scheduler", "binder"}


@pytest.mark.timeout(240)
async def test_the_spans_of_all_services_join_into_one_trace_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Collector() as collector, real_plane(tmp_path / "plane") as plane:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        words = ("--kubeconfig", str(plane.kubeconfig), *run_flags(plane.kubeconfig))
        words += ("--data-dir", str(tmp_path / "run"))
        async with connect(plane.kubeconfig) as api, pumice_run(*words) as services:
            await services.ready()
            await plane.add_nodes(NodeShape(count=2, cpu="4", memory="16Gi"))
            short = {"pumice.dev/run-seconds": "1"}
            made = await api.create(
                "jobs", job("train", task("work", 3, annotations=short)), "default"
            )
            cause = podgroup_of("default/train", made["metadata"]["uid"])
            trace, root = trace_id("local", cause), root_id("local", cause)

            await until(
                lambda: any(span.id == root for span in collector.of(trace)),
                deadline_s=90,
                describe=lambda: f"the job's own span comes: {collector.of(trace)}",
            )
            await until(
                lambda: (
                    {span.service for span in collector.of(trace)}
                    == {f"pumice-{service}" for service in SERVICES}
                ),
                deadline_s=10,
                describe=lambda: f"all services: {sorted({s[:2] for s in collector.of(trace)})}",
            )
            await services.stop()
        spans = collector.of(trace)
        (whole,) = [span for span in spans if span.id == root]
        assert (whole.name, whole.facts["pumice.phase"]) == ("job", "Completed")
        assert {span.parent for span in spans if span is not whole} == {root}
        names = {(span.service.removeprefix("pumice-"), span.name) for span in spans}
        assert {
            ("admission", "review"),
            ("cache", "publish jobs"),
            ("cache", "publish pods"),
            ("controller", "create pods"),
            ("scheduler", "admit gang"),
            ("scheduler", "place gang"),
            ("binder", "bind"),
        } <= names
        (bind,) = [span for span in spans if span.name == "bind"]
        assert bind.facts["pumice.bound"] == 3
        assert all(0 <= span.seconds <= whole.seconds + 1 for span in spans)
