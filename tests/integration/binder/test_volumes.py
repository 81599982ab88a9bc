"""Claims that wait for their pod's node, with Kubernetes' own volume controller (CA11).

The test plays the provisioner: it makes a volume when the claim names a node, or gives up by taking
the name away.
"""

import pytest

from shared.contracts.messages import ClaimUse, Retry
from tests.integration.binder.conftest import NODES, Desk, results
from tests.support.wait import until

SELECTED = "volume.kubernetes.io/selected-node"


class Store:
    """Classes, volumes and claims of one test; names carry the namespace."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.storage_class = f"waits-{desk.namespace}"

    async def open(self, provisioner: str) -> None:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self.storage_class},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await self._desk.api.request("POST", "/apis/storage.k8s.io/v1/storageclasses", body)

    async def claim(self, name: str) -> dict:
        spec = {
            "storageClassName": self.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"metadata": {"name": name}, "spec": spec}
        return await self._desk.api.request("POST", self._claims(), body)

    async def read(self, name: str) -> dict:
        return await self._desk.api.request("GET", f"{self._claims()}/{name}")

    async def annotate(self, name: str, key: str, value: str | None) -> None:
        await self._desk.api.request(
            "PATCH",
            f"{self._claims()}/{name}",
            {"metadata": {"annotations": {key: value}}},
            content_type="application/merge-patch+json",
        )

    async def volume(self, name: str, node: str, claim: dict | None = None) -> dict:
        need = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "storageClassName": self.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}},
        }
        if claim is not None:
            meta = claim["metadata"]
            reference = {key: meta[key] for key in ("name", "namespace", "uid")}
            kind = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
            spec["claimRef"] = {**kind, **reference}
        body = {"metadata": {"name": f"{name}-{self._desk.namespace}"}, "spec": spec}
        return await self._desk.api.request("POST", "/api/v1/persistentvolumes", body)

    async def selected(self, name: str) -> str:
        """Wait until a claim names a node; return it."""

        async def node() -> str:
            return (await self.read(name))["metadata"].get("annotations", {}).get(SELECTED, "")

        return await until(node, deadline_s=30, describe=f"{name} names a node")

    def _claims(self) -> str:
        return f"/api/v1/namespaces/{self._desk.namespace}/persistentvolumeclaims"


@pytest.fixture
def store(desk: Desk) -> Store:
    return Store(desk)


def mounting(claim: str) -> dict:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def use_of(claim: dict, volume: dict | None = None) -> ClaimUse:
    meta = claim["metadata"]
    use = ClaimUse(claim=f"{meta['namespace']}/{meta['name']}", uid=meta["uid"])
    if volume is None:
        return use
    head = volume["metadata"]
    return ClaimUse(claim=use.claim, uid=use.uid, volume=head["name"], volume_uid=head["uid"])


async def test_a_pod_is_bound_when_its_volume_was_made_for_its_node(desk: Desk, store: Store):
    await desk.binder()
    await store.open("example.com/test")
    claim = await store.claim("made")
    gang = desk.gang([await desk.pod("p", **mounting("made"))], claims=(use_of(claim),))
    await desk.send(gang)
    assert await store.selected("made") == NODES[0]
    assert "nodeName" not in (await desk.read("p"))["spec"]
    await store.volume("made", NODES[0], claim)
    outcome = await desk.outcome(gang, deadline_s=60)
    assert results(outcome) == ["bound"]
    assert (await store.read("made"))["status"]["phase"] == "Bound"
    assert (await desk.read("p"))["spec"]["nodeName"] == NODES[0]


async def test_the_volume_that_was_chosen_is_the_one_that_the_claim_gets(desk: Desk, store: Store):
    await desk.binder()
    await store.open("kubernetes.io/no-provisioner")
    claim = await store.claim("local")
    await store.volume("first", NODES[0])
    chosen = await store.volume("second", NODES[0])
    gang = desk.gang([await desk.pod("p", **mounting("local"))], claims=(use_of(claim, chosen),))
    await desk.send(gang)
    assert results(await desk.outcome(gang, deadline_s=60)) == ["bound"]
    assert (await store.read("local"))["spec"]["volumeName"] == chosen["metadata"]["name"]


async def test_a_provisioner_that_gives_up_sends_the_pod_back_to_the_scheduler(
    desk: Desk, store: Store
):
    await desk.binder()
    await store.open("example.com/test")
    claim = await store.claim("never")
    pods = [await desk.pod("p", **mounting("never")), await desk.pod("q")]
    gang = desk.gang(pods, claims=(use_of(claim),))
    await desk.send(gang)
    await store.selected("never")
    other = desk.gang([await desk.pod("other")])
    await desk.send(other)
    assert results(await desk.outcome(other)) == ["bound"]  # nobody waits behind a volume
    await store.annotate("never", SELECTED, None)
    outcome = await desk.outcome(gang, deadline_s=60)
    assert results(outcome) == ["failed", "failed"]
    assert outcome.items[0].retry is Retry.LATER
    assert "could be made" in outcome.items[0].message


async def test_a_volume_that_never_comes_fails_the_bind_after_the_timeout(desk: Desk, store: Store):
    await desk.binder(volume_bind_timeout="500ms")
    await store.open("example.com/test")
    claim = await store.claim("slow")
    gang = desk.gang([await desk.pod("p", **mounting("slow"))], claims=(use_of(claim),))
    await desk.send(gang)
    outcome = await desk.outcome(gang, deadline_s=60)
    assert results(outcome) == ["failed"]
    assert "within 0.5 s" in outcome.items[0].message


async def test_a_binder_that_dies_while_it_waits_for_a_volume_loses_nothing(
    desk: Desk, store: Store
):
    first = await desk.binder()
    await store.open("example.com/test")
    claim = await store.claim("late")
    gang = desk.gang([await desk.pod("p", **mounting("late"))], claims=(use_of(claim),))
    await desk.send(gang)
    await store.selected("late")
    first.kill()
    await store.volume("late", NODES[0], claim)
    await desk.binder()
    assert results(await desk.outcome(gang, deadline_s=90)) == ["bound"]
