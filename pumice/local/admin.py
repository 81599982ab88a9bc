"""The few requests that the local stack itself sends to its API server, as its administrator.

Probing readiness, applying the CRDs and roles, adding fake nodes. The services use `shared.kube`;
this stays apart from it so that a fault there cannot keep the stack from starting.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from pumice.local.authority import Pair, Pki
from pumice.local.errors import LocalError, unwrapped
from pumice.local.fleet import FleetHyperNode, NodeShape, hyper_node_manifest, node_manifests
from shared.runtime.tasks import TaskGroup

_PARALLEL: Final = 16
_REQUEST_S: Final = 30.0
_OF_KUBERNETES: Final = re.compile(r"node\.kubernetes\.io/")
"""Taints that stand for a condition, as on a node that was made just now."""
_MANAGER: Final = {"fieldManager": "pumice-local", "force": "true"}
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
HYPER_NODES: Final = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class AdminReply(msgspec.Struct, frozen=True, kw_only=True):
    """A response of the API server: the HTTP status, and the object (or the text of a probe)."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def error_message(self) -> str:
        """Return the server's message, for a refusal."""
        body = self.body
        return str(body.get("message", body)) if isinstance(body, dict) else str(body)


class Admin:
    """One session to the API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> AdminReply:
        """Send one request and read the whole response; aiohttp's errors pass through."""
        async with self._session.request(
            method, path, data=body, params=params, headers={"Content-Type": content_type}
        ) as reply:
            text = await reply.text()
            body_read = json.loads(text) if text.startswith("{") else text
            return AdminReply(status=reply.status, body=body_read)

    async def probe(self) -> str:
        """Return "" when the API server reports ready, else the checks that fail."""
        try:
            reply = await self.request("GET", "/readyz")
        except aiohttp.ClientError as exc:
            return str(exc)
        return "" if reply.ok else f"/readyz answers {reply.status}: {reply.error_message()}"

    async def accounts_ready(self, namespace: str = "default") -> str:
        """Return "" when pods can be created in a namespace: its account has been made."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        try:
            reply = await self.request("GET", path)
        except aiohttp.ClientError as exc:
            return str(exc)
        return "" if reply.ok else f"the account of namespace {namespace} is not made yet"

    async def queue_open(self, name: str = "default") -> str:
        """Return "" when jobs can go to a queue, else why not yet."""
        reply = await self.request("GET", f"{QUEUES}/{name}")
        state = (reply.body.get("status") or {}).get("state") if reply.ok else "not there"
        return "" if state == "Open" else f"the queue {name} is {state or 'new'}"

    async def apply_crds(self, manifests: Iterable[dict[str, Any]]) -> list[str]:
        """Apply CRDs and wait until they are served; returns their names.

        Raises LocalError with the server's words when it refuses one.
        """
        names: list[str] = []
        collections: list[str] = []
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            await self._apply(f"{CRDS}/{name}", manifest)
            names.append(name)
            collections += [_collection(manifest, v["name"]) for v in _served(manifest)]
        for name in names:
            await self._established(name)
        for collection in collections:
            await self._listed(collection)
        return names

    async def apply_cluster_roles(self, manifests: Iterable[dict[str, Any]]) -> list[str]:
        """Apply ClusterRoles and their bindings; returns the names of the roles.

        Raises LocalError with the server's words when it refuses one.
        """
        names: list[str] = []
        for manifest in manifests:
            name, plural = manifest["metadata"]["name"], f"{manifest['kind'].lower()}s"
            await self._apply(f"{_RBAC}/{plural}/{name}", manifest)
            if plural == "clusterroles":
                names.append(name)
        return names

    async def _apply(self, path: str, manifest: dict[str, Any]) -> None:
        reply = await self.request(
            "PATCH",
            path,
            body=msgspec.json.encode(manifest),
            content_type="application/apply-patch+yaml",
            params=_MANAGER,
        )
        if not reply.ok:
            name = f"{manifest['kind']} {manifest['metadata']['name']}"
            raise LocalError(f"the API server refuses the {name}: {reply.error_message()}")

    async def _established(self, name: str) -> None:
        async with asyncio.timeout(_REQUEST_S):
            while True:
                crd = (await self.request("GET", f"{CRDS}/{name}")).body
                conditions = (crd.get("status") or {}).get("conditions") or []
                states = {c["type"]: c["status"] for c in conditions}
                if states.get("Established") == "True":
                    return
                await asyncio.sleep(0.05)

    async def _listed(self, collection: str) -> None:
        """Wait until the first list of a new kind succeeds; until then each one gets a 429."""
        async with asyncio.timeout(_REQUEST_S):
            while True:
                if (await self.request("GET", collection, params={"limit": "1"})).ok:
                    return
                await asyncio.sleep(0.05)

    async def add_nodes(self, shapes: Iterable[NodeShape]) -> int:
        """Create the fake nodes that are not there yet; returns how many were created."""
        manifests = [manifest for shape in shapes for manifest in node_manifests(shape)]
        return await self._add("/api/v1/nodes", manifests)

    async def add_hyper_nodes(self, hyper_nodes: Iterable[FleetHyperNode]) -> int:
        """Create the HyperNodes that are not there yet; returns how many were created."""
        return await self._add(HYPER_NODES, [hyper_node_manifest(hyper) for hyper in hyper_nodes])

    async def _add(self, collection: str, manifests: Iterable[dict[str, Any]]) -> int:
        slots = asyncio.Semaphore(_PARALLEL)
        created = 0

        async def add(manifest: dict[str, Any]) -> None:
            nonlocal created
            async with slots:
                body = msgspec.json.encode(manifest)
                reply = await self.request("POST", collection, body=body)
            if not reply.ok and reply.status != HTTPStatus.CONFLICT:
                name = manifest["metadata"]["name"]
                raise LocalError(f"the API server refuses {name}: {reply.error_message()}")
            created += reply.ok

        with unwrapped():
            async with TaskGroup() as tasks:
                for manifest in manifests:
                    tasks.create_task(add(manifest), name=manifest["metadata"]["name"])
        return created

    async def ready_nodes(self) -> set[str]:
        """Return the names of the nodes that are Ready."""
        reply = await self.request("GET", "/api/v1/nodes", params={"resourceVersion": "0"})
        return {node["metadata"]["name"] for node in reply.body["items"] if _is_ready(node)}


def connect(url: str, pki: Pki) -> AbstractAsyncContextManager[Admin]:
    """Open a session as the administrator of `pki`."""
    return session(url, ca=pki.ca, client=pki.admin)


@asynccontextmanager
async def session(url: str, *, ca: Path, client: Pair) -> AsyncIterator[Admin]:
    """Open a session with a client certificate, to a server that `ca` vouches for."""
    tls = ssl.create_default_context(cafile=str(ca))
    tls.load_cert_chain(client.cert, client.key)
    async with aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(ssl=tls),
        timeout=aiohttp.ClientTimeout(total=_REQUEST_S),
    ) as opened:
        yield Admin(opened)


def _served(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [version for version in manifest["spec"]["versions"] if version["served"]]


def _collection(manifest: dict[str, Any], version: str) -> str:
    spec = manifest["spec"]
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _is_ready(node: dict[str, Any]) -> bool:
    """Return whether a node takes the pods that tolerate the taints it was made with."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    states = {condition["type"]: condition["status"] for condition in conditions}
    taints = [taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()]
    return states.get("Ready") == "True" and not any(map(_OF_KUBERNETES.match, taints))


def crd_manifests(directory: Path) -> list[dict[str, Any]]:
    """Return the CRDs in a directory's YAML files, by file name; other kinds are left out."""
    return [
        document
        for file in sorted(directory.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if document and document.get("kind") == "CustomResourceDefinition"
    ]
