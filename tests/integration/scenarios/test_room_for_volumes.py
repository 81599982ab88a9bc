"""Claims that wait for their pod's node, and drivers that publish how much room they have (PL07).

The scenario plays the driver: it says what room there is and makes the volume when a claim names
its node. The API server's own controller binds the claim to it.
"""

import pytest

from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

SELECTED = "volume.kubernetes.io/selected-node"

scenarios = Scenarios()


class Driver:
    """A driver that publishes its capacity, and its class; named after the scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._api = scene, scene.api
        self.name = f"{scene.namespace}.example.com"

    async def open(self) -> None:
        """Make driver and class."""
        head = {"metadata": {"name": self.name}}
        driver = {**head, "spec": {"storageCapacity": True, "attachRequired": False}}
        await self._make("csidrivers", driver)
        waits = {"provisioner": self.name, "volumeBindingMode": "WaitForFirstConsumer"}
        await self._make("storageclasses", {**head, **waits})

    async def _make(self, plural: str, body: Object) -> None:
        await self._api.create(plural, body)
        self._scene.also(plural, body["metadata"]["name"])

    async def publish(self, node: str, size: str) -> None:
        """Say how much room there is on a node."""
        body = {
            "metadata": {"name": node},
            "storageClassName": self.name,
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
            "capacity": size,
        }
        await self._api.create("csistoragecapacities", body, self._scene.namespace)

    async def attaches(self, node: str, count: int) -> None:
        """Say how many volumes the driver can attach to a node."""
        driver = {"name": self.name, "nodeID": node, "allocatable": {"count": count}}
        body = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
        await self._make("csinodes", body)

    async def still_attached(self, node: str) -> str:
        """Attach a volume that no pod uses to a node; return the name of the attachment."""
        name = f"{self._scene.namespace}-former"
        spec = {
            "storageClassName": self.name,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": self.name, "volumeHandle": name},
            "claimRef": {"namespace": self._scene.namespace, "name": "former"},
        }
        await self._make("persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        source = {"persistentVolumeName": name}
        spec = {"attacher": self.name, "nodeName": node, "source": source}
        await self._make("volumeattachments", {"metadata": {"name": name}, "spec": spec})
        return name

    async def grow(self, node: str, size: str) -> None:
        """Say that there is another amount of room."""
        change = {"capacity": size}
        await self._api.patch("csistoragecapacities", self._scene.namespace, node, change)

    async def claim(self, name: str, size: str) -> None:
        """Make a claim of the class."""
        spec = {
            "storageClassName": self.name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        }
        body = {"metadata": {"name": name}, "spec": spec}
        await self._api.create("persistentvolumeclaims", body, self._scene.namespace)

    async def make(self, name: str) -> str:
        """Wait until a claim names a node, make its volume there and return the node."""

        async def named() -> Object | None:
            found = await self._api.get("persistentvolumeclaims", self._scene.namespace, name)
            return found if SELECTED in found["metadata"].get("annotations", {}) else None

        claim = await self._scene.wait(named, f"{name} names a node")
        node: str = claim["metadata"]["annotations"][SELECTED]
        need = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        reference = {key: claim["metadata"][key] for key in ("name", "namespace", "uid")}
        spec = {
            "storageClassName": self.name,
            "accessModes": ["ReadWriteOnce"],
            "capacity": claim["spec"]["resources"]["requests"],
            "csi": {"driver": self.name, "volumeHandle": name},
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}},
        }
        volume = f"{self._scene.namespace}-{name}"
        await self._make("persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
        return node


def mounting(scene: Scene, claim: str) -> Object:
    """Return a task of one pod with a claim."""
    made = scene.at_home("a", 1)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    made["template"]["spec"]["volumes"] = [volume]
    return made


@scenarios
async def a_pod_goes_where_its_driver_has_room(scene: Scene) -> None:
    driver = Driver(scene)
    await driver.open()
    for name, size in (("a", "1Gi"), ("b", "10Gi"), ("c", "1Mi")):
        await driver.publish(await scene.node(name, cpu="4"), size)
    await driver.claim("data", "5Gi")
    await scene.submit("j", mounting(scene, "data"))
    node = await driver.make("data")
    assert node.endswith("-b"), node
    (pod,) = (await scene.pods(1, phase="Running")).values()
    assert pod["spec"]["nodeName"] == node


@scenarios
async def a_pod_waits_for_room_says_so_and_starts_when_there_is_some(scene: Scene) -> None:
    driver = Driver(scene)
    await driver.open()
    node = await scene.node("n", cpu="4")
    await driver.publish(node, "1Gi")
    await driver.claim("data", "5Gi")
    await scene.submit("j", mounting(scene, "data"))
    await scene.condition("j", "Unschedulable", text="did not have enough free storage")
    await driver.grow(node, "6Gi")
    assert await driver.make("data") == node
    await scene.pods(1, phase="Running")


@scenarios
async def a_pod_waits_until_the_volume_of_a_former_pod_is_detached(scene: Scene) -> None:
    driver = Driver(scene)
    await driver.open()
    node = await scene.node("n", cpu="4")
    await driver.attaches(node, 1)
    attachment = await driver.still_attached(node)
    await driver.publish(node, "10Gi")
    await driver.claim("data", "5Gi")
    await scene.submit("j", mounting(scene, "data"))
    await scene.condition("j", "Unschedulable", text="1 Pipelined")
    await scene.api.delete("volumeattachments", "", attachment)
    assert await driver.make("data") == node
    await scene.pods(1, phase="Running")


@scenarios.mark()
async def test_room_for_volumes(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
