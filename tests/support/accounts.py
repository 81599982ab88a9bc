"""Service accounts for tests of roles and of tokens that rotate."""

import json
from pathlib import Path
from typing import Any

import yaml

from shared.api.kinds import SERVICEACCOUNT
from shared.kube.client import Kube

_RBAC = "rbac.authorization.k8s.io"


class Accounts:
    """Service accounts of one namespace, and kubeconfigs that use them."""

    def __init__(self, kube: Kube, namespace: str, kubeconfig: Path) -> None:
        self._kube = kube
        self._namespace = namespace
        self._config = yaml.safe_load(kubeconfig.read_text())

    async def create(self, name: str, *, role: str = "") -> None:
        """Create an account, bound to the cluster role `role` in its namespace."""
        account = {"metadata": {"name": name}}
        await self._kube.create(SERVICEACCOUNT, self._namespace, account)
        if not role:
            return
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self._namespace}
        binding = {
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        }
        path = f"/apis/{_RBAC}/v1/namespaces/{self._namespace}/rolebindings"
        await self._kube.request("POST", path, body=binding)

    async def allow_everywhere(self, name: str, rules: list[dict[str, Any]]) -> None:
        """Give an account the rights of `rules` in the whole cluster."""
        unique = f"{name}-{self._namespace}"
        path = f"/apis/{_RBAC}/v1"
        role = {"metadata": {"name": unique}, "rules": rules}
        await self._kube.request("POST", f"{path}/clusterroles", body=role)
        binding = {
            "metadata": {"name": unique},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}],
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": unique},
        }
        await self._kube.request("POST", f"{path}/clusterrolebindings", body=binding)

    async def allow_in(self, namespace: str, name: str, rules: list[dict[str, Any]]) -> None:
        """Give an account the rights of `rules` in one namespace."""
        path = f"/apis/{_RBAC}/v1/namespaces/{namespace}"
        role = {"metadata": {"name": name}, "rules": rules}
        await self._kube.request("POST", f"{path}/roles", body=role)
        binding = {
            "metadata": {"name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}],
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        }
        await self._kube.request("POST", f"{path}/rolebindings", body=binding)

    async def token(self, name: str) -> str:
        """Return a fresh token of an account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{name}/token"
        answer = json.loads(await self._kube.request("POST", path, body=body))
        return str(answer["status"]["token"])

    async def delete(self, name: str) -> None:
        """Delete an account: its tokens are refused from then on."""
        found = json.loads(await self._kube.get(SERVICEACCOUNT, self._namespace, name))
        uid = found["metadata"]["uid"]
        await self._kube.delete(SERVICEACCOUNT, self._namespace, name, uid=uid)

    def kubeconfig(self, **user: Any) -> str:
        """Return the administrator's kubeconfig with another user section."""
        config = {**self._config, "users": [{**self._config["users"][0], "user": user}]}
        return str(yaml.safe_dump(config))
