"""What MindCluster tells of NPUs comes to STATE, and no other ConfigMap does (DV3)."""

import json
from pathlib import Path

import pytest

from services.cache.kinds import rows
from shared.api.kinds import CONFIGMAP, NAMESPACE, POD
from shared.kube.client import Kube
from tests.integration.cache.conftest import State
from tests.support.fleet import Fleet
from tests.support.roles import Accounts
from tests.support.world import pod

TOLD = "mindx-dl"
NAME = "cluster-info-device-0"
FOR_SCHEDULERS = {"mx-consumer-volcano": "true"}


@pytest.fixture
async def reader(accounts: Accounts, kube: Kube, tmp_path: Path) -> Path:
    """A kubeconfig with the rights of the cache, and the one that docs/configuration.md adds."""
    await kube.create(NAMESPACE, "", {"metadata": {"name": TOLD}})
    await accounts.create("npus")
    verbs = ["list", "watch"]
    groups: dict[str, list[str]] = {}
    for row in rows(["volcano"]):
        groups.setdefault(row.kind.group, []).append(row.kind.plural)
    rules = [{"apiGroups": [g], "resources": kinds, "verbs": verbs} for g, kinds in groups.items()]
    await accounts.allow_everywhere("npus", rules)
    configmaps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    await accounts.allow_in(TOLD, "npus", [configmaps])
    file = tmp_path / "npus"
    file.write_text(accounts.kubeconfig(token=await accounts.token("npus")))
    return file


async def test_only_configmaps_that_mindcluster_means_for_schedulers_are_published(
    caches: Fleet, state: State, kube: Kube, namespace: str, reader: Path
) -> None:
    data = {NAME: json.dumps({"mindx-dl-deviceinfo-n1": {"DeviceList": {}}})}
    for name, labels in ((NAME, FOR_SCHEDULERS), ("other", {})):
        meta = {"name": name, "labels": labels}
        await kube.create(CONFIGMAP, TOLD, {"metadata": meta, "data": data})
    elsewhere = {"metadata": {"name": NAME, "labels": FOR_SCHEDULERS}, "data": data}
    await kube.create(CONFIGMAP, namespace, elsewhere)
    await caches.start("cache", kubeconfig=reader, mindcluster_npus="true")
    await state.says("put", "npuinfos", f"{TOLD}/{NAME}", text="mindx-dl-deviceinfo-n1")
    await kube.create(POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")
    for key in (f"{TOLD}/other", f"{namespace}/{NAME}"):
        assert await state.fact("npuinfos", key) is None
