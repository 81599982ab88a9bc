"""The lines of deployment.md that install, change and uninstall Pumice, on a real API server.

The line that waits for pods that run takes kubelets and the image, and is left out.
"""

from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from tests.support import pages
from tests.support.goprograms import at_a_terminal
from tests.support.pages import ON_KUBERNETES, runner

PAGE = pages.ROOT / "docs" / "deployment.md"
CLUSTER_WIDE = (
    "validatingwebhookconfigurations,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def scripts_under(heading: str) -> list[str]:
    """Return the lines of each block, which one shell runs: a block may define a function."""
    found = []
    for block in pages.blocks(PAGE):
        if block.heading == heading:
            apart = [c for c in block.commands if runner(PAGE.name, heading, c) != ON_KUBERNETES]
            lines = [line for line in block.text.splitlines() if not line.startswith(tuple(apart))]
            found.append("\n".join(("set -e", *lines)))
    return found


@pytest.mark.timeout(200)
async def test_pumice_is_installed_and_uninstalled_by_the_lines_of_the_page(
    programs: Path, tmp_path: Path
) -> None:
    install, uninstall = scripts_under("Kubernetes"), scripts_under("Uninstall")
    (to_three,) = scripts_under("Three NATS servers")
    assert len(install) >= 2
    assert len(uninstall) == 1
    async with ControlPlane(
        ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()
    ) as plane:

        def run(line: str) -> str:
            done = at_a_terminal(
                ["bash", "-o", "pipefail", "-c", line],
                programs=programs,
                cwd=pages.ROOT,
                KUBECONFIG=str(plane.kubeconfig),
            )
            assert done.returncode == 0, (line, done.stderr)
            return done.stdout

        left = f"kubectl get {CLUSTER_WIDE} -o name | grep pumice || true"
        run("kubectl create namespace team")
        for script in install:
            run(script)
        assert "clusterrole.rbac.authorization.k8s.io/pumice-cache" in run(left)
        run(to_three)
        replicas = "-o jsonpath={.spec.replicas},{.spec.serviceName}"
        servers = run(f"kubectl -n pumice-system get statefulset pumice-nats {replicas}")
        assert servers == "3,pumice-nats-peers"
        for script in uninstall:
            run(script)
        assert not run(left)
        assert "Terminating" in run("kubectl get namespaces pumice-system --ignore-not-found")
        run("kubectl get queues.scheduling.volcano.sh")
