"""From the API server to STATE: what is said, when, and what is never said."""

import base64
import json
import random
from pathlib import Path

import pytest

from services.cache.kinds import rows
from shared.api.kinds import JOB, NODE, POD, SECRET, Kind
from shared.contracts.streams import TOMBSTONE_TTL_S
from shared.kube.client import Kube
from tests.integration.cache.conftest import State
from tests.support import world
from tests.support.fleet import Fleet
from tests.support.roles import Accounts
from tests.support.wait import until
from tests.support.world import pod


def nowhere(namespace: str) -> str:
    """Return the name of a node that there is not, one for each test.

    The pod collector deletes a pod at once when its node has been known to be missing for a while,
    so a name must not be shared.
    """
    return f"nowhere-{namespace}"


async def made(kube: Kube, kind: Kind, namespace: str, body: dict[str, object]) -> str:
    return str(json.loads(await kube.create(kind, namespace, body))["metadata"]["uid"])


async def test_an_object_is_said_changed_and_said_to_be_gone(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    await caches.start("cache")
    key = f"{namespace}/p"
    uid = await made(kube, POD, namespace, pod("p"))
    fact = await state.says("put", "pods", key)
    body = json.loads(bytes(fact.body))
    assert (fact.uid, body["metadata"]["uid"]) == (uid, uid)
    assert body["metadata"]["resourceVersion"] == fact.rv
    assert "managedFields" not in body["metadata"]
    await kube.patch(POD, namespace, "p", {"metadata": {"labels": {"a": "b"}}}, uid=uid)
    await state.says("put", "pods", key, text='"a":"b"')
    await kube.delete(POD, namespace, "p", uid=uid, grace_s=0)
    gone = await state.says("delete", "pods", key)
    assert (gone.uid, bytes(gone.body)) == (uid, b"null")
    message = await state.message("pods", key)
    assert message is not None
    assert message.headers is not None
    assert message.headers["Nats-TTL"] == str(TOMBSTONE_TTL_S)


async def test_pods_of_others_count_once_they_have_a_node(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    """CA01."""
    await caches.start("cache")
    uid = await made(kube, POD, namespace, pod("theirs", scheduler="default-scheduler"))
    await made(kube, POD, namespace, pod("ours"))
    await state.says("put", "pods", f"{namespace}/ours")
    assert await state.fact("pods", f"{namespace}/theirs") is None
    await kube.bind(namespace, "theirs", uid=uid, node=nowhere(namespace))
    fact = await state.says("put", "pods", f"{namespace}/theirs")
    assert json.loads(bytes(fact.body))["spec"]["nodeName"] == nowhere(namespace)


async def test_a_change_that_nobody_reads_is_no_fact(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    await caches.start("cache")
    key = f"{namespace}/p"
    uid = await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", key)
    before = await state.message("pods", key)
    for generation in (5, 6, 7):
        body = {"status": {"observedGeneration": generation}}
        await kube.patch(POD, namespace, "p", body, uid=uid, subresource="status")
    await made(kube, POD, namespace, pod("later"))
    await state.says("put", "pods", f"{namespace}/later")
    after = await state.message("pods", key)
    assert before is not None
    assert after is not None
    assert after.sequence == before.sequence


async def test_no_secret_is_ever_said(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    await caches.start("cache")
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "do-not-tell"}}
    await kube.create(SECRET, namespace, secret)
    await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")
    assert await state.fact("secrets", f"{namespace}/s") is None


async def test_an_object_beyond_the_payload_limit_is_said_to_be_there(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    cache = await caches.start("cache")
    job = world.job("huge", world.task("t", 1))
    noise = base64.b64encode(random.Random(1).randbytes(1_080_000)).decode()
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "NOISE", "value": noise}]
    await kube.create(JOB, namespace, job)
    fact = await state.says("oversized", "jobs", f"{namespace}/huge")
    assert bytes(fact.body) == b"null"
    assert await cache.metric("pumice_cache_oversized_total") == 1
    assert f"{namespace}/huge" in await cache.said("object_oversized")
    await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")


ALL_BUT_NODES: dict[str, list[str]] = {}
for row in rows(["volcano"]):
    if row.kind is not NODE:
        ALL_BUT_NODES.setdefault(row.kind.group, []).append(row.kind.plural)


@pytest.fixture
async def limited(accounts: Accounts, tmp_path: Path) -> Path:
    """A kubeconfig whose account may see everything but nodes."""
    await accounts.create("limited")
    verbs = ["list", "watch"]
    rules = [
        {"apiGroups": [group], "resources": resources, "verbs": verbs}
        for group, resources in ALL_BUT_NODES.items()
    ]
    await accounts.allow_everywhere("limited", rules)
    file = tmp_path / "limited"
    file.write_text(accounts.kubeconfig(token=await accounts.token("limited")))
    return file


async def test_a_missing_right_is_named_and_the_rest_goes_on(
    caches: Fleet, state: State, kube: Kube, namespace: str, limited: Path
) -> None:
    cache = await caches.start("cache", wait=False, kubeconfig=str(limited))

    async def forbidden() -> bool:
        gates = {gate["gate"]: gate["reason"] for gate in json.loads(await cache.unready())}
        return 'cannot watch resource "nodes"' in gates.get("watch-nodes", "")

    await until(forbidden, describe="the verb and the kind that are missing")
    marker = await state.marked_by("cache-a", kinds=len(rows(["volcano"])) - 1)
    assert "nodes" not in marker.complete
    await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")


async def test_native_podgroups_that_the_api_server_does_not_serve_disturb_nobody(
    caches: Fleet, state: State
) -> None:
    """The parts are of a Kubernetes that does not serve scheduling.k8s.io/v1beta1."""
    await caches.start("cache", instance="a")
    marker = await state.marked_by("cache-a")
    assert "nativepodgroups" in marker.complete
    assert not [line for line in caches.lines() if "watch_interrupted" in line]
