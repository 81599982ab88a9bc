"""Reads what a kustomization builds, for those that are a plain list of resources, and applies it.

`k8s/base` is kept that plain so that what the tests apply is what `kubectl apply -k` applies; a
member that this cannot read fails the test instead of being passed over.
"""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import yaml

from tests.support.api import Api

ROOT = Path(__file__).parents[2]
BASE = ROOT / "k8s" / "base"


def build(folder: Path) -> list[dict]:
    """Return the objects of a kustomization and of those that it lists, in their order.

    The caller may change them: they are its own copy of what is read once, as that takes long.
    """
    return copy.deepcopy(_built(folder))


@cache
def _built(folder: Path) -> list[dict]:
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
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    middle = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{middle}/{plural}/{meta['name']}"
