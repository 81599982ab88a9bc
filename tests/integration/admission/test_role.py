"""Admission does all its work under exactly the role that k8s/base gives it."""

from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api
from tests.support.roles import account
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAMESPACE = "pumice-system"


async def test_its_role_is_enough_to_register_share_an_authority_and_judge(
    own_door: Door, api: Api, plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    kubeconfig = account(plane.kubeconfig, "admission")
    own_door.name = "pumice-admission"
    await api.create("queues", world.queue(space, weight=1))
    conf = tmp_path / "admission.yaml"
    conf.write_text(f"limits: [{{queue: {space}, users: ['*'], submitted: 1}}]")
    flags = {
        "admission_conf": str(conf),
        "kubeconfig": str(kubeconfig),
        "webhook_namespace": NAMESPACE,
        "unregister": "true",
        "installation": "of-this-test",
        "registration_lease": f"{space}/volcano",
    }
    replica = await own_door.start(**flags)
    assert (await api.get("secrets", NAMESPACE, "pumice-admission-ca"))["data"]["ca.crt"]
    job = world.job("j", world.task("w", 1), plugins={"nope": []})
    await own_door.refuses("jobs", job, space, words="unable to find job plugin: nope")
    await api.create("podgroups", world.group(), space)
    await api.create("jobs", world.job("first", world.task("w", 1), queue=space), space)
    beyond = world.job("second", world.task("w", 1), queue=space)
    await own_door.refuses("jobs", beyond, space, words="1 of 1 submitted jobs in queue")
    await own_door.remove()
    await until(own_door.registered, deadline_s=30, describe=lambda: replica.log)
    await replica.process.stop(grace_s=15)
    assert await own_door.registered() == []
    assert '"forbidden' not in replica.log
    assert "review_failed" not in replica.log
