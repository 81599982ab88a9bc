"""The lines of upgrading.md on a real API server that has the manifests of this checkout.

Lines that wait for running pods need kubelets and the image, and are left out.
"""

import subprocess
from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from tests.support import pages
from tests.support.goprograms import at_a_terminal

PAGE = pages.ROOT / "docs" / "upgrading.md"
DEPLOYMENTS = "kubectl -n pumice-system get deployments -o name"
CLOSE_RULES = "kubectl delete clusterrole pumice-binder"
"""A right that the other build did not have."""


def scripts_under(heading: str) -> list[str]:
    """Return the blocks under a heading without the lines that wait for pods."""
    found = []
    for block in pages.blocks(PAGE):
        if block.heading == heading:
            lines = [line for line in block.text.splitlines() if "rollout status" not in line]
            found.append("\n".join(("set -e", *lines)))
    return found


@pytest.mark.timeout(200)
async def test_an_installation_is_upgraded_and_taken_back_by_the_lines_of_the_page(
    programs: Path, tmp_path: Path
) -> None:
    there, back = scripts_under("In which order")
    async with ControlPlane(
        ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()
    ) as plane:

        def run(script: str) -> str:
            done: subprocess.CompletedProcess[str] = at_a_terminal(
                ["bash", "-o", "pipefail", "-c", script],
                programs=programs,
                cwd=pages.ROOT,
                KUBECONFIG=str(plane.kubeconfig),
            )
            assert done.returncode == 0, (script, done.stderr)
            return done.stdout

        run("kubectl create namespace pumice-system")
        run("kubectl apply --server-side -k k8s/base")
        deployments = run(DEPLOYMENTS)
        run(CLOSE_RULES)
        run(there)
        assert run(DEPLOYMENTS) == deployments
        assert not run("kubectl diff --server-side -k k8s/base")
        run(back)
        assert not run("kubectl diff --server-side -k k8s/base")
