"""The controller makes keys of plugin ssh and no other Secret, reads none and deletes none."""

from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from tests.integration.deploy.test_roles import kubeconfig_of
from tests.support.api import Api, ApiError, connect, refusal
from tests.support.manifests import BASE, build, in_force
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAME = "pumice-controller-secrets"
OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "1-2"}
GOOD = {"metadata": {"name": "j-ssh", "ownerReferences": [OWNER]}, "data": {}}
BAD = {
    "without an owner": {"metadata": {"name": "j-ssh"}},
    "of another name": {"metadata": {"name": "db", "ownerReferences": [OWNER]}},
    "of another owner": {
        "metadata": {
            "name": "j-ssh",
            "ownerReferences": [{**OWNER, "apiVersion": "batch/v1"}],
        }
    },
    "a token that lets nodes join": {
        **GOOD,
        "type": "bootstrap.kubernetes.io/token",
    },
    "a token of an account": {
        "metadata": {
            **GOOD["metadata"],
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
        "type": "kubernetes.io/service-account-token",
    },
}


async def said(api: Api, body: dict, namespace: str) -> str:
    return await refusal(api.create("secrets", body, namespace))


async def test_the_controller_can_make_keys_of_jobs_and_nothing_else(
    guarded_plane: ControlPlane, tmp_path: Path
) -> None:
    guard = [o for o in build(BASE) if o["metadata"]["name"] == NAME]
    assert len(guard) == 2
    async with connect(guarded_plane.kubeconfig) as administrator:
        kubeconfig = await kubeconfig_of(administrator, guarded_plane, "controller", tmp_path)
        async with in_force(administrator, guard), connect(kubeconfig) as controller:
            ours = "makes Secrets for the plugin ssh of a Job only"
            bare = BAD["without an owner"]

            async def stands() -> bool:
                """A policy takes a moment to be known; what came through meanwhile goes again."""
                words = await said(controller, bare, "kube-system")
                if not words:
                    await administrator.delete("secrets", "kube-system", "j-ssh")
                return ours in words

            await until(stands, deadline_s=30, describe="the policy counts")
            for body in BAD.values():
                assert ours in await said(controller, body, "kube-system"), body
            assert await said(controller, GOOD, "default") == ""
            for asked in (
                controller.get("secrets", "default", "j-ssh"),
                controller.items("secrets", "default"),
                controller.patch("secrets", "default", "j-ssh", {}),
                controller.delete("secrets", "default", "j-ssh"),
            ):
                with pytest.raises(ApiError, match="403"):
                    await asked
            assert await said(administrator, {"metadata": {"name": "any"}}, "default") == ""
