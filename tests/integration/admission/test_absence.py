"""Admission away: killed, ended, replaced; what the controller says meanwhile (W01)."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local.control_plane import ControlPlane
from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet, fleet
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


def small_job(name: str = "j", **extra) -> dict:
    return world.job(name, world.task("w", 1, cpu="100m", memory="16Mi"), **extra)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def controller(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    """Cache and controller, which hold bad jobs back when nobody refused them."""
    async with fleet(plane, tmp_path_factory.mktemp("controller")) as services:
        await services.start_all("cache", "controller")
        yield services


async def test_a_bad_job_that_came_in_while_admission_was_away_says_why_it_waits_w20(
    own_door: Door, api: Api, space: str, controller: Fleet
) -> None:
    replica = await own_door.start()
    bad = small_job(plugins={"nope": []})
    refused = await own_door.refuses("jobs", bad, space, words="spec.plugins.nope")
    replica.kill()
    assert await own_door.said("jobs", bad, space) == ""
    state: dict[str, str] = {}

    async def held() -> bool:
        nonlocal state
        found = await api.get("jobs", space, "j")
        state = found.get("status", {}).get("state", {})
        return state.get("reason") == "InvalidSpec"

    await until(held, deadline_s=30, describe=lambda: f"{state}\n{controller.logs()}")
    assert state["phase"] == "Pending"
    assert state["message"] in refused, "the controller says what the webhook would have said"


async def test_a_good_job_that_came_in_meanwhile_goes_on_as_if_nothing_had_been_w10(
    own_door: Door, api: Api, space: str, controller: Fleet
) -> None:
    replica = await own_door.start()
    await own_door.refuses(
        "jobs", small_job(plugins={"nope": []}), space, words="spec.plugins.nope"
    )
    replica.kill()
    bare = {**small_job("bare"), "spec": {"tasks": [{"replicas": 2, "template": _template()}]}}
    await api.create("jobs", bare, space)

    async def grouped() -> bool:
        groups = await api.items("podgroups", space)
        return any(group["spec"]["minMember"] == 2 for group in groups)

    await until(grouped, deadline_s=30, describe=controller.logs)


def _template() -> dict:
    return world.task("w", 1, cpu="100m", memory="16Mi")["template"]


async def test_a_job_of_the_default_queue_stays_in_the_queue_of_its_namespace_w40(
    own_door: Door, api: Api, space: str, controller: Fleet
) -> None:
    team = f"{space}-team"
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": {}}
    await api.create("queues", {**body, "metadata": {"name": team}})
    annotations = {"annotations": {"scheduling.volcano.sh/queue-name": team}}
    await api.patch("namespaces", "", space, {"metadata": annotations})
    await own_door.start()
    await own_door.refuses(
        "jobs", small_job(plugins={"nope": []}), space, words="spec.plugins.nope"
    )
    await api.create("jobs", small_job("scaled"), space)

    async def grouped(least: int) -> bool:
        return [
            (group["spec"]["queue"], group["spec"]["minMember"])
            for group in await api.items("podgroups", space)
        ] == [(team, least)]

    await until(lambda: grouped(1), deadline_s=30, describe=controller.logs)
    await api.patch("jobs", space, "scaled", {"spec": {"minAvailable": 0}})
    tasks = [world.task("w", 3, cpu="100m", memory="16Mi")]
    await api.patch("jobs", space, "scaled", {"spec": {"minAvailable": 3, "tasks": tasks}})
    await until(lambda: grouped(3), deadline_s=30, describe=controller.logs)


async def test_by_flag_nothing_is_admitted_while_it_is_away_w01(own_door: Door, space: str) -> None:
    replica = await own_door.start(failure_policy="Fail")
    await own_door.refuses(
        "jobs", small_job(plugins={"nope": []}), space, words="spec.plugins.nope"
    )
    replica.kill()
    assert "failed calling webhook" in await own_door.said("jobs", small_job(), space)


async def test_an_orderly_end_leaves_nothing_behind_by_flag_w01(own_door: Door) -> None:
    replica = await own_door.start(unregister="true")
    assert await own_door.registered()
    await replica.process.stop(grace_s=15)
    assert await own_door.registered() == []
    other = await own_door.start()
    await other.process.stop(grace_s=15)
    assert await own_door.registered() != []


async def test_nothing_is_registered_while_another_installation_holds_the_lease_w01(
    own_door: Door, api: Api, space: str
) -> None:
    lease = {"metadata": {"name": "volcano"}, "spec": {"holderIdentity": "volcano-scheduler_6a9b"}}
    await api.create("leases", lease, space)
    replica = await own_door.start(
        installation="of-this-test", registration_lease=f"{space}/volcano"
    )
    assert replica.process.pid, "it is ready, and not registered"
    assert await own_door.registered() == []
    await api.patch("leases", space, "volcano", {"spec": {"holderIdentity": None}})

    async def is_there() -> bool:
        return await own_door.registered() != []

    await until(is_there, deadline_s=40, describe=own_door.services.logs)


async def test_a_registration_that_somebody_changed_is_put_right_w01(
    own_door: Door, api: Api
) -> None:
    await own_door.start()
    good = await own_door.registered()
    await own_door.remove()

    async def back() -> bool:
        return await own_door.registered() == good

    await until(back, deadline_s=40, describe=own_door.services.logs)


async def test_resource_groups_are_registered_when_the_file_has_some_w30(
    own_door: Door, api: Api, space: str, tmp_path: Path
) -> None:
    conf = tmp_path / "admission.yaml"
    conf.write_text("resourceGroups: []\n")
    await own_door.start(admission_conf=str(conf))
    names = {hook["name"] for hook in await own_door.registered()}
    assert "mutatepod.volcano.sh" not in names
    group = f"{{resourceGroup: a, object: {{key: namespace, value: [{space}]}}, labels: {{x: y}}}}"
    conf.write_text(f"resourceGroups: [{group}]\n")

    async def asked() -> bool:
        found = {hook["name"] for hook in await own_door.registered()}
        return "mutatepod.volcano.sh" in found

    await until(asked, deadline_s=30, describe=own_door.services.logs)
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}

    async def placed() -> bool:
        pod["metadata"] = {"name": f"p-{secrets.token_hex(3)}"}
        made = await api.create("pods", pod, space)
        return bool(made["spec"].get("nodeSelector") == {"x": "y"})

    await until(placed, deadline_s=30, describe=own_door.services.logs)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"webhook_url": ""}, "where does the API server find us? Give --webhook-url"),
        ({"webhook_url": "http://here"}, "--webhook-url: 'http://here' is no address"),
        ({"tls_cert_file": "/x"}, "--tls-cert-file and --tls-private-key-file go together"),
        (
            {"tls_cert_file": "/x", "tls_private_key_file": "/y"},
            "--tls-cert-file: cannot read /x",
        ),
        ({"enabled_admission": "/jobs/guess"}, "--enabled-admission: /jobs/guess: there are"),
        ({"admission_conf": "/nowhere"}, "--admission-conf: /nowhere"),
        ({"failure_policy": "Perhaps"}, "failure-policy"),
        ({"webhook_timeout": "45s"}, "webhook-timeout"),
    ],
)
async def test_settings_that_cannot_work_end_the_start_with_one_line(
    flags: dict[str, str], words: str, own_door: Door
) -> None:
    replica = await own_door.start(wait=False, **flags)
    await until(lambda: not replica.process.pid, deadline_s=30, describe=lambda: replica.log)
    assert words in replica.log.splitlines()[-1], replica.log
    assert replica.process.exit_code == 2


async def test_a_taken_port_is_said_w01(own_door: Door) -> None:
    await own_door.start()
    second = await own_door.start(wait=False, instance="second")
    await until(lambda: not second.process.pid, deadline_s=30, describe=lambda: second.log)
    assert f"port {own_door.port} is taken" in second.log
