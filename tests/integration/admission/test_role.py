"""Admission does all its work under exactly the role that k8s/base gives it."""

from pathlib import Path

import pytest
import yaml

from pumice.local.control_plane import ControlPlane
from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api
from tests.support.manifests import BASE
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

NAMESPACE = "pumice-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
}


async def account(api: Api, plane: ControlPlane, directory: Path) -> Path:
    """Apply the role; return a kubeconfig with a token of the account."""
    await api.create("namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in yaml.safe_load_all((BASE / "rbac" / "admission.yaml").read_text()):
        await api.request("POST", PLACES[manifest["kind"]], manifest)
    path = f"{PLACES['ServiceAccount']}/pumice-admission/token"
    answer = await api.request("POST", path, {"spec": {"expirationSeconds": 3600}})
    document = yaml.safe_load(plane.kubeconfig.read_text())
    token = {"token": answer["status"]["token"]}
    document["users"] = [{"name": document["users"][0]["name"], "user": token}]
    target = directory / "admission.kubeconfig"
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o600)
    return target


async def test_its_role_is_enough_to_register_share_an_authority_and_judge(
    own_door: Door, api: Api, plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    kubeconfig = await account(api, plane, tmp_path)
    own_door.name = "pumice-admission"
    flags = {"kubeconfig": str(kubeconfig), "webhook_namespace": NAMESPACE, "unregister": "true"}
    replica = await own_door.start(**flags)
    assert (await api.get("secrets", NAMESPACE, "pumice-admission-ca"))["data"]["ca.crt"]
    job = world.job("j", world.task("w", 1), plugins={"nope": []})
    await own_door.refuses("jobs", job, space, words="unable to find job plugin: nope")
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {}}
    await api.create("podgroups", {**group, "metadata": {"name": "g"}}, space)
    await own_door.remove()
    await until(own_door.registered, deadline_s=30, describe=lambda: replica.log)
    await replica.process.stop(grace_s=15)
    assert await own_door.registered() == []
    assert '"forbidden' not in replica.log
    assert "review_failed" not in replica.log
