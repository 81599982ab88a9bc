"""Reads what a kustomization builds, for kustomizations that are a plain list of resources.

`k8s/base` is kept that plain so that what the tests apply is what `kubectl apply -k` applies; a
member that this cannot read fails the test instead of being passed over.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BASE = ROOT / "k8s" / "base"


def build(folder: Path) -> list[dict]:
    """Return the objects of a kustomization and of those that it lists, in their order."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    beyond = kustomization.keys() - {"apiVersion", "kind", "resources"}
    assert not beyond, f"{folder}: kustomize would do more than put files together: {beyond}"
    objects = []
    for resource in kustomization["resources"]:
        path = folder / resource
        if path.is_dir():
            objects += build(path)
        else:
            objects += [found for found in yaml.safe_load_all(path.read_text()) if found]
    return objects


def named(objects: list[dict], kind: str, name: str) -> dict:
    """Return the one object of that kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found
