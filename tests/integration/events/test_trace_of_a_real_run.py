"""`pumice trace` on the real API server: a gang's whole life, a job that waits, and refusals."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from pumice.local.fleet import NodeShape
from tests.support.api import connect
from tests.support.pumice_run import pumice_run
from tests.support.roles import run_flags
from tests.support.stack import real_plane
from tests.support.wait import until
from tests.support.world import job, task

SHORT = {"pumice.dev/run-seconds": "2"}
STAGES = ["waits for a node", "is bound", "starts", "runs"]


async def traced(*words):
    """Run `pumice trace`; returns exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pumice", "trace", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def has_phase(api, name, phase):
    found = await api.get("jobs", "default", name)
    return found.get("status", {}).get("state", {}).get("phase") == phase


@pytest.mark.timeout(240)
async def test_trace_tells_a_gangs_life_and_why_another_waits(tmp_path: Path) -> None:
    data = tmp_path / "run"
    where = ("--data-dir", str(data))
    async with real_plane(tmp_path / "plane") as plane:
        words = ("--kubeconfig", str(plane.kubeconfig), *run_flags(plane.kubeconfig))
        async with connect(plane.kubeconfig) as api, pumice_run(*words, *where) as services:
            await services.ready()
            await plane.add_nodes(NodeShape(count=2, cpu="4", memory="16Gi"))
            await api.create("jobs", job("whole", task("work", 3, annotations=SHORT)), "default")
            await api.create("jobs", job("wide", task("work", 1, cpu="5")), "default")
            await until(lambda: has_phase(api, "whole", "Completed"), deadline_s=90)

            code, out, err = await traced("whole", "-o", "json", *where)
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

            async def is_told():
                _, text, _ = await traced("default/wide", *where)
                return "waits: predicate: 0/2 nodes are unavailable" in text

            await until(is_told, deadline_s=60, every_s=0.5, describe="why `wide` waits is told")

            code, out, err = await traced("whola", *where)
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert err.startswith("error: nothing is known of Job default/whola")
            assert "did you mean default/whole?" in err
            await services.stop()
    code, out, err = await traced("whole", *where)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "nothing runs in" in err
