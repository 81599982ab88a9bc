"""The real API server takes every example as it stands."""

from pathlib import Path

import pytest
import yaml

from pumice.local.control_plane import ControlPlane
from tests.support.api import connect
from tests.support.manifests import ROOT, apply

EXAMPLES = ROOT / "examples"
FOR_OTHERS = {"local", "visibility"}
"""Folders of files that others read: `pumice up`, and visibility (see test_visibility_page.py)."""
OPERATORS = (
    *("argoproj.io", "dask.org", "kubeflow.org", "ray.io", "sparkoperator.k8s.io", "x-k8s.io"),
    "serving.volcano.sh",
)
"""Groups whose CRDs come with an operator: `make frameworks-check` runs these examples."""
CLUSTER_WIDE = {"Queue", "PriorityClass"}


def is_ours(path: Path) -> bool:
    manifests = yaml.safe_load_all(path.read_text())
    groups = (manifest["apiVersion"].partition("/")[0] for manifest in manifests)
    return path.parent.name not in FOR_OTHERS and not any(g.endswith(OPERATORS) for g in groups)


@pytest.mark.parametrize(
    "path",
    sorted(filter(is_ours, EXAMPLES.rglob("*.yaml"))),
    ids=lambda p: str(p.relative_to(EXAMPLES)),
)
async def test_the_api_server_takes_an_example(guarded_plane: ControlPlane, path: Path) -> None:
    async with connect(guarded_plane.kubeconfig) as api:
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest["kind"] not in CLUSTER_WIDE:
                manifest["metadata"].setdefault("namespace", "default")
            answer = await apply(api, manifest, dryRun="All")
            assert answer["metadata"]["name"] == manifest["metadata"]["name"]
