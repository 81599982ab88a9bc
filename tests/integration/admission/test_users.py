"""The user of an object on a real API server: by the webhook, and by the policy without it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.authority import ADMIN_NAME
from pumice.local.control_plane import ControlPlane
from shared.api import keys
from tests.integration.admission.conftest import Door
from tests.integration.deploy.tenants import tenant
from tests.support import world
from tests.support.api import Api, refusal
from tests.support.manifests import BASE, build, in_force
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

SUBMITTED_BY = "example.com/submitted-by"


@pytest_asyncio.fixture(loop_scope="session")
async def ann(plane: ControlPlane, api: Api, space: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A tenant with every right in a namespace of its own."""
    async with tenant(plane, api, f"{space}-ann", tmp_path, role="cluster-admin") as session:
        yield session


def user_of(obj: dict) -> str:
    found: str = obj["metadata"].get("annotations", {}).get(keys.USER, "")
    return found


def job(name: str, user: str = "") -> dict:
    stated = world.job(name, world.task("w", 1))
    if user:
        stated["metadata"]["annotations"] = {keys.USER: user}
    return stated


async def test_the_webhook_writes_the_requester_and_nobody_changes_it(
    own_door: Door, api: Api, ann: Api, space: str, tmp_path: Path
) -> None:
    own, name = f"{space}-ann", f"system:serviceaccount:{space}-ann:tenant"
    conf = tmp_path / "admission.yaml"
    conf.write_text(f"users: [{{requester: '{name}', annotation: {SUBMITTED_BY}}}]")
    await own_door.start(
        enabled_admission="/users/mutate",
        trusted_requesters=ADMIN_NAME,
        admission_conf=str(conf),
    )

    async def is_stamped() -> bool:
        made = await ann.create("jobs", job("probe", "bob"), own)
        await ann.delete("jobs", own, "probe")
        return user_of(made) == name

    await until(is_stamped, deadline_s=30, describe=own_door.services.logs)
    assert user_of(await ann.create("jobs", job("j"), own)) == name
    note = {"metadata": {"annotations": {keys.USER: "bob"}}}
    assert user_of(await ann.patch("jobs", own, "j", note)) == name
    note = {"metadata": {"annotations": {keys.USER: None}}}
    assert user_of(await ann.patch("jobs", own, "j", note)) == name
    assert user_of(await ann.create("pods", world.pod("bare"), own)) == name
    assert user_of(await ann.create("pods", world.pod("other", scheduler="else"), own)) == ""

    stated = world.group(metadata={"annotations": {keys.USER: "carl"}})
    assert user_of(await api.create("podgroups", stated, own)) == "carl"
    assert user_of(await api.create("jobs", job("k"), own)) == ADMIN_NAME

    owner = {"metadata": {"name": "owner", "annotations": {SUBMITTED_BY: "dora"}}}
    made = await api.create("configmaps", owner, own)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    pod = world.pod("owned", metadata={"ownerReferences": [reference]})
    assert user_of(await ann.create("pods", pod, own)) == "dora"


async def test_the_policy_refuses_another_user_without_admission(
    api: Api, ann: Api, space: str
) -> None:
    own, name = f"{space}-ann", f"system:serviceaccount:{space}-ann:tenant"
    policy = [o for o in build(BASE) if o["metadata"]["name"] == "pumice-user-annotations"]
    assert len(policy) == 2
    ours = "admission writes it"
    async with in_force(api, policy):

        async def stands() -> bool:
            words = await refusal(ann.create("jobs", job("probe", "bob"), own))
            if not words:
                await ann.delete("jobs", own, "probe")
            return ours in words

        await until(stands, deadline_s=30, describe="the policy counts")
        forged = world.group(metadata={"annotations": {keys.USER: "bob"}})
        assert ours in await refusal(ann.create("podgroups", forged, own))
        await ann.create("jobs", job("mine", name), own)
        await ann.create("jobs", job("nobody"), own)
        for about in ("mine", "nobody"):
            note = {"metadata": {"annotations": {keys.USER: "bob"}}}
            assert ours in await refusal(ann.patch("jobs", own, about, note))
        await ann.patch("jobs", own, "mine", {"metadata": {"labels": {"a": "b"}}})

    async def is_lifted() -> bool:
        if await refusal(ann.create("jobs", job("probe", "bob"), own)):
            return False
        await ann.delete("jobs", own, "probe")
        return True

    await until(is_lifted, deadline_s=30, describe="the policy counts no longer")
