"""A tenant closes no queue: neither with the policy of k8s/base nor where it is missing."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.integration.deploy.tenants import RBAC, tenant
from tests.integration.deploy.test_roles import start_all
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.fleet import Fleet, fleet
from tests.support.manifests import BASE, build, in_force
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

GUARD = [o for o in build(BASE) if o["kind"].startswith("ValidatingAdmissionPolicy")]
QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}


@pytest_asyncio.fixture(loop_scope="session")
async def administrator(guarded_plane: ControlPlane) -> AsyncIterator[Api]:
    async with connect(guarded_plane.kubeconfig) as api:
        yield api


async def make_queue(api: Api, name: str) -> None:
    await api.create("queues", world.queue(name, weight=1))


async def close(api: Api, queue: str, namespace: str) -> None:
    """Write a Command as `vcctl queue operate` does; it puts them into `default`."""
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": f"{queue}-closequeue-"},
        "action": "CloseQueue",
        "target": {**QUEUE, "name": queue},
    }
    await api.create("commands", body, namespace)


async def state(api: Api, queue: str) -> str:
    return (await api.get("queues", "", queue)).get("status", {}).get("state", "")


async def gone_from(api: Api, namespace: str, running: Fleet) -> None:
    async def none() -> bool:
        return await api.items("commands", namespace) == []

    await until(none, deadline_s=30, describe=running.logs)


async def test_without_the_policy_a_tenants_command_is_answered_and_has_no_effect(
    guarded_plane: ControlPlane, administrator: Api, tmp_path: Path
) -> None:
    async with (
        fleet(guarded_plane, tmp_path) as running,
        tenant(guarded_plane, administrator, "reaching", tmp_path) as user,
    ):
        await start_all(running, administrator, guarded_plane, tmp_path)
        await make_queue(administrator, "victim")

        async def is_open() -> bool:
            return await state(administrator, "victim") == "Open"

        await until(is_open, deadline_s=30, describe=running.logs)
        await close(user, "victim", "reaching")
        await gone_from(administrator, "reaching", running)
        assert await is_open()

        async def is_told() -> bool:
            events = await user.items("events", "reaching")
            return any(event["reason"] == "CommandIgnored" for event in events)

        await until(is_told, deadline_s=30, describe=running.logs)
        await close(administrator, "victim", "pumice-system")
        await gone_from(administrator, "pumice-system", running)
        assert await state(administrator, "victim") == "Closed", "our own namespace is trusted"


async def test_with_the_policy_commands_of_those_who_may_update_a_queue_count_from_anywhere(
    guarded_plane: ControlPlane, administrator: Api, tmp_path: Path
) -> None:
    async with (
        in_force(administrator, GUARD),
        fleet(guarded_plane, tmp_path) as running,
        tenant(guarded_plane, administrator, "guarded", tmp_path) as user,
    ):
        await start_all(running, administrator, guarded_plane, tmp_path)
        for name in ("theirs", "mine"):
            await make_queue(administrator, name)

        async def is_refused() -> bool:
            try:
                await close(user, "theirs", "guarded")
            except ApiError as error:
                return error.status == 403 and "needs the right to update" in error.message
            return False

        await until(is_refused, deadline_s=30, describe=running.logs)
        await let_update(administrator, "mine", "guarded")

        async def closes() -> bool:
            with contextlib.suppress(ApiError):  # its new right takes a moment to be known
                await close(user, "mine", "guarded")
            return await state(administrator, "mine") == "Closed"

        await until(closes, deadline_s=40, describe=running.logs)

        async def theirs_is_open() -> bool:
            return await state(administrator, "theirs") == "Open"

        await until(theirs_is_open, deadline_s=30, describe=running.logs)
        await close(administrator, "theirs", "default")
        await gone_from(administrator, "default", running)
        assert await state(administrator, "theirs") == "Closed", "as vcctl would"


async def let_update(api: Api, queue: str, namespace: str) -> None:
    """Give the tenant the right to update one queue."""
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [queue],
        "verbs": ["update"],
    }
    name = f"update-{queue}"
    await api.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    binding = {
        "metadata": {"name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    }
    await api.request("POST", f"{RBAC}/clusterrolebindings", binding)
