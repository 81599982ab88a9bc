"""Webhooks and the aggregated API are those of the installation that holds the Lease."""

from contextlib import suppress
from typing import Any

import pytest
import structlog

from services.admission.adapters import registration as admission
from services.admission.rules.catalogue import HOOKS
from services.admission.rules.review import Terms
from services.visibility.adapters import registration as visibility
from shared.api.kinds import APISERVICE, LEASE, MUTATING_WEBHOOKS, NAMESPACE, SERVICE, Kind
from shared.kube.client import Kube
from shared.kube.installation import HoldersRegistration, InstallationLease
from shared.runtime.errors import Rejected, Retryable
from tests.unit.controller.reconcilers import Process, Stage

LEASE_NAME = "default/volcano"


class Cluster:
    """An API server, and installations that register with it."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.kube = Kube(transport=Process(self.stage))

    def held(self, holder: str, installation: str = "") -> None:
        """Have somebody hold the Lease."""
        annotations = {"pumice.dev/installation": installation or None}
        body = {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}}
        if self.stage.items(LEASE):
            self.stage.ask("PATCH", LEASE, "volcano", body)
        else:
            self.stage.create(LEASE, "volcano", {})
            self.held(holder, installation)

    def installation(self, name: str, port: int, *, service: str) -> HoldersRegistration:
        """Return what an installation at a port registers of one service."""
        lease = InstallationLease(self.kube, installation=name, lease=LEASE_NAME)
        made = self._admission(port) if service == "admission" else self._visibility(port)
        return HoldersRegistration(made, lease, structlog.get_logger())

    def _admission(self, port: int) -> admission.WebhookRegistration:
        return admission.WebhookRegistration(
            self.kube,
            name="pumice-local-admission",
            address=admission.WebhookAddress(url=f"https://127.0.0.1:{port}"),
            hooks=list(HOOKS.values()),
            terms=Terms,
            failure_policy="Ignore",
            timeout_s=5,
            log=structlog.get_logger(),
        )

    def _visibility(self, port: int) -> visibility.VisibilityRegistration:
        address = visibility.VisibilityAddress(
            namespace="default", service="pumice", port=port, external_name="127.0.0.1"
        )
        clock, log = self.stage.clock, structlog.get_logger()
        return visibility.VisibilityRegistration(self.kube, address, clock=clock, log=log)

    def ports(self, service: str) -> set[int]:
        """Return the ports that the API server is led to."""
        if service == "admission":
            urls = [
                webhook["clientConfig"]["url"]
                for found in self.items(MUTATING_WEBHOOKS)
                for webhook in found["webhooks"]
            ]
            return {int(url.split(":")[2].partition("/")[0]) for url in urls}
        found = {item["spec"]["service"]["port"] for item in self.items(APISERVICE)}
        names = [i for i in self.items(SERVICE) if i["spec"]["type"] == "ExternalName"]
        return found | {item["spec"]["ports"][0]["port"] for item in names}

    def items(self, kind: Kind) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        return self.stage.items(kind)


async def keeps(registration: HoldersRegistration) -> None:
    """Keep the registration once, whether or not the API server reaches it."""
    with suppress(Retryable):
        await registration.ensure("BUNDLE")


@pytest.mark.parametrize("service", ["admission", "visibility"])
async def test_one_that_waits_for_the_lease_leaves_what_is_registered_and_its_end_too(
    service: str,
) -> None:
    cluster = Cluster()
    first = cluster.installation("first", 8001, service=service)
    second = cluster.installation("second", 8002, service=service)
    await keeps(first)
    cluster.held("pumice-local-0123456789", "first")
    await keeps(first)
    for _ in range(3):
        await keeps(second)
        assert cluster.ports(service) == {8001}
    await second.remove()
    assert cluster.ports(service) == {8001}


@pytest.mark.parametrize("service", ["admission", "visibility"])
async def test_who_takes_the_lease_registers_and_the_former_holder_harms_it_no_more(
    service: str,
) -> None:
    cluster = Cluster()
    first = cluster.installation("first", 8001, service=service)
    second = cluster.installation("second", 8002, service=service)
    cluster.held("pumice-local-0123456789", "first")
    await keeps(first)
    cluster.held("pumice-local-abcdefabcd", "second")
    await keeps(second)
    assert cluster.ports(service) == {8002}
    await keeps(first)
    await first.remove()
    assert cluster.ports(service) == {8002}
    await second.remove()
    assert cluster.ports(service) == set()


@pytest.mark.parametrize("service", ["admission", "visibility"])
async def test_one_that_lost_the_lease_takes_back_what_leads_to_it(service: str) -> None:
    cluster = Cluster()
    first = cluster.installation("first", 8001, service=service)
    await keeps(first)
    cluster.held("node-1_6a9b1d7e-0f43-4b3e-9a0e-6d8a3c1e2f00")
    await keeps(first)
    assert cluster.ports(service) == set()


@pytest.mark.parametrize(
    ("holder", "installation", "registers"),
    [
        ("", "", True),
        ("pumice-main-0123456789", "mine", True),
        ("pumice-main-0123456789", "", True),
        ("pumice-main-0123456789", "other", False),
        ("volcano-scheduler_6a9b", "", False),
    ],
    ids=["free", "ours", "of an earlier release", "another's", "Volcano's"],
)
async def test_who_may_register(holder: str, installation: str, registers: bool) -> None:
    cluster = Cluster()
    if holder:
        cluster.held(holder, installation)
    mine = cluster.installation("mine", 8001, service="admission")
    await keeps(mine)
    assert cluster.ports("admission") == ({8001} if registers else set())
    assert cluster.items(NAMESPACE)


def test_a_lease_without_its_namespace_is_refused() -> None:
    kube = Cluster().kube
    with pytest.raises(Rejected, match=r"registration-lease.*NAMESPACE/NAME"):
        InstallationLease(kube, installation="mine", lease="volcano")
    assert InstallationLease(kube, installation="", lease="")
