"""An aggregated API behind the real API server, over answers that a test gives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

from pumice.deploy import compose_setup
from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from services.visibility.adapters.registration import NAME
from services.visibility.settings import VisibilitySettings
from shared.kube.config import connect as connect_kube
from tests.support import roles
from tests.support.answers import FixedAnswers
from tests.support.api import Api, connect
from tests.support.manifests import BASE
from tests.support.visibility import serving_api
from tests.support.wait import until

API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{NAME}"


@pytest_asyncio.fixture(loop_scope="session")
async def told(control_plane: ControlPlane) -> AsyncIterator[FixedAnswers]:
    """Answers that the aggregated API of this test serves, under the role of k8s/base."""
    answers, port = FixedAnswers(), free_port()
    settings = VisibilitySettings(
        port=port, bind_address="127.0.0.1", service_port=port, installation="of-a-test"
    )
    account = roles.account(control_plane.kubeconfig, "visibility")
    async with connect(control_plane.kubeconfig) as api, manifests(api, port):
        kube = await connect_kube(str(account), user_agent="pumice-visibility")
        async with serving_api(settings, kube, answers):
            await available(api, "True")

            async def is_discovered() -> bool:
                return "visibility.pumice.dev" in await groups(api)

            await until(is_discovered, deadline_s=30, describe="discovery")
            yield answers


async def available(api: Api, status: str) -> None:
    """Wait until the APIService has this status ("True" or "False") of the condition Available."""

    async def has() -> bool:
        found = (await api.request("GET", API_SERVICE)).get("status", {})
        conditions = found.get("conditions", [])
        return [c["status"] for c in conditions if c["type"] == "Available"] == [status]

    await until(has, deadline_s=60, describe=f"available: {status}")


@asynccontextmanager
async def manifests(api: Api, port: int) -> AsyncIterator[None]:
    """The APIService of k8s/base, and a Service that leads to this process."""
    made = []
    try:
        for path, manifest in compose_setup.api_service(BASE):
            spec = manifest["spec"]
            if manifest["kind"] == "Service":
                spec["externalName"], spec["ports"][0]["port"] = "127.0.0.1", port
            else:
                spec["service"]["port"] = port
            await api.request("POST", path.rpartition("/")[0], manifest)
            made.append(path)
        yield
    finally:
        for path in reversed(made):
            await api.request("DELETE", path)


async def groups(api: Api) -> set[str]:
    found = await api.request("GET", "/apis")
    return {group["name"] for group in found["groups"]}
