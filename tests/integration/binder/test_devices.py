"""Device claims that the binder writes before it binds, and gives back when that fails."""

import msgspec
import pytest

from services.binder.intents.devices import FINALIZER
from shared.contracts.messages import DeviceUse
from tests.integration.binder.conftest import NODES, Desk, results
from tests.support.wait import until

GROUP = "/apis/resource.k8s.io/v1"


def allocation(device: str = "d0", node: str = NODES[0]) -> dict:
    result = {"request": "r", "driver": "gpu.example.com", "pool": node, "device": device}
    need = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [need]}]},
    }


class Claims:
    """The claims of one test's namespace."""

    def __init__(self, desk: Desk) -> None:
        self._api = desk.api
        self._path = f"{GROUP}/namespaces/{desk.namespace}/resourceclaims"

    async def create(self, name: str) -> dict:
        asks = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [asks]}}}
        return await self._api.request("POST", self._path, body)

    async def read(self, name: str) -> dict:
        return await self._api.request("GET", f"{self._path}/{name}")

    async def write_status(self, name: str, **status) -> None:
        await self._api.request(
            "PATCH",
            f"{self._path}/{name}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )


@pytest.fixture
def claims(desk: Desk) -> Claims:
    return Claims(desk)


def using(name: str) -> dict:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}


def use_of(claim: dict, *, allocated: bool = False, **what: str) -> DeviceUse:
    meta = claim["metadata"]
    return DeviceUse(
        claim=f"{meta['namespace']}/{meta['name']}",
        uid=meta["uid"],
        allocation=msgspec.Raw(msgspec.json.encode(allocation(**what))),
        allocated=allocated,
    )


def users(claim: dict) -> list[str]:
    return [user["name"] for user in claim["status"].get("reservedFor", [])]


async def test_a_claim_has_its_devices_and_its_pods_when_they_are_bound(desk: Desk, claims: Claims):
    await desk.binder()
    claim = await claims.create("shared")
    pods = [await desk.pod(f"p-{number}", **using("shared")) for number in range(3)]
    gang = desk.gang(pods, devices=(use_of(claim),))
    await desk.send(gang)
    assert results(await desk.outcome(gang, deadline_s=60)) == ["bound"] * 3
    seen = await claims.read("shared")
    assert sorted(users(seen)) == ["p-0", "p-1", "p-2"]
    assert seen["status"]["allocation"]["devices"] == allocation()["devices"]
    assert FINALIZER in seen["metadata"]["finalizers"]


async def test_a_pod_that_cannot_be_bound_gives_its_devices_back(desk: Desk, claims: Claims):
    await desk.binder()
    claim = await claims.create("mine")
    gates = [{"name": "example.com/not-yet"}]  # the API server binds no pod that has one
    pod = await desk.pod("p", schedulingGates=gates, **using("mine"))
    gang = desk.gang([pod], devices=(use_of(claim),))
    await desk.send(gang)
    assert results(await desk.outcome(gang, deadline_s=60)) == ["failed"]
    seen = await claims.read("mine")
    assert users(seen) == []
    assert "allocation" not in seen["status"]


async def test_a_claim_that_others_allocated_otherwise_fails_the_bind(desk: Desk, claims: Claims):
    await desk.binder()
    claim = await claims.create("theirs")
    await claims.write_status("theirs", allocation=allocation("d1"))
    gang = desk.gang([await desk.pod("p", **using("theirs"))], devices=(use_of(claim),))
    await desk.send(gang)
    (item,) = (await desk.outcome(gang, deadline_s=60)).items
    assert "other devices" in item.message
    seen = await claims.read("theirs")
    assert seen["status"]["allocation"]["devices"] == allocation("d1")["devices"]
    assert "nodeName" not in (await desk.read("p"))["spec"]


@pytest.mark.parametrize("passage", [1, 2, 3])
async def test_a_binder_that_dies_between_claim_and_bind_is_no_harm(
    desk: Desk, claims: Claims, passage: int
):
    doomed = await desk.binder(instance="doomed", fault=f"binder.after-claim@{passage}")
    first, second = await claims.create("first"), await claims.create("second")
    pods = [await desk.pod("p-0", **using("first")), await desk.pod("p-1", **using("second"))]
    gang = desk.gang(pods)
    binds = tuple(
        msgspec.structs.replace(bind, devices=(use_of(claim, device=device),))
        for bind, claim, device in zip(gang.binds, (first, second), ("d0", "d1"), strict=True)
    )
    gang = msgspec.structs.replace(gang, binds=binds)
    await desk.send(gang)
    await doomed.died_at_its_fault()
    await desk.binder(instance="next")
    assert results(await desk.outcome(gang, deadline_s=90)) == ["bound", "bound"]
    for name, pod in (("first", "p-0"), ("second", "p-1")):
        assert users(await claims.read(name)) == [pod]


async def test_claims_of_pods_that_have_gone_are_given_back(desk: Desk, claims: Claims):
    await desk.binder()
    claim = await claims.create("left")
    pod = await desk.pod("p", **using("left"))
    await desk.api.delete("pods", desk.namespace, "p", grace_s=0)
    await until(lambda: desk.absent("p"), describe="the pod is gone")
    gang = desk.gang([pod], devices=(use_of(claim),))
    await desk.send(gang)
    assert results(await desk.outcome(gang, deadline_s=60)) == ["gone"]
    seen = await claims.read("left")
    assert (users(seen), seen["status"].get("allocation")) == ([], None)
