"""The cache makes the two Leases that it needs and their namespace, and none besides."""

from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from tests.integration.deploy.test_roles import kubeconfig_of
from tests.support.api import Api, ApiError, connect, refusal
from tests.support.manifests import BASE, build, in_force
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAME = "pumice-cache-leases"
GROUP = "/apis/coordination.k8s.io/v1/namespaces"
OURS = "makes the Leases of Volcano, and their namespace, only"
ELSEWHERE = {"metadata": {"name": "volcano"}}
REFUSED = {
    "another Lease": (f"{GROUP}/volcano-system/leases", {"metadata": {"name": "other"}}),
    "in another namespace": (f"{GROUP}/kube-system/leases", ELSEWHERE),
    "another namespace": ("/api/v1/namespaces", {"metadata": {"name": "kube-other"}}),
}


async def said(api: Api, path: str, body: dict) -> str:
    return await refusal(api.request("POST", path, body))


async def test_the_cache_can_make_its_leases_and_no_other(
    guarded_plane: ControlPlane, tmp_path: Path
) -> None:
    guard = [o for o in build(BASE) if o["metadata"]["name"] == NAME]
    assert len(guard) == 2
    async with connect(guarded_plane.kubeconfig) as administrator:
        kubeconfig = await kubeconfig_of(administrator, guarded_plane, "cache", tmp_path)
        async with in_force(administrator, guard), connect(kubeconfig) as cache:

            async def stands() -> bool:
                """A policy takes a moment to be known; what came through meanwhile goes again."""
                path, body = REFUSED["in another namespace"]
                words = await said(cache, path, body)
                if not words:
                    await administrator.request("DELETE", f"{path}/volcano")
                return OURS in words

            await until(stands, deadline_s=30, describe="the policy counts")
            assert "exists" in await said(
                cache, "/api/v1/namespaces", {"metadata": {"name": "volcano-system"}}
            ) or await administrator.get("namespaces", "", "volcano-system")
            for path, body in REFUSED.values():
                assert OURS in await said(cache, path, body), path
            for name in ("volcano", "vc-controller-manager"):
                path = f"{GROUP}/volcano-system/leases"
                words = await said(cache, path, {"metadata": {"name": name}})
                assert OURS not in words, words
                await cache.request("GET", f"{path}/{name}")
                with pytest.raises(ApiError, match="403"):
                    await cache.request("DELETE", f"{path}/{name}")
