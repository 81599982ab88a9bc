"""Device claims that the binder writes before it binds, and gives back when that fails."""

import msgspec
import pytest

from services.binder.intents.devices import FINALIZER
from shared.contracts.messages import BindGang, DeviceUse
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

    async def prepare(self, name: str, condition: str = "ready", device: str = "d0") -> None:
        """Play the driver of a claim's device: make a condition true."""
        said = {
            "type": condition,
            "status": "True",
            "reason": "Driver",
            "message": "says so",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        of_device = {"driver": "gpu.example.com", "pool": NODES[0], "device": device}
        await self.write_status(name, devices=[{**of_device, "conditions": [said]}])

    async def allocated(self, name: str) -> dict:
        """Wait until a claim has its devices; return them."""

        async def found() -> dict | None:
            return (await self.read(name)).get("status", {}).get("allocation")

        return await until(found, describe=f"claim {name} is allocated")


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


CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}


def to_prepare(claim: dict, device: str = "d0", *, allocated: bool = False) -> DeviceUse:
    """Return the use of a claim whose device its driver has to prepare."""
    use = use_of(claim, device=device, allocated=allocated)
    said = msgspec.json.decode(use.allocation)
    said["devices"]["results"][0].update(CONDITIONS)
    return msgspec.structs.replace(
        use, allocation=msgspec.Raw(msgspec.json.encode(said)), to_prepare=True
    )


def gang_of(desk: Desk, pods: list[dict], uses: list[DeviceUse], *, needed: int = 0) -> BindGang:
    """Return a gang in which the first pods use a device each."""
    gang = desk.gang(pods)
    binds = [
        msgspec.structs.replace(bind, devices=(use,))
        for bind, use in zip(gang.binds, uses, strict=False)
    ]
    binds += gang.binds[len(uses) :]
    return msgspec.structs.replace(gang, binds=tuple(binds), needed=needed)


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


async def test_no_pod_of_a_gang_is_bound_before_all_devices_are_prepared(
    desk: Desk, claims: Claims
):
    await desk.binder()
    made = [await claims.create(name) for name in ("first", "second")]
    uses = [to_prepare(made[0], "d0"), to_prepare(made[1], "d1")]
    pods = await desk.pods(3)
    gang = gang_of(desk, pods, uses, needed=3)
    await desk.send(gang)
    await desk.event("p-0", "BindingConditionsPending")
    await desk.event("p-1", "BindingConditionsPending")
    await claims.prepare("first", device="d0")
    seen = await claims.allocated("second")
    assert seen["devices"]["results"][0]["bindingConditions"] == ["ready"]
    assert seen["allocationTimestamp"]
    assert [("nodeName" in (await desk.read(f"p-{n}"))["spec"]) for n in range(3)] == [False] * 3
    await claims.prepare("second", device="d1")
    assert results(await desk.outcome(gang, deadline_s=60)) == ["bound"] * 3


@pytest.mark.parametrize(("needed", "ends"), [(2, ["failed", "failed"]), (1, ["failed", "bound"])])
async def test_a_device_that_cannot_be_prepared_fails_the_pods_that_need_it(
    desk: Desk, claims: Claims, needed: int, ends: list[str]
):
    await desk.binder()
    use = to_prepare(await claims.create("broken"))
    gang = gang_of(desk, await desk.pods(2), [use], needed=needed)
    await desk.send(gang)
    await claims.allocated("broken")
    await claims.prepare("broken", "failed")
    outcome = await desk.outcome(gang, deadline_s=60)
    assert results(outcome) == ends
    assert "cannot be prepared: d0: failed: Driver: says so" in outcome.items[0].message
    seen = await claims.read("broken")
    assert (users(seen), seen["status"].get("allocation")) == ([], None)
    assert not seen["status"].get("devices"), "the next allocation begins without its conditions"


async def test_a_driver_that_says_nothing_is_waited_for_so_long_and_no_longer(
    desk: Desk, claims: Claims
):
    await desk.binder(device_bind_timeout="2s")
    gang = gang_of(desk, await desk.pods(1), [to_prepare(await claims.create("silent"))])
    await desk.send(gang)
    (item,) = (await desk.outcome(gang, deadline_s=60)).items
    assert item.result.value == "failed"
    assert "d0: ready" in item.message
    assert (await claims.read("silent"))["status"].get("allocation") is None


async def test_the_next_binder_goes_on_waiting_for_a_driver(desk: Desk, claims: Claims):
    doomed = await desk.binder(instance="doomed")
    gang = gang_of(desk, await desk.pods(2), [to_prepare(await claims.create("slow"))], needed=2)
    await desk.send(gang)
    await desk.event("p-0", "BindingConditionsPending")
    before = await claims.allocated("slow")
    doomed.kill()
    await desk.binder(instance="next")
    await claims.prepare("slow")
    assert results(await desk.outcome(gang, deadline_s=90)) == ["bound", "bound"]
    assert await claims.allocated("slow") == before, "its time goes on, and its devices are kept"


async def test_a_pod_that_goes_while_its_device_is_prepared_is_waited_for_no_longer(
    desk: Desk, claims: Claims
):
    await desk.binder()
    gang = gang_of(desk, await desk.pods(1), [to_prepare(await claims.create("left"))])
    await desk.send(gang)
    await claims.allocated("left")
    await desk.api.delete("pods", desk.namespace, "p-0", grace_s=0)
    assert results(await desk.outcome(gang, deadline_s=60)) == ["gone"]
    seen = await claims.read("left")
    assert (users(seen), seen["status"].get("allocation")) == ([], None)


# --- claims for extended resources ---------------------------------------------------------------

RESOURCE = "example.com/gpu"
REQUEST = "container-0-request-0"


def asking() -> dict:
    """Return what the spec of a pod says that asks for a device by an extended resource."""
    amounts = {RESOURCE: "1"}
    resources = {"requests": amounts, "limits": amounts}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}]}


def to_make(desk: Desk, *, device: str = "d0", name: str = "p-extended") -> DeviceUse:
    """Return the use of a claim that the binder makes."""
    decided = allocation(device)
    decided["devices"]["results"][0]["request"] = REQUEST
    return DeviceUse(
        claim=f"{desk.namespace}/{name}",
        uid="",
        allocation=msgspec.Raw(msgspec.json.encode(decided)),
        requests=((REQUEST, "gpu", 1),),
        mappings=(("main", RESOURCE, REQUEST),),
    )


@pytest.mark.parametrize("passage", [0, 1, 2])
async def test_a_claim_for_extended_resources_is_made_before_its_pod_is_bound(
    desk: Desk, claims: Claims, passage: int
):
    fault = {"fault": f"binder.after-claim@{passage}"} if passage else {}
    doomed = await desk.binder(instance="first", **fault)
    pod = await desk.pod("p", **asking())
    gang = desk.gang([pod], devices=(to_make(desk),))
    await desk.send(gang)
    if passage:
        await doomed.died_at_its_fault()
        await desk.binder(instance="next")
    assert results(await desk.outcome(gang, deadline_s=90)) == ["bound"]
    claim = await claims.read("p-extended")
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)
    assert users(claim) == ["p"]
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
    shown = (await desk.read("p"))["status"]["extendedResourceClaimStatus"]
    mapping = {"containerName": "main", "resourceName": RESOURCE, "requestName": REQUEST}
    assert shown == {"resourceClaimName": "p-extended", "requestMappings": [mapping]}


async def test_a_claim_that_a_failed_bind_has_left_gets_the_devices_of_the_next(
    desk: Desk, claims: Claims
):
    await desk.binder()
    pod = await desk.pod("p", **asking())
    first = desk.gang([pod], devices=(to_make(desk, device="d1"),))
    broken = msgspec.structs.replace(
        first.binds[0],
        devices=(*first.binds[0].devices, use_of(await claims.create("c"), allocated=True)),
    )
    first = msgspec.structs.replace(first, binds=(broken,))
    await desk.send(first)
    assert results(await desk.outcome(first, deadline_s=60)) == ["failed"]
    found = await desk.api.items("resourceclaims", desk.namespace)
    assert [claim["metadata"]["name"] for claim in found] == ["c"], "the claim went with the bind"
    second = desk.gang([pod], devices=(to_make(desk),))
    await desk.send(second)
    assert results(await desk.outcome(second, deadline_s=60)) == ["bound"]
    claim = await claims.read("p-extended")
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
