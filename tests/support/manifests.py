"""Reads what a kustomization builds, and applies it.

`k8s/base` is kept a plain list of resources so that what the tests apply is what `kubectl apply -k`
applies; overlays add patches and images. A member that this cannot read fails the test instead of
being passed over, and `tests/integration/deploy/test_overlays.py` compares all with kubectl.
"""

import copy
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import yaml

from pumice.embedded.apiserver.patching import json_patch
from tests.support.api import Api

ROOT = Path(__file__).parents[2]
BASE = ROOT / "k8s" / "base"
OVERLAYS = ROOT / "k8s" / "overlays"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads YAML of the project eight times as fast where PyYAML comes with libyaml."""
WORKLOADS = ("Deployment", "StatefulSet")


def build(folder: Path) -> list[dict]:
    """Return the objects of a kustomization and of those that it lists, in their order.

    The caller may change them: they are its own copy of what is read once, as that takes long.
    """
    return copy.deepcopy(_built(folder))


@cache
def _built(folder: Path) -> list[dict]:
    return _resources(folder, _read(folder, {"resources"}))


def _read(folder: Path, understood: set[str]) -> dict:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    beyond = kustomization.keys() - {"apiVersion", "kind"} - understood
    assert not beyond, f"{folder}: kustomize would do more: {beyond}"
    return kustomization


def _resources(folder: Path, kustomization: dict) -> list[dict]:
    objects = []
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        if path.is_dir():
            objects += overlay(path) if path.parent == OVERLAYS else build(path)
        else:
            objects += [found for found in yaml.load_all(path.read_text(), LOADER) if found]
    return objects


def overlay(folder: Path) -> list[dict]:
    """Return the objects of an overlay: those it lists, patched, with its images."""
    kustomization = _read(folder, {"resources", "patches", "images", "components"})
    objects = _resources(folder, kustomization)
    for patch in kustomization.get("patches", []):
        objects = _patched(objects, patch)
    images = list(kustomization.get("images", []))
    for component in kustomization.get("components", []):
        images += _read(folder / component, {"images"})["images"]
    for container in _containers(objects):
        container["image"] = _renamed(container["image"], images)
    return objects


def meant(target: dict, o: dict) -> bool:
    """Tell whether the target of a patch means an object."""
    meta = o["metadata"]
    key, _, value = target.get("labelSelector", "").partition("=")
    return (
        target.get("kind") in {o["kind"], None}
        and re.fullmatch(target.get("name", ".*"), meta["name"]) is not None
        and target.get("namespace") in {meta.get("namespace"), None}
        and (not key or meta.get("labels", {}).get(key) == value)
    )


def _patched(objects: list[dict], patch: dict) -> list[dict]:
    operations, target = yaml.safe_load(patch["patch"]), patch["target"]
    if isinstance(operations, list):
        return [json_patch(o, operations) if meant(target, o) else o for o in objects]
    assert operations["$patch"] == "delete", "no other patch is read here"
    return [o for o in objects if not meant(target, o)]


def _containers(objects: list[dict]) -> list[dict]:
    pods = [o["spec"]["template"]["spec"] for o in objects if o["kind"] in WORKLOADS]
    return [container for pod in pods for container in pod["containers"]]


def _renamed(image: str, images: list[dict]) -> str:
    for entry in images:
        if image.rpartition(":")[0] == entry["name"]:
            end = f"@{entry['digest']}" if "digest" in entry else f":{image.rpartition(':')[2]}"
            return entry["newName"] + end
    return image


def named(objects: list[dict], kind: str, name: str) -> dict:
    """Return the one object of that kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def flags_of(objects: list[dict], service: str) -> list[str]:
    """Return the flags of a service's Deployment without those that name files."""
    pod = named(objects, "Deployment", f"pumice-{service}")["spec"]["template"]["spec"]
    return [arg for arg in pod["containers"][0]["args"] if "-file=" not in arg]


async def apply(api: Api, manifest: dict, **params: str) -> dict:
    """Apply one manifest as `kubectl apply --server-side` does; unknown fields are refused."""
    return await api.request(
        "PATCH",
        path_of(manifest),
        manifest,
        content_type="application/apply-patch+yaml",
        params={"fieldManager": "test", "fieldValidation": "Strict", **params},
    )


@asynccontextmanager
async def in_force(api: Api, manifests: list[dict]) -> AsyncIterator[None]:
    """Apply manifests, and delete their objects at the end, however it comes."""
    for manifest in manifests:
        await apply(api, manifest)
    try:
        yield
    finally:
        for manifest in manifests:
            await api.request("DELETE", path_of(manifest))


def path_of(manifest: dict) -> str:
    """Return the path of an object by the rules that kubectl uses for these kinds."""
    group_version, meta = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    kind = manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    if kind.endswith("y"):
        plural = f"{kind[:-1]}ies"
    middle = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{middle}/{plural}/{meta['name']}"


def key_of(manifest: dict) -> tuple[str, str, str]:
    """Return what tells an object from all others, to sort by."""
    meta = manifest["metadata"]
    return (manifest["kind"], meta.get("namespace", ""), meta["name"])
