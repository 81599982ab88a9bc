"""The services' own accounts on the API servers of tests, with the roles of k8s/base.

Each service comes with a token of the user that its ServiceAccount is, so that a rule which is
missing fails the test that needs it. Where `AUDIT_DIRECTORY` names a folder (tools/suite.py), each
API server writes there what these users requested, which `tools.roles` compares with the roles.
`Accounts` are others, for tests of roles and of tokens that rotate.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

import yaml

from pumice.local.control_plane import ControlPlane
from shared.api.kinds import SERVICEACCOUNT
from shared.kube.client import Kube
from tests.support.api import connect
from tests.support.manifests import BASE, apply

NAMESPACE = "pumice-system"
AUDIT_DIRECTORY = "PUMICE_AUDIT_DIRECTORY"
WITH_ACCOUNT = ("cache", "scheduler", "binder", "controller", "admission", "visibility")
LED = ("cache", "scheduler", "binder", "controller")
"""Services that tests always run under their accounts. Admission registers under names of its own
in most tests, which its role does not allow."""
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "users": [f"system:serviceaccount:{NAMESPACE}:pumice-{name}" for name in WITH_ACCOUNT],
        },
        {"level": "None"},
    ],
}


def audit_flags(directory: Path) -> tuple[str, ...]:
    """Return the flags by which an API server writes down what the services ask, if it shall.

    `directory` is the API server's own; the log goes where `AUDIT_DIRECTORY` says.
    """
    target = os.environ.get(AUDIT_DIRECTORY, "")
    if not target:
        return ()
    directory.mkdir(parents=True, exist_ok=True)
    policy = directory / "audit-of-services.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    log = Path(target) / f"{secrets.token_hex(8)}.log"
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=batch",
        "--audit-log-maxsize=4096",
    )


def make_accounts(plane: ControlPlane) -> None:
    """Give each service a token and a kubeconfig; before the API server starts."""
    tokens = plane.directory / "pki" / "tokens.csv"
    folder = plane.directory / "accounts"
    folder.mkdir(mode=0o700)
    groups = f"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}"
    for name in WITH_ACCOUNT:
        token = secrets.token_urlsafe(24)
        user = f"system:serviceaccount:{NAMESPACE}:pumice-{name}"
        with tokens.open("a") as file:
            file.write(f'{token},{user},{user},"{groups}"\n')
        (folder / f"{name}.token").write_text(token)


async def apply_roles(plane: ControlPlane, base: Path = BASE) -> None:
    """Apply the roles of k8s/base, and write the kubeconfigs of the accounts.

    `base` is that folder of another release.
    """
    document = yaml.safe_load(plane.kubeconfig.read_text())
    (user,) = document["users"]
    for name in WITH_ACCOUNT:
        path = account(plane.kubeconfig, name, made=False)
        user["user"] = {"token": path.with_suffix(".token").read_text()}
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
    async with connect(plane.kubeconfig) as api:
        for file in (base / "namespace.yaml", *sorted((base / "rbac").glob("*.yaml"))):
            for manifest in yaml.safe_load_all(file.read_text()):
                await apply(api, manifest)


def account(kubeconfig: Path, service: str, *, made: bool = True) -> Path:
    """Return the kubeconfig of a service's account beside the administrator's.

    With `made` it is the administrator's own where the API server knows no accounts.
    """
    own = kubeconfig.parent / "accounts" / f"{service}.kubeconfig"
    return own if own.exists() or not made else kubeconfig


def run_flags(kubeconfig: Path) -> list[str]:
    """Return the flags of `pumice run` that give each service its account."""
    return [f"--{name}.kubeconfig={account(kubeconfig, name)}" for name in LED]


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
        path = f"/apis/{_RBAC}/v1/namespaces/{self._namespace}/rolebindings"
        await self._bind(path, name, account=name, role=role)

    async def allow_everywhere(self, name: str, rules: list[dict[str, Any]]) -> None:
        """Give an account the rights of `rules` in the whole cluster."""
        unique = f"{name}-{self._namespace}"
        path = f"/apis/{_RBAC}/v1"
        role = {"metadata": {"name": unique}, "rules": rules}
        await self._kube.request("POST", f"{path}/clusterroles", body=role)
        await self._bind(f"{path}/clusterrolebindings", unique, account=name, role=unique)

    async def _bind(self, path: str, name: str, *, account: str, role: str) -> None:
        binding = {
            "metadata": {"name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self._namespace}],
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        }
        await self._kube.request("POST", path, body=binding)

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
