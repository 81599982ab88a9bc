"""A run on the real API server: `pumice trace`, and the spans of the same jobs in OpenTelemetry."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from pumice.local.fleet import NodeShape
from shared.api.scheduling import podgroup_of
from shared.runtime.spans import root_id, trace_id
from tests.support.api import Api, connect
from tests.support.collector import Collector
from tests.support.program import completed
from tests.support.pumice_run import Run, pumice_run
from tests.support.roles import run_flags
from tests.support.stack import real_plane
from tests.support.wait import until
from tests.support.world import job, task

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

SERVICES = {"admission", "cache", "controller", "scheduler", "binder"}
SHORT = {"pumice.dev/run-seconds": "2"}
STAGES = ["waits for a node", "is bound", "starts", "runs"]


class Traced(NamedTuple):
    """The services of a run that hands its spans to a collector."""

    api: Api
    collector: Collector
    services: Run
    data: Path

    async def trace(self, *words: str) -> tuple[int | None, str, str]:
        """Run `pumice trace`; returns exit code, stdout and stderr."""
        command = (sys.executable, "-m", "pumice", "trace")
        return await completed(*command, *words, "--data-dir", str(self.data))

    async def completes(self, name: str) -> None:
        """Wait until a job has completed."""

        async def has_phase() -> bool:
            found = await self.api.get("jobs", "default", name)
            return found.get("status", {}).get("state", {}).get("phase") == "Completed"

        await until(has_phase, deadline_s=90, describe=f"{name} completes")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    """Two nodes of four CPUs and all services."""
    folder = tmp_path_factory.mktemp("traced")
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with Collector() as collector, real_plane(folder / "plane") as plane:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
            words = ("--kubeconfig", str(plane.kubeconfig), *run_flags(plane.kubeconfig))
            words += ("--data-dir", str(folder / "run"))
            async with connect(plane.kubeconfig) as api, pumice_run(*words) as services:
                await services.ready()
                await plane.add_nodes(NodeShape(count=2, cpu="4", memory="16Gi"))
                yield Traced(api, collector, services, folder / "run")
                await services.stop()


async def test_the_spans_of_all_services_join_into_one_trace_of_a_job(run: Traced) -> None:
    made = await run.api.create("jobs", job("train", task("work", 3, annotations=SHORT)), "default")
    cause = podgroup_of("default/train", made["metadata"]["uid"])
    trace, root = trace_id("local", cause), root_id("local", cause)
    collector = run.collector
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

    def names() -> set[tuple[str, str]]:
        spans = collector.of(trace)
        return {(span.service.removeprefix("pumice-"), span.name) for span in spans}

    wanted = {
        ("admission", "review"),
        ("cache", "publish jobs"),
        ("cache", "publish pods"),
        ("controller", "create pods"),
        ("scheduler", "admit gang"),
        ("scheduler", "place gang"),
        ("binder", "bind"),
    }
    await until(
        lambda: wanted <= names(), deadline_s=10, describe=lambda: f"{wanted - names()} are missing"
    )
    spans = collector.of(trace)
    (whole,) = [span for span in spans if span.id == root]
    assert (whole.name, whole.facts["pumice.phase"]) == ("job", "Completed")
    assert {span.parent for span in spans if span is not whole} == {root}
    (bind,) = [span for span in spans if span.name == "bind"]
    assert bind.facts["pumice.bound"] == 3
    assert all(0 <= span.seconds <= whole.seconds + 1 for span in spans)


async def test_trace_tells_a_gangs_life_and_why_another_waits(run: Traced) -> None:
    api = run.api
    await api.create("jobs", job("whole", task("work", 3, annotations=SHORT)), "default")
    await api.create("jobs", job("wide", task("work", 1, cpu="5")), "default")
    await run.completes("whole")

    code, out, err = await run.trace("whole", "-o", "json")
    assert (code, err) == (0, "")
    root = json.loads(out)
    assert (root["about"], root["detail"]) == ("default/whole", "Completed, queue default")
    names = [span["name"] for span in root["spans"]]
    order = ["waits for its queue", "placed", "phase Running", "phase Completed"]
    assert [name for name in names if name in order] == order
    pods = [span for span in root["spans"] if span["name"] == "pod"]
    assert sorted(pod["about"] for pod in pods) == [
        f"default/whole-work-{index}" for index in range(3)
    ]
    for pod in pods:
        assert [stage["name"] for stage in pod["spans"]] == STAGES
        assert pod["spans"][1]["detail"].startswith("node-")
        assert pod["spans"][1]["exact"]
        assert all(stage["durationSeconds"] >= 0 for stage in pod["spans"])

    async def is_told() -> bool:
        _, text, _ = await run.trace("default/wide")
        return "waits: predicate: 0/2 nodes are unavailable" in text

    await until(is_told, deadline_s=60, every_s=0.5, describe="why `wide` waits is told")

    code, out, err = await run.trace("whola")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: nothing is known of Job default/whola")
    assert "did you mean default/whole?" in err


async def test_trace_says_where_nothing_runs(run: Traced, tmp_path: Path) -> None:
    code, out, err = await run._replace(data=tmp_path).trace("whole")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "nothing runs in" in err
