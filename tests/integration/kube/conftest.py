"""A client of the shared control plane, and what its tests create."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.api.kinds import SERVICEACCOUNT
from shared.kube.client import Kube
from shared.kube.config import connect


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    async with await connect(str(kubeconfig), user_agent="pumice-test/1") as kube:
        yield kube


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
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        }
        path = f"/apis/{group}/v1/namespaces/{self._namespace}/rolebindings"
        await self._kube.request("POST", path, body=binding)

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


@pytest.fixture
def accounts(kube: Kube, namespace: str, kubeconfig: Path) -> Accounts:
    return Accounts(kube, namespace, kubeconfig)
