"""The lines of visibility.md with kubectl, on a local cluster whose answers the test gives."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pumice.local.ports import free_port
from services.visibility.settings import VisibilitySettings
from shared.kube.config import connect as connect_kube
from tests.support import pages
from tests.support.answers import FixedAnswers, explained, lived, pending, tree
from tests.support.stack import embedded_plane
from tests.support.visibility import serving_api

PAGE = pages.ROOT / "docs" / "visibility.md"
LINES = [
    line for block in pages.blocks(PAGE) if block.heading == "Questions" for line in block.commands
]
SAYS = {
    "kubectl get pendingjobs": "nvidia.com/gpu 4 (2 free)",
    "kubectl get pendingjobs -A": "2 of 4 pods fit",
    "kubectl get pendingjobs my-job": "position: 1",
    "kubectl get explanations my-job": "gang",
    "kubectl get explanations my-job -o": "of-other",
    "kubectl get timelines": "1m15s",
    "kubectl get queuetrees": "cpu=8",
    "kubectl get --raw": '"kind":"PendingJobList"',
    "kubectl create -f": "startsNow: true",
    "kubectl explain": "Half of the draws",
}
"""Beginnings of lines, of which the longest counts, and what their output must have."""


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """A cluster where one job waits, and the kubeconfig of its administrator."""
    told = FixedAnswers(
        jobs=[pending("default", "my-job")],
        queues=[tree("root"), tree("default", "root")],
        explanations={
            ("default", "my-job"): explained("default", "my-job", held_in=["default", "other"])
        },
        timelines={("default", "my-job"): lived("default", "my-job")},
    )
    async with embedded_plane(tmp_path / "cluster", crds=False) as plane:
        kube = await connect_kube(str(plane.kubeconfig), user_agent="pumice-visibility")
        settings = VisibilitySettings(
            port=free_port(),
            bind_address="127.0.0.1",
            external_name="127.0.0.1",
            service_namespace="kube-system",
        )
        async with serving_api(settings, kube, told):
            yield plane.kubeconfig


async def test_each_line_is_answered(kubeconfig: Path, programs: Path, tmp_path: Path) -> None:
    assert LINES
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}
    environ["PATH"] = f"{programs}:{environ['PATH']}"
    for line in LINES:
        done = await asyncio.create_subprocess_exec(
            *("bash", "-c", line),
            cwd=pages.ROOT,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await done.communicate()
        assert (done.returncode, err.decode()) == (0, ""), line
        wanted = SAYS[max((start for start in SAYS if line.startswith(start)), key=len)]
        assert wanted in out.decode(), (line, out.decode())
