"""What kubectl builds of each overlay is what the other tests read of it, and a server takes it."""

import subprocess
from pathlib import Path

import pytest
import yaml

from pumice.local.control_plane import ControlPlane
from tests.support.api import connect
from tests.support.manifests import BASE, OVERLAYS, apply, build, in_force, key_of, overlay

each_overlay = pytest.mark.parametrize(
    "folder", sorted(path for path in OVERLAYS.iterdir()), ids=lambda path: path.name
)


def kustomized(programs: Path, folder: Path) -> list[dict]:
    """Return what `kubectl kustomize` prints."""
    done = subprocess.run(
        [programs / "kubectl", "kustomize", folder], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def sorted_by_name(objects: list[dict]) -> list[dict]:
    """Return objects in an order of their own: kubectl has another than the files."""
    return sorted(objects, key=key_of)


@each_overlay
def test_kubectl_builds_what_the_tests_read(programs: Path, folder: Path) -> None:
    assert sorted_by_name(kustomized(programs, folder)) == sorted_by_name(overlay(folder))


@pytest.mark.parametrize("name", ["base", "event-webhook", "monitoring"])
def test_kubectl_builds_of_a_plain_list_what_the_tests_read(programs: Path, name: str) -> None:
    folder = BASE.with_name(name)
    assert sorted_by_name(kustomized(programs, folder)) == sorted_by_name(build(folder))


@each_overlay
async def test_the_api_server_takes_an_overlay(guarded_plane: ControlPlane, folder: Path) -> None:
    """Nothing stays (dry run, in a namespace that is deleted); unknown fields would be refused."""
    manifests = overlay(folder)
    of_its_own = [m for m in manifests if m["kind"] == "Namespace" and m not in build(BASE)]
    async with connect(guarded_plane.kubeconfig) as api, in_force(api, of_its_own):
        for manifest in manifests:
            answer = await apply(api, manifest, dryRun="All")
            assert answer["metadata"]["name"] == manifest["metadata"]["name"]
