"""The keys of plugin ssh on a real API server: made by the controller, and made once (JP3)."""

import pytest

from tests.integration.controller.conftest import Hand, services_of_a_test
from tests.support.fleet import Fleet
from tests.support.world import job, task

pytestmark = pytest.mark.asyncio(loop_scope="session")


services = services_of_a_test


async def test_the_keys_of_a_job_outlive_the_controller_jp3(services: Fleet, hand: Hand) -> None:
    """Pods that run have read them: a new controller must not make others."""
    first = await services.start("controller", instance="a")
    await hand.submit(job("keyed", task("a", 1), plugins={"ssh": []}))
    await hand.wait_pods(1)
    name = "keyed-ssh"
    made = await hand.api.get("secrets", hand.namespace, name)
    assert set(made["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
    first.kill()
    await services.start("controller", instance="b")
    scaled = await hand.job("keyed")
    scaled["spec"]["tasks"][0]["replicas"] = 2
    await hand.api.patch("jobs", hand.namespace, "keyed", {"spec": scaled["spec"]})
    await hand.wait_pods(2)
    kept = await hand.api.get("secrets", hand.namespace, name)
    assert kept["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
