"""A control plane of this folder's own: with the roles of k8s/base and an audit log to judge by."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.admin import NodeShape
from pumice.local.control_plane import ControlPlane
from tests.support.api import Api, connect
from tests.support.manifests import BASE, build
from tests.support.stack import real_plane

RBAC = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def guarded_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane with our roles, three nodes and an audit log."""
    async with real_plane(tmp_path_factory.mktemp("guarded"), audit_log=True) as plane:
        await plane.add_nodes(NodeShape(count=3))
        async with connect(plane.kubeconfig) as api:
            for manifest in build(BASE):
                if manifest["kind"] in RBAC:
                    await apply(api, manifest)
        yield plane


async def apply(api: Api, manifest: dict, **params: str) -> dict:
    """Apply one manifest as `kubectl apply --server-side` does; unknown fields are refused."""
    return await api.request(
        "PATCH",
        path_of(manifest),
        manifest,
        content_type="application/apply-patch+yaml",
        params={"fieldManager": "test", "fieldValidation": "Strict", **params},
    )


def path_of(manifest: dict) -> str:
    """Return the path of an object by the rules that kubectl uses for these kinds."""
    group_version, meta = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    kind = manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    middle = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{middle}/{plural}/{meta['name']}"


def log_lines(plane: ControlPlane) -> Path:
    """Return the audit log: a JSON object per request."""
    return plane.logs / "audit.log"
