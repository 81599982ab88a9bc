"""The way to the cluster: which API server a user means, requests to it, refusals in Go's words.

Called by the commands. Reads and writes carry the API server's JSON as it is: what a type of ours
does not know is shown and sent all the same.
"""

import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from pumice.vcctl.flags import Failure, Value, text
from shared.api.kinds import COMMAND, Kind
from shared.kube.client import Kube, address, collection
from shared.kube.credentials import Access, Loaded, Source
from shared.kube.errors import UNAUTHORIZED, Refusal
from shared.kube.kubeconfig import BadKubeconfigError
from shared.kube.sources import InClusterSource, KubeconfigSource
from shared.kube.transport import open_transport
from shared.kube.wire import MERGE_PATCH, Request, Transport
from shared.runtime.clock import SystemClock
from shared.runtime.errors import PumiceError

Object = dict[str, Any]

_TIMEOUT_S: Final = 60.0
_NOWHERE: Final = "http://localhost:8080"
"""Go's client goes there when no file says more."""
_VERBS: Final = {"GET": "Get", "POST": "Post", "PATCH": "Patch", "DELETE": "Delete", "PUT": "Put"}


class Cluster:
    """The requests of the commands. `now_s` is the time that ages are told by."""

    def __init__(self, transport: Transport, *, now_s: float) -> None:
        self._transport = transport
        self._kube = Kube(transport=transport)
        self.now_s = now_s

    async def close(self) -> None:
        """Close the connection."""
        await self._kube.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return an object. Raises Failure."""
        path = _address(kind, namespace, name)
        return msgspec.json.decode(await self._send("GET", path), type=Object)

    async def items(
        self, kind: Kind, namespace: str = "", query: Sequence[tuple[str, str]] = ()
    ) -> list[Object]:
        """Return the objects of a kind, of all namespaces without one. Raises Failure."""
        body = await self._send("GET", collection(kind, namespace), query=query)
        return msgspec.json.decode(body, type=Object).get("items") or []

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        """Create an object and return it. Raises Failure."""
        whole = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        made = await self._send("POST", collection(kind, namespace), body=whole)
        return msgspec.json.decode(made, type=Object)

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object) -> None:
        """Merge fields into an object. Raises Failure."""
        await self._send("PATCH", _address(kind, namespace, name), body=body)

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete whatever has the name. Raises Failure."""
        await self._send("DELETE", _address(kind, namespace, name))

    async def command(
        self, kind: Kind, namespace: str, name: str, action: str, *, into: str
    ) -> None:
        """Create a Command for the object that has the name now. Raises Failure, also without one.

        The controller carries it out; `into` is the namespace of the Command.
        """
        target = (await self.get(kind, namespace, name))["metadata"]
        reference = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": target["name"],
            "uid": target.get("uid", ""),
            "controller": True,
            "blockOwnerDeletion": True,
        }
        command = {
            "metadata": {
                "generateName": f"{target['name']}-{action.lower()}-",
                "namespace": into,
                "ownerReferences": [reference],
            },
            "target": reference,
            "action": action,
        }
        await self.create(COMMAND, into, command)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Object | None = None,
    ) -> bytes:
        """Send a request. Raises Failure with the words that Go's client has for a refusal."""
        request = Request(
            method=method,
            path=path,
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=MERGE_PATCH if method == "PATCH" else "application/json",
        )
        try:
            return await self._transport.exchange(request)
        except Refusal as error:
            unknown = error.status.code == UNAUTHORIZED
            raise Failure("Unauthorized" if unknown else error.status.message) from error
        except PumiceError as error:
            raise Failure(_unanswered(self._transport.host, request, error)) from error


async def connect(values: Mapping[str, Value]) -> Cluster:
    """Return the cluster that a command's flags, or the environment, name. Raises Failure."""
    source = _Named(text(values, "kubeconfig"), text(values, "master"), os.environ)
    try:
        transport = await open_transport(
            source, user_agent="vcctl", request_timeout_s=_TIMEOUT_S, clock=SystemClock()
        )
    except PumiceError as error:
        raise Failure(str(error)) from error
    return Cluster(transport, now_s=time.time())  # noqa: TID251 - ages for a person


class _Named:
    """Credentials as Go's client finds them: a file or none, and the address that a flag gives."""

    def __init__(self, file: str, master: str, environ: Mapping[str, str]) -> None:
        self._file = file
        self._master = master if "://" in master or not master else f"http://{master}"
        self._environ = environ

    async def load(self) -> Loaded:
        """Return address and credential. Raises Failure for a file that cannot be read."""
        source = self._source()
        loaded = Loaded(access=Access(host=_NOWHERE), authorization=None)
        if source is not None:
            try:
                loaded = await source.load()
            except PumiceError as error:
                if isinstance(error.__cause__, yaml.YAMLError):
                    raise Failure(_unreadable(self._files(), error.__cause__)) from error
                if not isinstance(error.__cause__, BadKubeconfigError):
                    raise
        if self._master:
            access = msgspec.structs.replace(loaded.access, host=self._master.rstrip("/"))
            loaded = msgspec.structs.replace(loaded, access=access)
        return loaded

    def _files(self) -> list[str]:
        """Return the kubeconfigs that are there."""
        home = str(Path("~/.kube/config").expanduser())
        named = self._file or self._environ.get("KUBECONFIG") or home
        return [file for file in named.split(os.pathsep) if file and Path(file).exists()]

    def _source(self) -> Source | None:
        files = self._files()
        if self._file and not files:
            raise Failure(f"stat {self._file}: no such file or directory")
        filled = [file for file in files if Path(file).stat().st_size]
        if filled:
            return KubeconfigSource(os.pathsep.join(filled), context=None, clock=SystemClock())
        account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
        inside = InClusterSource.is_offered(self._environ) and account.exists()
        return InClusterSource(environ=self._environ) if inside and not files else None


def _unreadable(files: Sequence[str], error: yaml.YAMLError) -> str:
    """Return what Go's client says of a kubeconfig that is no YAML; the parser's words are ours."""
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f'error loading config file "{files[0]}": yaml: {problem}'


def _address(kind: Kind, namespace: str, name: str) -> str:
    if not name:
        raise Failure("resource name may not be empty")
    return address(kind, namespace, name)


def _unanswered(host: str, request: Request, error: PumiceError) -> str:
    """Return what Go's client says of a request without an answer."""
    reason = _reason(host, error.__cause__) or str(error)
    return f'{_VERBS[request.method]} "{host}{request.path}": {reason}'


def _reason(host: str, cause: BaseException | None) -> str:
    at = urlsplit(host)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if isinstance(cause, socket.gaierror):
        return f"dial tcp: lookup {at.hostname}: no such host"
    if isinstance(cause, ConnectionRefusedError):
        name = "127.0.0.1" if at.hostname == "localhost" else at.hostname
        return f"dial tcp {name}:{at.port}: connect: connection refused"
    return ""
