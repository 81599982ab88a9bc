"""Prepares the API server of the Compose stack: CRDs, roles, policies, fake nodes.

`docker compose` runs it to its end before the services start. It waits for the API server and can
be repeated. The roles are those of k8s/base, read from the checkout.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from pumice.local import admin
from pumice.local.admin import Admin
from pumice.local.authority import pair
from pumice.local.errors import LocalError
from pumice.local.fleet import NodeShape
from shared.api import crdgen

FILES: Final = (
    "namespace.yaml",
    "rbac/admission.yaml",
    "rbac/binder.yaml",
    "rbac/cache.yaml",
    "rbac/controller.yaml",
    "rbac/visibility-users.yaml",
    "rbac/visibility.yaml",
    "queue-commands.yaml",
    "controller-secrets.yaml",
    "authority-secrets.yaml",
    "cache-leases.yaml",
    "user-annotations.yaml",
)
VISIBILITY: Final = "visibility"
"""Host name of visibility on the network of the stack, and its port there."""
VISIBILITY_PORT: Final = 8444
_WAIT_S: Final = 120.0
_LOOK_S: Final = 0.5
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}


def manifests(base: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and manifest of namespace, accounts, roles and queue policy of k8s/base."""
    for file in FILES:
        for manifest in yaml.safe_load_all((base / file).read_text(encoding="utf-8")):
            meta = manifest["metadata"]
            collection = _PLURALS[manifest["kind"]].format(namespace=meta.get("namespace", ""))
            yield f"{collection}/{meta['name']}", manifest


def api_service(base: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and manifest of the APIService of k8s/base, and of the Service that it names.

    There is no network of pods here: the Service leads to a host name.
    """
    manifest = yaml.safe_load((base / "api-service.yaml").read_text(encoding="utf-8"))
    place = manifest["spec"]["service"]
    place["port"] = VISIBILITY_PORT
    ports = [{"name": "api", "port": VISIBILITY_PORT, "protocol": "TCP"}]
    spec = {"type": "ExternalName", "externalName": VISIBILITY, "ports": ports}
    metadata = {"name": place["name"], "namespace": place["namespace"]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    yield f"/api/v1/namespaces/{place['namespace']}/services/{place['name']}", service
    name = manifest["metadata"]["name"]
    yield f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", manifest


async def prepare(client: Admin, *, base: Path, nodes: NodeShape) -> None:
    """Bring the API server to where the services can start. Raises LocalError."""
    await _until_ready(client)
    names = await client.apply_crds(crdgen.manifests())
    _print(f"applied {len(names)} CRDs")
    for path, manifest in (*manifests(base), *api_service(base)):
        response = await client.request(
            "PATCH",
            path,
            body=msgspec.json.encode(manifest),
            content_type="application/apply-patch+yaml",
            params={"fieldManager": "pumice-compose", "force": "true"},
        )
        if not response.ok:
            raise LocalError(f"the API server refuses {path}: {response.error_message()}")
    _print("applied the services' accounts and roles, and the policy of Commands to queues")
    _print(f"added {await client.add_nodes([nodes])} fake nodes")


async def _until_ready(client: Admin) -> None:
    """Wait until the API server is up and pods can be created in its default namespace."""
    missing = ""
    try:
        async with asyncio.timeout(_WAIT_S):
            while True:
                missing = await client.probe() or await client.accounts_ready()
                if not missing:
                    return
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise LocalError(f"the API server is not ready after {_WAIT_S:g} s: {missing}") from None


def _print(line: str) -> None:
    sys.stdout.write(f"setup: {line}\n")
    sys.stdout.flush()


async def _run(given: argparse.Namespace) -> None:
    folder: Path = given.credentials
    ca, client_pair = folder / "ca.crt", pair(folder, "admin")
    async with admin.session(given.server, ca=ca, client=client_pair) as client:
        await prepare(client, base=given.base, nodes=NodeShape(count=given.nodes))


def main(argv: Sequence[str]) -> int:
    """Prepare; return the exit code."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.compose_setup")
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--credentials", type=Path, required=True, help="folder of compose_init")
    parser.add_argument("--base", type=Path, required=True, help="k8s/base of the checkout")
    parser.add_argument("--nodes", type=int, default=8, help="fake nodes to add (8)")
    try:
        asyncio.run(_run(parser.parse_args(argv)))
    except (LocalError, aiohttp.ClientError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
