"""The lines of upgrading.md on a real API server that has the manifests of a former release.

Its manifests come from the history, as an administrator has them in another checkout. Lines that
wait for pods that run take kubelets and the image, and are left out.
"""

import subprocess
from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, Options
from tests.support import pages
from tests.support.goprograms import at_a_terminal
from tests.upgrade.former import former
from tests.upgrade.release import unpacked

PAGE = pages.ROOT / "docs" / "upgrading.md"
RELEASE = former()[-1]
DEPLOYMENTS = "kubectl -n pumice-system get deployments -o name"
RULES = "kubectl get clusterrole pumice-binder -o jsonpath={.rules}"


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
    before, without = scripts_under(f"From {RELEASE.name}")
    other = unpacked(RELEASE.revision, tmp_path / "other")
    async with ControlPlane(Options(directory=tmp_path / "plane"), parts.require()) as plane:

        def run(script: str, checkout: Path = pages.ROOT) -> str:
            done: subprocess.CompletedProcess[str] = at_a_terminal(
                ["bash", "-o", "pipefail", "-c", script],
                programs=programs,
                cwd=checkout,
                KUBECONFIG=str(plane.kubeconfig),
            )
            assert done.returncode == 0, (script, done.stderr)
            return done.stdout

        run("kubectl create namespace pumice-system")
        run("kubectl apply --server-side -k k8s/base", other)
        deployments, rules = run(DEPLOYMENTS), run(RULES)

        run(before)
        run(there)
        assert "deployment.apps/pumice-visibility" in run(DEPLOYMENTS)
        assert run(RULES) != rules
        assert not run("kubectl diff --server-side -k k8s/base")

        run(without)
        run(back, other)
        assert (run(DEPLOYMENTS), run(RULES)) == (deployments, rules)
