"""Jobs whose pods ask for devices by claim, with Kubernetes' own controller for claims (PL07)."""

from typing import Any

import pytest

from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene
from tests.unit.scheduler.devices import device, device_class, request, slice_of, spec_of
from tests.unit.scheduler.hostile_expressions import doubled_by_binding, replaced

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLAIMS = "/apis/resource.k8s.io/v1"

ACCEPTED = {"bound": doubled_by_binding(22), "replaced": replaced(1000, 1000, 5000)}
"""Costly expressions by the name of a task; the API server accepts them."""

scenarios = Scenarios()


async def equip(scene: Scene, count: int, *, resource: str = "", **conditions: Any) -> str:
    """Give the scene a node with devices of a class of its own; return the class.

    With a resource, pods may ask for its devices by that extended resource.
    """
    node = await scene.node("n", cpu="64")
    name = driver = f"{scene.namespace}.example.com"
    extended = {"extendedResourceName": resource} if resource else {}
    of_class = device_class(name, f'device.driver == "{driver}"', **extended)
    await scene.api.create("deviceclasses", of_class)
    scene.also("deviceclasses", name)
    devices = [{**device(f"d{number}", index=number), **conditions} for number in range(count)]
    await scene.api.create("resourceslices", slice_of(node, devices, node=node, driver=driver))
    scene.also("resourceslices", node)
    template = {"metadata": {"name": "one"}, "spec": {"spec": spec_of(request(device_class=name))}}
    await scene.api.create("resourceclaimtemplates", template, scene.namespace)
    return name


def asking(scene: Scene, name: str, replicas: int, **claim: str) -> Object:
    """Return a task whose pods have a claim each, or the one that is named."""
    made = scene.at_home(name, replicas)
    spec = made["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", **(claim or {"resourceClaimTemplateName": "one"})}]
    spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
    return made


async def owners(scene: Scene) -> dict[str, list[str]]:
    """Return device → pods that may use the claim that has it."""
    found: dict[str, list[str]] = {}
    for claim in await scene.api.items("resourceclaims", scene.namespace):
        status: dict[str, Any] = claim.get("status", {})
        users = sorted(user["name"] for user in status.get("reservedFor", []))
        for result in status.get("allocation", {}).get("devices", {}).get("results", []):
            assert result["device"] not in found, "a device was given twice"
            found[result["device"]] = users
    return found


@scenarios
async def a_gang_gets_devices_and_the_next_one_waits_until_they_are_free(scene: Scene) -> None:
    name = await equip(scene, 3)
    await scene.submit("first", asking(scene, "a", 2), minAvailable=2)
    await scene.pods(2, phase="Running", task="a")
    held = await owners(scene)
    assert sorted(pod for pods in held.values() for pod in pods) == ["first-a-0", "first-a-1"]
    await scene.submit("second", asking(scene, "b", 2), minAvailable=2)
    await scene.condition("second", "Unschedulable", text=f"1 {name}")
    pods = await scene.pods(2, phase="Pending", task="b")
    assert not any(pod["spec"].get("nodeName") for pod in pods.values()), "no half gang"
    assert set(await owners(scene)) == set(held), "it holds no device while it waits"
    for pod in ("first-a-0", "first-a-1"):
        await scene.end(pod)
    await scene.pods(2, phase="Running", task="b")

    async def freed() -> bool:
        users = [pod for pods in (await owners(scene)).values() for pod in pods]
        return sorted(users) == ["second-b-0", "second-b-1"]

    await scene.wait(freed, "only the second gang has devices")


def requesting(scene: Scene, name: str, replicas: int, resource: str, amount: int) -> Object:
    """Return a task whose pods ask for devices by an extended resource."""
    made = scene.at_home(name, replicas)
    amounts = made["template"]["spec"]["containers"][0].setdefault("resources", {})
    for each in ("requests", "limits"):
        amounts[each] = {**amounts.get(each, {}), resource: str(amount)}
    return made


@scenarios
async def a_gang_gets_devices_for_an_extended_resource_of_their_class(scene: Scene) -> None:
    resource = f"{scene.namespace}.example.com/gpu"
    name = await equip(scene, 4, resource=resource)
    await scene.submit("first", requesting(scene, "a", 2, resource, 2), minAvailable=2)
    pods = await scene.pods(2, phase="Running", task="a")
    made = {claim["metadata"]["name"]: claim for claim in await claims_of(scene)}
    for pod, shown in pods.items():
        status = shown["status"]["extendedResourceClaimStatus"]
        (mapping,) = status["requestMappings"]
        assert mapping["resourceName"] == resource
        claim = made.pop(status["resourceClaimName"])
        meta, (request_,) = claim["metadata"], claim["spec"]["devices"]["requests"]
        assert meta["name"].startswith(f"{pod}-extended-resources-")
        assert meta["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", shown["metadata"]["uid"])
        assert request_["name"] == mapping["requestName"]
        assert (request_["exactly"]["deviceClassName"], request_["exactly"]["count"]) == (name, 2)
        assert [user["name"] for user in claim["status"]["reservedFor"]] == [pod]
    assert not made, "each claim belongs to a pod"
    assert len(await owners(scene)) == 4
    await scene.submit("second", requesting(scene, "b", 1, resource, 1), minAvailable=1)
    await scene.condition("second", "Unschedulable", text=resource)
    await scene.end("first-a-0")
    (waiting,) = await scene.pods(1, phase="Running", task="b")

    async def freed() -> bool:
        return sorted({pod for users in (await owners(scene)).values() for pod in users}) == [
            "first-a-1",
            waiting,
        ]

    await scene.wait(freed, "the claim of the pod that has ended is deleted")


async def claims_of(scene: Scene) -> list[Object]:
    """Return all claims of the scene."""
    return await scene.api.items("resourceclaims", scene.namespace)


@scenarios
async def pods_that_share_a_claim_are_all_reserved_for(scene: Scene) -> None:
    name = await equip(scene, 1)
    claim = {"metadata": {"name": "ours"}, "spec": spec_of(request(device_class=name))}
    await scene.api.create("resourceclaims", claim, scene.namespace)
    await scene.submit("j", asking(scene, "a", 3, resourceClaimName="ours"), minAvailable=3)
    await scene.pods(3, phase="Running")
    assert list((await owners(scene)).values()) == [["j-a-0", "j-a-1", "j-a-2"]]


@scenarios
async def a_claim_with_a_class_that_does_not_exist_says_so(scene: Scene) -> None:
    await equip(scene, 1)
    wanted = spec_of(request(device_class="no-such-class"))
    claim = {"metadata": {"name": "ours"}, "spec": wanted}
    await scene.api.create("resourceclaims", claim, scene.namespace)
    await scene.submit("j", asking(scene, "a", 1, resourceClaimName="ours"))
    await scene.condition("j", "Unschedulable", text="device class no-such-class does not exist")


@scenarios
async def costly_selectors_stop_their_own_claims_and_no_other_job(scene: Scene) -> None:
    name = await equip(scene, 3)
    for number, (kind, expression) in enumerate(sorted(ACCEPTED.items())):
        wanted = spec_of(request("r", expression, device_class=name))
        claim = {"metadata": {"name": f"costly-{number}"}, "spec": wanted}
        await scene.api.create("resourceclaims", claim, scene.namespace)
        await scene.submit(
            f"costly-{number}", asking(scene, kind, 1, resourceClaimName=f"costly-{number}")
        )
    await scene.submit("healthy", asking(scene, "a", 2), minAvailable=2)
    await scene.pods(2, phase="Running", task="a")
    for number in range(len(ACCEPTED)):
        text = f"costly-{number}: request r: CEL limit exceeded"
        await scene.condition(f"costly-{number}", "Unschedulable", text=text)


@scenarios
async def a_more_important_job_takes_the_device_of_another(scene: Scene) -> None:
    await equip(scene, 1)
    low, high = await scene.priority("low", 1), await scene.priority("high", 1000)
    poor = asking(scene, "a", 1)
    poor["template"]["spec"]["priorityClassName"] = low
    await scene.submit("poor", poor, priorityClassName=low, minAvailable=0)
    await scene.pods(1, phase="Running", task="a")
    rich = asking(scene, "b", 1)
    rich["template"]["spec"]["priorityClassName"] = high
    await scene.submit("rich", rich, priorityClassName=high)
    await scene.pods(1, phase="Running", task="b")
    assert list((await owners(scene)).values()) == [["rich-b-0"]]


async def conditions(scene: Scene, found: str) -> dict[str, str]:
    """Play the driver of all devices that claims have: make a condition true; return them."""
    met = {}
    for claim in await scene.api.items("resourceclaims", scene.namespace):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results")
        for result in results or []:
            said = {
                "type": found,
                "status": "True",
                "reason": "Played",
                "message": "as it should",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            of_device = {name: result[name] for name in ("driver", "pool", "device")}
            name = claim["metadata"]["name"]
            path = f"{CLAIMS}/namespaces/{scene.namespace}/resourceclaims/{name}/status"
            await scene.api.request(
                "PATCH",
                path,
                {"status": {"devices": [{**of_device, "conditions": [said]}]}},
                content_type="application/merge-patch+json",
            )
            met[name] = result["device"]
    return met


@scenarios
async def a_gang_starts_when_a_driver_has_prepared_its_devices(scene: Scene) -> None:
    prepared = {"bindingConditions": ["attached"], "bindingFailureConditions": ["refused"]}
    await equip(scene, 2, **prepared)
    await scene.submit("j", asking(scene, "a", 2), scene.at_home("b", 1), minAvailable=3)
    await scene.event("BindingConditionsPending", about="j-a-0")
    await scene.event("BindingConditionsPending", about="j-a-1")
    first = await conditions(scene, "refused")
    assert sorted(first.values()) == ["d0", "d1"]

    async def anew() -> bool:
        claims = await scene.api.items("resourceclaims", scene.namespace)
        said = [claim.get("status", {}) for claim in claims]
        return all(status.get("allocation") and not status.get("devices") for status in said)

    await scene.wait(anew, "both claims have devices anew, of which nothing was said")
    pods = await scene.pods(3, phase="Pending")
    assert not any(pod["spec"].get("nodeName") for pod in pods.values()), "no half gang"
    await conditions(scene, "attached")
    await scene.pods(3, phase="Running")


@scenarios.mark()
async def test_devices(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
