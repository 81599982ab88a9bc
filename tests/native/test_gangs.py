"""Gangs of Kubernetes' own PodGroups on an API server of 1.37 (docs/native-gangs.md)."""

from typing import Any

import pytest

from tests.native.native_groups import GROUP, member, podgroup
from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.wait import until
from tests.unit.scheduler.devices import device_class, request, slice_of, spec_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

Object = dict[str, Any]


class Groups:
    """Native PodGroups and pods of one namespace."""

    def __init__(self, api: Api, namespace: str, services: Fleet) -> None:
        self.api = api
        self.namespace = namespace
        self._services = services
        self._path = f"{GROUP}/namespaces/{namespace}/podgroups"

    async def group(self, name: str, **spec: Any) -> None:
        """Create a native PodGroup."""
        await self.api.request("POST", self._path, podgroup(name, **spec))

    async def merge(self, name: str, patch: Object) -> None:
        """Change a native PodGroup."""
        path = f"{self._path}/{name}"
        await self.api.request("PATCH", path, patch, content_type="application/merge-patch+json")

    async def pods(self, group: str, count: int, *, cpu: str = "1", **spec: Any) -> None:
        """Create pods of a native PodGroup."""
        for number in range(count):
            pod = world.pod(f"{group}-{number}", cpu=cpu, **member(group), **spec)
            await self.api.create("pods", pod, self.namespace)

    async def placed(self, count: int) -> dict[str, str]:
        """Wait until so many pods have a node; return the node of each."""

        async def found() -> dict[str, str] | None:
            nodes = await self.nodes()
            return nodes if len(nodes) == count else None

        return await until(found, describe=lambda: f"{count} pods placed\n{self._services.logs()}")

    async def nodes(self) -> dict[str, str]:
        """Return the node of each pod that has one."""
        pods = await self.api.items("pods", self.namespace)
        found = {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in pods}
        return {name: node for name, node in found.items() if node}

    async def condition(self, name: str, kind: str, **fields: str) -> Object:
        """Wait for a condition of a native PodGroup with these fields."""

        async def found() -> Object | None:
            group = await self.api.request("GET", f"{self._path}/{name}")
            for condition in group.get("status", {}).get("conditions", []):
                if condition["type"] == kind and fields.items() <= condition.items():
                    return condition
            return None

        what = f"{kind} {fields} of {name}"
        return await until(found, describe=lambda: f"{what}\n{self._services.logs()}")

    async def volcanos(self) -> list[Object]:
        """Return the PodGroups of Volcano in the namespace."""
        return await self.api.items("podgroups", self.namespace)


@pytest.fixture
def groups(api: Api, namespace: str, services: Fleet) -> Groups:
    return Groups(api, namespace, services)


async def test_a_gang_is_placed_whole_and_its_podgroup_says_so(groups: Groups) -> None:
    await groups.group("g", min_count=3)
    await groups.pods("g", 3)
    await groups.placed(3)
    await groups.condition("g", "PodGroupInitiallyScheduled", status="True", reason="Scheduled")
    await groups.condition("g", "pumice.dev/Phase", reason="Running")
    assert await groups.volcanos() == []


async def test_a_gang_that_does_not_fit_waits_whole_and_starts_with_a_lower_minimum(
    groups: Groups,
) -> None:
    await groups.group("g", min_count=3)
    await groups.pods("g", 3, cpu="3")
    first = await groups.condition("g", "PodGroupInitiallyScheduled", status="False")
    assert first["reason"] == "Unschedulable"
    assert "insufficient cpu" in first["message"]
    assert await groups.nodes() == {}
    await groups.merge("g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await groups.placed(2)
    await groups.condition("g", "PodGroupInitiallyScheduled", status="True")


async def test_pods_that_come_before_their_podgroup_wait_for_it(groups: Groups) -> None:
    await groups.pods("g", 2)
    await groups.group("other", min_count=1)
    await groups.pods("other", 1)
    assert list(await groups.placed(1)) == ["other-0"]
    await groups.group("g", min_count=2)
    await groups.placed(3)


async def test_a_job_of_kubernetes_with_a_gang_policy_starts_whole(groups: Groups) -> None:
    template = {
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
            ],
        }
    }
    spec = {
        "parallelism": 3,
        "completions": 3,
        "completionMode": "Indexed",
        "template": template,
        "scheduling": {"schedulingPolicy": {"gang": {}}},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    path = f"/apis/batch/v1/namespaces/{groups.namespace}/jobs"
    await groups.api.request("POST", path, job)
    await groups.placed(3)
    found = await groups.api.request("GET", f"{GROUP}/namespaces/{groups.namespace}/podgroups")
    (group,) = found["items"]
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3
    await groups.condition(group["metadata"]["name"], "PodGroupInitiallyScheduled", status="True")
    assert await groups.volcanos() == []


async def test_a_gang_with_a_topology_key_is_placed_in_one_domain(groups: Groups) -> None:
    await groups.group("first", min_count=1)
    await groups.pods("first", 1, cpu="2")
    (taken,) = (await groups.placed(1)).values()
    await groups.group("g", min_count=2, key="rack")
    await groups.pods("g", 2, cpu="2")
    nodes = await groups.placed(3)
    assert {nodes["g-0"], nodes["g-1"]} == {"node-0", "node-1"} - {taken}


async def test_pods_of_a_group_share_its_claim_for_a_device(
    groups: Groups, api: Api, namespace: str
) -> None:
    offered = one_device(namespace)
    for kind, body in offered.items():
        await api.create(kind, body)
    spec = spec_of(request(device_class=namespace))
    template = {"metadata": {"name": "one"}, "spec": {"spec": spec}}
    await api.create("resourceclaimtemplates", template, namespace)
    shared = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    await groups.group("g", min_count=3, **shared)
    await groups.pods("g", 3, **shared)
    assert set((await groups.placed(3)).values()) == {"node-0"}
    (claim,) = await api.items("resourceclaims", namespace)
    (user,) = claim["status"]["reservedFor"]
    assert (user["apiGroup"], user["resource"]) == ("scheduling.k8s.io", "podgroups")
    assert user["name"] == "g"
    for kind, body in offered.items():
        await api.delete(kind, "", body["metadata"]["name"])


def one_device(name: str) -> dict[str, Object]:
    """Return a class of devices, and what offers one of it on a node."""
    return {
        "deviceclasses": device_class(name, f'device.driver == "{name}.example.com"'),
        "resourceslices": slice_of(name, ["d0"], node="node-0", driver=f"{name}.example.com"),
    }


async def test_a_gang_that_does_not_preempt_waits(
    api: Api, namespace: str, preempting: Fleet
) -> None:
    groups = Groups(api, namespace, preempting)
    low, high = await classes(api, namespace)
    await groups.group("low", min_count=1, **low)
    await groups.pods("low", 4, cpu="2", **low)
    await groups.placed(4)
    never = {"preemptionPolicy": "Never"}
    modest = {"metadata": {"name": f"{namespace}-modest"}, "value": 1000, **never}
    await api.create("priorityclasses", modest)
    # The default of the field is not that of the class, so that both have to say it.
    await groups.group("high", min_count=1, priorityClassName=f"{namespace}-modest", **never)
    await groups.pods("high", 1, cpu="2", **high)
    await groups.condition("high", "PodGroupInitiallyScheduled", status="False")
    assert len(await groups.nodes()) == 4


async def classes(api: Api, namespace: str) -> tuple[Object, Object]:
    """Create two priority classes; return the part of a spec that names the low and the high."""
    for name, value in (("unimportant", 10), ("important", 1000)):
        body = {"metadata": {"name": f"{namespace}-{name}"}, "value": value}
        await api.create("priorityclasses", body)
    low, high = f"{namespace}-unimportant", f"{namespace}-important"
    return {"priorityClassName": low}, {"priorityClassName": high}


async def test_a_group_that_is_disrupted_together_makes_room_as_a_whole(
    api: Api, namespace: str, preempting: Fleet
) -> None:
    groups = Groups(api, namespace, preempting)
    low, high = await classes(api, namespace)
    await groups.group("low", min_count=2, disruptionMode={"all": {}}, **low)
    await groups.pods("low", 4, cpu="2", **low)
    await groups.placed(4)
    await groups.group("high", min_count=1, **high)
    await groups.pods("high", 1, cpu="2", **high)

    async def alone() -> bool:
        return set(await groups.nodes()) == {"high-0"}

    await until(alone, describe=preempting.logs)


async def test_an_important_gang_gets_the_places_of_pods_beyond_another_ones_minimum(
    api: Api, namespace: str, preempting: Fleet
) -> None:
    groups = Groups(api, namespace, preempting)
    low, high = await classes(api, namespace)
    await groups.group("low", min_count=2, **low)
    await groups.pods("low", 4, cpu="2", **low)
    await groups.placed(4)
    await groups.group("high", min_count=2, **high)
    await groups.pods("high", 2, cpu="2", **high)

    async def both() -> bool:
        names = sorted(name.partition("-")[0] for name in await groups.nodes())
        return names == ["high", "high", "low", "low"]

    await until(both, describe=preempting.logs)

    async def told() -> bool:
        events = await api.items("events", namespace)
        about = [e["involvedObject"] for e in events if e["reason"] == "Evict"]
        return any(o["name"] == "low" and o["apiVersion"].startswith("scheduling") for o in about)

    await until(told, describe=preempting.logs)
