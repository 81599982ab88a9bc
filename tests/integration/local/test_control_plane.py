"""The control plane that all integration tests stand on does what a real one does."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import msgspec
import pytest

from pumice.local import admin
from pumice.local.fleet import NodeShape
from pumice.local.versions import versions
from tests.support.wait import until


@pytest.fixture
async def client(control_plane):
    async with admin.connect(control_plane.url, control_plane.pki) as connected:
        yield connected


@pytest.fixture
async def node(control_plane):
    await control_plane.add_nodes(NodeShape(count=1, cpu="64", prefix="local-stack"))
    return "local-stack-0"


async def pod_on(client, namespace, node, name, annotations=None):
    body = {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = await client.request("POST", path, body=msgspec.json.encode(body))
    assert answer.ok, answer
    return f"{path}/{name}"


async def reaches(client, path, phase):
    async def probe():
        pod = (await client.request("GET", path)).body
        return pod if pod["status"]["phase"] == phase else None

    return await until(probe, describe=f"{path} is {phase}")


async def test_the_server_is_the_pinned_release(client):
    answer = await client.request("GET", "/version")
    assert answer.body["gitVersion"] == f"v{versions().parts['kubernetes']}"


async def disappears(client, path):
    async def gone():
        return (await client.request("GET", path)).status == 404

    await until(gone, describe=f"{path} is gone")


async def test_a_volume_that_no_claim_has_is_gone_once_it_is_deleted(client, namespace):
    body = {
        "metadata": {"name": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp/none"},
        },
    }
    path = "/api/v1/persistentvolumes"
    answer = await client.request("POST", path, body=msgspec.json.encode(body))
    assert answer.ok, answer
    await client.request("DELETE", f"{path}/{namespace}")
    await disappears(client, f"{path}/{namespace}")


async def test_a_bound_pod_runs_until_it_is_deleted(client, namespace, node):
    path = await pod_on(client, namespace, node, "forever")
    pod = await reaches(client, path, "Running")
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert pod["status"]["podIP"]
    await client.request("DELETE", path)
    await disappears(client, path)


async def test_a_pod_made_in_the_place_of_a_deleted_one_is_left_alone(client, namespace, node):
    """KWOK deletes by name: two deletes of one pod would end its successor, too."""

    async def replaced(name):
        path = await pod_on(client, namespace, node, name)
        await reaches(client, path, "Running")
        await client.request("DELETE", path)
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        data = msgspec.json.encode(body)
        parent = path.rpartition("/")[0]

        async def made():
            answer = await client.request("POST", parent, body=data)
            return answer if answer.ok else None

        return (await until(made, describe=f"{name} is made anew", every_s=0)).body

    names = [f"again-{number}" for number in range(24)]
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(replaced(name), name=name) for name in names]
    last = await pod_on(client, namespace, node, "last")  # KWOK has seen all that came before it
    await reaches(client, last, "Running")
    left = (await client.request("GET", last.rpartition("/")[0])).body["items"]
    uids = {pod["metadata"]["uid"] for pod in left}
    assert [task.get_name() for task in made if task.result()["metadata"]["uid"] not in uids] == []


@pytest.mark.parametrize(
    ("code", "phase"), [("0", "Succeeded"), ("137", "Failed")], ids=["success", "failure"]
)
async def test_an_annotated_pod_ends_with_its_exit_code(client, namespace, node, code, phase):
    annotations = {"pumice.dev/run-seconds": "0.2", "pumice.dev/exit-code": code}
    path = await pod_on(client, namespace, node, "task", annotations)
    pod = await reaches(client, path, phase)
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == int(code)


async def test_a_stranger_may_do_nothing(control_plane):
    tls = ssl.create_default_context(cafile=str(control_plane.pki.ca))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
        session.get(f"{control_plane.url}/api/v1/pods") as answer,
    ):
        assert answer.status == 403


def test_only_the_owner_reads_the_credentials(control_plane):
    private: list[Path] = [control_plane.kubeconfig, *(control_plane.directory / "pki").iterdir()]
    assert [path for path in private if path.stat().st_mode & 0o077] == []
    assert control_plane.directory.stat().st_mode & 0o077 == 0
