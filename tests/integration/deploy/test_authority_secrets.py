"""Admission and visibility make the Secret of their certificate authority and no other."""

from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from tests.integration.deploy.test_roles import kubeconfig_of
from tests.support.api import Api, connect, refusal
from tests.support.manifests import BASE, build, in_force
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAME = "pumice-authority-secrets"
NAMESPACE = "pumice-system"
OURS = "make the Secret of their certificate authority only"
OTHERS = {"admission": "visibility", "visibility": "admission"}


async def said(api: Api, name: str, **more: object) -> str:
    return await refusal(api.create("secrets", {"metadata": {"name": name}, **more}, NAMESPACE))


@pytest.mark.parametrize("service", sorted(OTHERS))
async def test_a_service_can_make_the_secret_of_its_authority_and_no_other(
    guarded_plane: ControlPlane, tmp_path: Path, service: str
) -> None:
    guard = [o for o in build(BASE) if o["metadata"]["name"] == NAME]
    assert len(guard) == 2
    own = f"pumice-{service}-ca"
    async with connect(guarded_plane.kubeconfig) as administrator:
        kubeconfig = await kubeconfig_of(administrator, guarded_plane, service, tmp_path)
        async with in_force(administrator, guard), connect(kubeconfig) as api:

            async def stands() -> bool:
                """A policy takes a moment to be known; what came through meanwhile goes again."""
                words = await said(api, "any")
                if not words:
                    await administrator.delete("secrets", NAMESPACE, "any")
                return OURS in words

            await until(stands, deadline_s=30, describe="the policy counts")
            assert OURS in await said(api, f"pumice-{OTHERS[service]}-ca")
            assert OURS in await said(api, "pumice-nats-admin")
            assert OURS in await said(api, own, type="bootstrap.kubernetes.io/token")
            assert await said(api, own) == ""
            await administrator.delete("secrets", NAMESPACE, own)
            assert await said(administrator, "any") == ""
            await administrator.delete("secrets", NAMESPACE, "any")
