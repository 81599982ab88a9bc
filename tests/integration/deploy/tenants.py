"""Users who may edit one namespace and nothing else, as clusters give that right to a tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from pumice.local.control_plane import ControlPlane
from tests.support.api import Api, connect
from tests.support.wait import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@asynccontextmanager
async def tenant(
    plane: ControlPlane, administrator: Api, namespace: str, directory: Path, *, role: str = "edit"
) -> AsyncIterator[Api]:
    """Make a namespace with an account that has `role` there; open the account's session."""
    await administrator.create("namespaces", {"metadata": {"name": namespace}})
    account = {"metadata": {"name": "tenant"}}
    await administrator.create("serviceaccounts", account, namespace)
    binding = {
        "metadata": {"name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }
    await administrator.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/tenant/token"
    answer = await administrator.request("POST", path, {"spec": {"expirationSeconds": 3600}})
    document = yaml.safe_load(plane.kubeconfig.read_text())
    token = {"token": answer["status"]["token"]}
    document["users"] = [{"name": document["users"][0]["name"], "user": token}]
    target = directory / f"{namespace}.kubeconfig"
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o600)
    async with connect(target) as api:

        async def may_list() -> bool:
            """A role that was just bound, or aggregated, takes a moment to be known."""
            review = {"spec": {"resourceAttributes": {
                "namespace": namespace, "verb": "create", "group": "bus.volcano.sh",
                "resource": "commands",
            }}}  # fmt: skip
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            allowed: bool = (await api.request("POST", path, review))["status"]["allowed"]
            return allowed

        await until(may_list, deadline_s=20, describe="the tenant's role")
        yield api
