"""What the real API server answers to our writes: the contract that `shared.kube` stands on.

Each message text that `shared.kube.errors` looks at is held here to the server's own.
"""

import json
from pathlib import Path

import msgspec
import pytest

from shared.api.kinds import CRD, JOB, NODE, POD, PODGROUP, QUEUE, Kind
from shared.kube.client import Kube
from shared.kube.config import connect
from shared.kube.errors import AlreadyExists, Denied, Refused, WriteConflict
from shared.runtime.errors import Conflict, Gone
from tests.support.roles import Accounts
from tests.support.world import job, pod, task

OTHER = "11111111-1111-1111-1111-111111111111"


def custom(kind: Kind, name: str, **spec: object) -> dict[str, object]:
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


async def made(kube: Kube, kind: Kind, namespace: str, body: dict[str, object]) -> str:
    """Create an object and return its uid."""
    return str(json.loads(await kube.create(kind, namespace, body))["metadata"]["uid"])


async def read(kube: Kube, kind: Kind, namespace: str, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(await kube.get(kind, namespace, name))
    return found


async def test_a_patch_for_another_uid_is_gone(kube: Kube, namespace: str) -> None:
    uid = await made(kube, POD, namespace, pod("p"))
    labels = {"metadata": {"labels": {"a": "b"}}}
    with pytest.raises(Gone):
        await kube.patch(POD, namespace, "p", labels, uid=OTHER)
    with pytest.raises(Gone):
        await kube.patch(POD, namespace, "nobody", labels, uid=uid)
    changed = json.loads(await kube.patch(POD, namespace, "p", labels, uid=uid))
    assert changed["metadata"]["labels"] == {"a": "b"}


async def test_a_condition_is_merged_by_its_type_and_only_for_its_uid(
    kube: Kube, namespace: str
) -> None:
    uid = await made(kube, POD, namespace, pod("p"))

    async def patch(of: str, kind: str) -> None:
        condition = {"type": kind, "status": "False", "reason": "Unschedulable"}
        await kube.patch(
            POD,
            namespace,
            "p",
            {"status": {"conditions": [condition]}},
            uid=of,
            subresource="status",
            patch_type="strategic",
        )

    await patch(uid, "PodScheduled")
    await patch(uid, "Ready")
    with pytest.raises(Gone):
        await patch(OTHER, "Initialized")
    status = (await read(kube, POD, namespace, "p"))["status"]
    assert {c["type"] for c in status["conditions"]} == {"PodScheduled", "Ready"}  # type: ignore[index]


async def test_the_status_of_a_custom_kind_is_never_written_for_another_uid(
    kube: Kube, namespace: str
) -> None:
    """The API server drops the uid of such a patch: without our guard it would succeed."""
    uid = await made(kube, JOB, namespace, job("j", task("t", 1)))
    status = {"status": {"state": {"phase": "Running"}}}
    with pytest.raises(Gone):
        await kube.patch(JOB, namespace, "j", status, uid=OTHER, subresource="status")
    assert "status" not in await read(kube, JOB, namespace, "j")
    written = await kube.patch(JOB, namespace, "j", status, uid=uid, subresource="status")
    assert json.loads(written)["status"]["state"]["phase"] == "Running"


async def test_a_version_that_is_given_is_a_precondition(kube: Kube, namespace: str) -> None:
    await made(kube, JOB, namespace, job("j", task("t", 1)))
    before = (await read(kube, JOB, namespace, "j"))["metadata"]
    uid, version = before["uid"], before["resourceVersion"]  # type: ignore[index]
    status = {"status": {"running": 1}}
    patch = {"uid": uid, "resource_version": version, "subresource": "status"}
    await kube.patch(JOB, namespace, "j", status, **patch)
    with pytest.raises(WriteConflict):
        await kube.patch(JOB, namespace, "j", {"status": {"running": 2}}, **patch)


async def test_a_podgroup_is_patched_only_for_its_uid(kube: Kube, namespace: str) -> None:
    uid = await made(kube, PODGROUP, namespace, custom(PODGROUP, "g", minMember=1))
    body = {"status": {"phase": "Inqueue"}}
    with pytest.raises(Gone):
        await kube.patch(PODGROUP, namespace, "g", body, uid=OTHER)
    assert json.loads(await kube.patch(PODGROUP, namespace, "g", body, uid=uid))["status"] == {
        "phase": "Inqueue"
    }


@pytest.mark.parametrize("kind", [POD, JOB], ids=["built-in", "custom"])
async def test_a_delete_for_another_uid_is_gone(kube: Kube, namespace: str, kind: Kind) -> None:
    uid = await made(kube, kind, namespace, pod("x") if kind is POD else job("x", task("t", 1)))
    with pytest.raises(Gone):
        await kube.delete(kind, namespace, "x", uid=OTHER)
    await kube.delete(kind, namespace, "x", uid=uid, grace_s=0)
    with pytest.raises(Gone):
        await kube.delete(kind, namespace, "x", uid=uid)


async def test_a_binding_is_for_one_uid_and_for_once(kube: Kube, namespace: str) -> None:
    uid = await made(kube, POD, namespace, pod("p"))
    node = f"nowhere-{namespace}"  # the pod collector remembers names that are missing
    with pytest.raises(Gone):
        await kube.bind(namespace, "p", uid=OTHER, node=node)
    await kube.bind(namespace, "p", uid=uid, node=node, annotations={"k": "v"})
    for other in (node, "n2"):
        with pytest.raises(Conflict) as caught:
            await kube.bind(namespace, "p", uid=uid, node=other)
        assert not isinstance(caught.value, Gone)
    bound = await read(kube, POD, namespace, "p")
    assert bound["spec"]["nodeName"] == node  # type: ignore[index]
    assert bound["metadata"]["annotations"] == {"k": "v"}  # type: ignore[index]


async def test_a_pod_that_is_being_deleted_cannot_be_bound_and_is_not_gone(
    kube: Kube, namespace: str
) -> None:
    uid = await made(kube, POD, namespace, pod("p", metadata={"finalizers": ["example.com/wait"]}))
    await kube.delete(POD, namespace, "p", uid=uid, grace_s=0)
    with pytest.raises(Conflict) as caught:
        await kube.bind(namespace, "p", uid=uid, node="n1")
    assert not isinstance(caught.value, Gone)
    await kube.patch(POD, namespace, "p", {"metadata": {"finalizers": None}}, uid=uid)


async def test_a_second_create_says_that_the_name_is_taken(kube: Kube, namespace: str) -> None:
    await made(kube, POD, namespace, pod("p"))
    with pytest.raises(AlreadyExists, match='pods "p" already exists'):
        await kube.create(POD, namespace, pod("p"))


async def test_a_refused_object_names_its_fields(kube: Kube, namespace: str) -> None:
    with pytest.raises(Refused) as caught:
        await kube.create(POD, namespace, {**pod("p"), "spec": {"containers": []}})
    assert "spec.containers" in {cause.field for cause in caught.value.status.causes}


async def test_a_view_survives_the_way_to_the_server_and_back(kube: Kube, namespace: str) -> None:
    await made(kube, QUEUE, "", custom(QUEUE, f"q-{namespace}", weight=3, reclaimable=False))
    queue = next(q for q in (await kube.list(QUEUE)).items if q.metadata.name == f"q-{namespace}")
    assert (queue.spec.weight, queue.spec.reclaimable) == (3, False)
    await kube.delete(QUEUE, "", queue.metadata.name, uid=queue.metadata.uid)


async def test_a_kind_that_is_not_installed_is_gone_and_no_parse_error(kube: Kube) -> None:
    with pytest.raises(Gone):
        await kube.list(msgspec.structs.replace(NODE, group="example.com", plural="nothings"))


async def test_a_missing_right_is_denied_with_verb_and_kind(
    accounts: Accounts, tmp_path: Path
) -> None:
    await accounts.create("nobody")
    file = tmp_path / "kubeconfig"
    file.write_text(accounts.kubeconfig(token=await accounts.token("nobody")))
    async with await connect(str(file), user_agent="nobody") as nobody:
        with pytest.raises(Denied, match='cannot list resource "pods"'):
            await nobody.list(POD)
        with pytest.raises(Denied, match='cannot create resource "customresourcedefinitions"'):
            await nobody.create(CRD, "", {})
