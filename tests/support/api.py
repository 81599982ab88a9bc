"""A plain client of the API server for tests; shares no code with the services it judges."""

import base64
import io
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import yaml

from tests.support.wait import until

_PLURALS = {
    "/api/v1": "namespaces nodes pods podtemplates services configmaps secrets events"
    " serviceaccounts resourcequotas persistentvolumes persistentvolumeclaims",
    "/apis/storage.k8s.io/v1": "storageclasses csidrivers csinodes volumeattachments"
    " csistoragecapacities",
    "/apis/scheduling.k8s.io/v1": "priorityclasses",
    "/apis/resource.k8s.io/v1": "deviceclasses resourceslices devicetaintrules resourceclaims"
    " resourceclaimtemplates",
    "/apis/coordination.k8s.io/v1": "leases",
    "/apis/networking.k8s.io/v1": "networkpolicies",
    "/apis/batch.volcano.sh/v1alpha1": "jobs cronjobs",
    "/apis/flow.volcano.sh/v1alpha1": "jobflows jobtemplates",
    "/apis/topology.volcano.sh/v1alpha1": "hypernodes",
    "/apis/shard.volcano.sh/v1alpha1": "nodeshards",
    "/apis/bus.volcano.sh/v1alpha1": "commands",
    "/apis/scheduling.volcano.sh/v1beta1": "podgroups queues",
    "/apis/apiextensions.k8s.io/v1": "customresourcedefinitions",
    "/apis/autoscaling.x-k8s.io/v1": "provisioningrequests",
}
PATHS = {plural: root for root, plurals in _PLURALS.items() for plural in plurals.split()}
_OF_CLUSTER = """
    nodes namespaces queues hypernodes nodeshards persistentvolumes storageclasses csidrivers
    csinodes volumeattachments priorityclasses deviceclasses resourceslices
    devicetaintrules customresourcedefinitions
"""
CLUSTER_SCOPED = set(_OF_CLUSTER.split())
NOT_FOUND = 404


class ApiError(RuntimeError):
    """An answer that is not 2xx."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:600]}")
        self.status = status
        self.message = _message(text)
        """The server's words, as a user reads them."""


@contextmanager
def gone_is_fine() -> Iterator[None]:
    """Let pass that an object which a request is about is not there (any more)."""
    try:
        yield
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise


async def refusal(request: Awaitable[object]) -> str:
    """Send a request; return what the server said when it refused, "" when it did not."""
    try:
        await request
    except ApiError as error:
        return error.message
    return ""


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def path(plural: str, namespace: str = "", name: str = "", sub: str = "") -> str:
    """Return the path of a collection, an object or a subresource."""
    parts = [PATHS[plural]]
    if namespace and plural not in CLUSTER_SCOPED:
        parts += ["namespaces", namespace]
    parts.append(plural)
    parts += [part for part in (name, sub) if part]
    return "/".join(parts)


class Api:
    """One session to the API server, as the user of a kubeconfig."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, method: str, url: str, body: object = None, **kwargs) -> dict:
        """Send one request; return the decoded answer. Raises ApiError."""
        content_type = kwargs.pop("content_type", "application/json")
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        return json.loads(await self.text(url, method, data=data, headers=headers, **kwargs))

    async def text(self, url: str, method: str = "GET", **kwargs) -> str:
        """Get a page that is no JSON, such as `/metrics`. Raises ApiError."""
        async with self._session.request(method, url, **kwargs) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise ApiError(answer.status, text)
            return text

    async def send(
        self, method: str, url: str, body: bytes = b"", content_type: str = "application/json"
    ) -> int:
        """Send bytes as they are and read nothing but the status of the answer."""
        headers = {"Content-Type": content_type}
        data = io.BytesIO(body)  # aiohttp warns of large bytes
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            return answer.status

    async def get(self, plural: str, namespace: str = "", name: str = "", **params) -> dict:
        """Get one object, or list a collection when no name is given."""
        return await self.request("GET", path(plural, namespace, name), params=params)

    async def items(self, plural: str, namespace: str = "", **params) -> list[dict]:
        """List the items of a collection."""
        return (await self.get(plural, namespace, **params))["items"]

    async def names(self, url: str) -> list[str]:
        """List the names of a collection: objects may be nested deeper than `json` reads."""
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        params = {"includeObject": "None"}
        table = json.loads(await self.text(url, headers=headers, params=params))
        return [row["cells"][0] for row in table.get("rows") or ()]

    async def create(self, plural: str, body: dict, namespace: str = "") -> dict:
        """Create an object."""
        return await self.request("POST", path(plural, namespace), body)

    async def patch(self, plural: str, namespace: str, name: str, body: dict, sub="") -> dict:
        """Merge-patch an object."""
        return await self.request(
            "PATCH",
            path(plural, namespace, name, sub),
            body,
            content_type="application/merge-patch+json",
        )

    async def delete(self, plural: str, namespace: str, name: str, grace_s: int | None = None):
        """Delete an object."""
        params = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        return await self.request("DELETE", path(plural, namespace, name), params=params)

    async def empty(self, plural: str, namespace: str = "", grace_s: int | None = None) -> bool:
        """Delete all objects of a kind, in one namespace or all; return whether there were none."""
        found = await self.items(plural, namespace)
        for item in found:
            meta = item["metadata"]
            with gone_is_fine():
                await self.delete(plural, meta.get("namespace", ""), meta["name"], grace_s)
        return not found

    async def clear(self, *plurals: str, namespace: str = "") -> None:
        """Delete all objects of these kinds, in one namespace or all, and wait until they are gone.

        Pods go at once.
        """
        graces = {plural: 0 if plural == "pods" else None for plural in plurals}

        async def is_clear() -> bool:
            return all([await self.empty(p, namespace, grace) for p, grace in graces.items()])

        await until(is_clear, deadline_s=60, every_s=0.1, describe=f"no {', '.join(plurals)} left")

    async def watch(self, plural: str, namespace: str = "", rv: str = "") -> AsyncIterator[dict]:
        """Yield watch events from `rv` until the server ends the watch."""
        params = {"watch": "1", "resourceVersion": rv, "allowWatchBookmarks": "true"}
        async with self._session.get(path(plural, namespace), params=params) as answer:
            if answer.status >= 300:
                raise ApiError(answer.status, await answer.text())
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def follow(self, plural: str, namespace: str = "", rv: str = "") -> AsyncIterator[dict]:
        """Yield the changes of objects from `rv` without end.

        An API server may end the watch of a reader that it finds too slow, as a test on a busy
        machine can be. The next watch begins where that one ended.
        """
        while True:
            async for event in self.watch(plural, namespace, rv):
                assert event["type"] != "ERROR", event
                rv = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield event


@asynccontextmanager
async def connect(kubeconfig: str | Path) -> AsyncIterator[Api]:
    """Open an `Api` for the current context of a kubeconfig."""
    server, headers, context = credentials(Path(kubeconfig))
    async with aiohttp.ClientSession(
        server,
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=context, limit=64),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
    ) as session:
        yield Api(session)


def credentials(kubeconfig: Path) -> tuple[str, dict[str, str], ssl.SSLContext | bool]:
    """Return server, headers and TLS settings of the current context of a kubeconfig."""
    doc = yaml.safe_load(kubeconfig.read_text())

    def named(kind: str, name: str) -> dict:
        return next(entry for entry in doc[kind] if entry["name"] == name)

    context = named("contexts", doc["current-context"])["context"]
    cluster = named("clusters", context["cluster"])["cluster"]
    user = named("users", context["user"])["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    if not cluster["server"].startswith("https"):
        return cluster["server"], headers, True
    with tempfile.TemporaryDirectory() as folder:

        def file_of(holder: dict, key: str) -> str | None:
            if key in holder:
                return holder[key]
            if f"{key}-data" not in holder:
                return None
            target = Path(folder) / key
            target.write_bytes(base64.b64decode(holder[f"{key}-data"]))
            return str(target)

        tls = ssl.create_default_context(cafile=file_of(cluster, "certificate-authority"))
        if certificate := file_of(user, "client-certificate"):
            tls.load_cert_chain(certificate, file_of(user, "client-key"))
    return cluster["server"], headers, tls
