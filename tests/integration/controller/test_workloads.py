"""Pods of Kubernetes' own workloads get groups that follow their owners (P01 to P05).

kube-controller-manager makes the pods; nothing places them.
"""

from typing import Any

import pytest

from tests.integration.controller.conftest import Hand
from tests.support.fleet import Service
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

GROUP = "scheduling.k8s.io/group-name"
APPS = "/apis/apps/v1"
BATCH = "/apis/batch/v1"


def template(*, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"labels": {"app": "a"}, "annotations": annotations or {}},
        "spec": {"schedulerName": "volcano", "containers": [container], **spec},
    }


def workload(kind: str, name: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    meta = {"name": name, "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


class Workloads:
    """Workloads of one namespace and the groups of their pods."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    async def create(self, root: str, plural: str, body: dict[str, Any]) -> str:
        """Create a workload; return its uid."""
        path = f"{root}/namespaces/{self.hand.namespace}/{plural}"
        made = await self.hand.api.request("POST", path, body)
        return str(made["metadata"]["uid"])

    async def patch(self, root: str, plural: str, name: str, patch: dict[str, Any]) -> None:
        path = f"{root}/namespaces/{self.hand.namespace}/{plural}/{name}"
        content_type = "application/merge-patch+json"
        await self.hand.api.request("PATCH", path, patch, content_type=content_type)

    async def group(self, name: str, **spec: object) -> dict[str, Any]:
        """Wait until there is a group of that name whose spec says that; return it."""
        seen: dict[str, Any] = {}

        async def probe() -> bool:
            seen.clear()
            for group in await self.hand.api.items("podgroups", self.hand.namespace):
                seen[group["metadata"]["name"]] = group
            found = seen.get(name, {}).get("spec", {})
            return name in seen and all(found.get(k) == v for k, v in spec.items())

        await until(probe, deadline_s=30, describe=lambda: f"group {name} with {spec} in {seen}")
        found: dict[str, Any] = seen[name]
        return found

    async def named(self, group: str, count: int) -> None:
        """Wait until so many pods name the group."""
        seen: list[str] = []

        async def probe() -> bool:
            seen[:] = [
                pod["metadata"].get("annotations", {}).get(GROUP, "")
                for pod in (await self.hand.pods()).values()
            ]
            return seen.count(group) == count

        await until(probe, deadline_s=30, describe=lambda: f"{count} pods of {group} in {seen}")


async def test_a_deployments_group_follows_its_annotations_and_its_scale(
    controller: Service, hand: Hand
) -> None:
    loads = Workloads(hand)
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template()}
    least = {"scheduling.volcano.sh/group-min-member": "2", "volcano.sh/preemptable": "true"}
    await loads.create(APPS, "deployments", workload("Deployment", "web", spec, **least))
    owner: dict[str, Any] = {}

    async def made() -> bool:
        path = f"{APPS}/namespaces/{hand.namespace}/replicasets"
        items = (await hand.api.request("GET", path))["items"]
        owner.update(items[0] if items else {})
        return bool(items)

    await until(made, deadline_s=30, describe="the deployment has a ReplicaSet")
    name = f"podgroup-{owner['metadata']['uid']}"
    group = await loads.group(name, minMember=2)
    assert group["spec"]["minResources"]["cpu"] == "2"
    assert group["metadata"]["annotations"] == {"volcano.sh/preemptable": "true"}
    assert group["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    await loads.named(name, 2)

    least["scheduling.volcano.sh/group-min-member"] = "1"
    await loads.patch(APPS, "deployments", "web", {"metadata": {"annotations": least}})
    await loads.group(name, minMember=1)

    await loads.patch(APPS, "deployments", "web", {"spec": {"replicas": 0}})

    async def gone() -> bool:
        return not await hand.api.items("podgroups", hand.namespace)

    await until(gone, deadline_s=30, describe="the group of nothing is deleted (P04)")
    await loads.patch(APPS, "deployments", "web", {"spec": {"replicas": 1}})
    await loads.group(name)
    await loads.named(name, 1)


async def test_a_stateful_sets_pods_share_a_group_in_the_queue_of_their_annotation(
    controller: Service, hand: Hand
) -> None:
    loads = Workloads(hand)
    queued = template(annotations={"scheduling.volcano.sh/queue-name": "default"})
    spec = {
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "a"}},
        "template": queued,
    }
    uid = await loads.create(APPS, "statefulsets", workload("StatefulSet", "db", spec))
    group = await loads.group(f"podgroup-{uid}", minMember=1)
    assert group["spec"]["queue"] == "default"
    await loads.named(f"podgroup-{uid}", 2)


async def test_a_batch_jobs_pods_are_a_gang_when_its_annotation_says_so(
    controller: Service, hand: Hand
) -> None:
    loads = Workloads(hand)
    spec = {"completions": 3, "parallelism": 3, "template": template(restartPolicy="Never")}
    least = {"scheduling.volcano.sh/group-min-member": "3"}
    uid = await loads.create(BATCH, "jobs", workload("Job", "sum", spec, **least))
    group = await loads.group(f"podgroup-{uid}", minMember=3)
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Job"
    await loads.named(f"podgroup-{uid}", 3)


async def test_pods_of_a_foreign_owner_share_a_group_by_their_own_annotations(
    controller: Service, hand: Hand
) -> None:
    """A CRD's controller makes its pods itself; a ConfigMap stands for its object here."""
    loads = Workloads(hand)
    made = await hand.api.create("configmaps", {"metadata": {"name": "mine"}}, hand.namespace)
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": uid}
    for number in range(2):
        pod = template(annotations={"scheduling.volcano.sh/group-min-member": "2"})
        meta = {
            **pod["metadata"],
            "name": f"mine-{number}",
            "ownerReferences": [{**owner, "controller": True}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod["spec"]}
        await hand.api.create("pods", body, hand.namespace)
    await loads.group(f"podgroup-{uid}", minMember=2)
    await loads.named(f"podgroup-{uid}", 2)
