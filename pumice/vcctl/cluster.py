"""Connection to the cluster: the selected API server, requests, errors worded as client-go's.

Called by the commands. Reads and writes carry the API server's JSON as it is: what a type of ours
does not know is still shown and sent.
"""

import os
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from pumice.vcctl.flags import CommandFailure, Value, text
from shared.api.kinds import COMMAND, Kind
from shared.kube.client import Kube, address, collection
from shared.kube.credentials import Access, Source
from shared.kube.errors import UNAUTHORIZED, Refusal
from shared.kube.sources import BadKubeconfigError, InClusterSource, KubeconfigSource
from shared.kube.transport import open_transport
from shared.kube.wire import MERGE_PATCH, Request, Transport
from shared.runtime.clock import SystemClock
from shared.runtime.errors import PumiceError

Object = dict[str, Any]

_TIMEOUT_S: Final = 60.0
_NOWHERE: Final = "http://localhost:8080"
"""Go's client goes there when no file says more."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_JSON_KINDS: Final[Mapping[type, str]] = {
    list: "array",
    str: "string",
    bool: "bool",
    object: "number",
}
_ALIAS: Final = re.compile(r"\*?([\w-]*)")
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\"";'
    ' Kind string "json:\\"kind,omitempty\\"" }'
)
_VERBS: Final = {"GET": "Get", "POST": "Post", "PATCH": "Patch", "DELETE": "Delete", "PUT": "Put"}


class ClusterClient:
    """Sends the requests of the commands. `now_s` (Unix seconds) is the time for ages."""

    def __init__(self, transport: Transport, *, now_s: float) -> None:
        self._transport = transport
        self._kube = Kube(transport=transport)
        self.now_s = now_s

    async def close(self) -> None:
        """Close the connection."""
        await self._kube.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return an object. Raises CommandFailure."""
        path = _address(kind, namespace, name)
        return msgspec.json.decode(await self._send("GET", path), type=Object)

    async def items(
        self, kind: Kind, namespace: str = "", query: Sequence[tuple[str, str]] = ()
    ) -> list[Object]:
        """Return the objects of a kind, of all namespaces without one. Raises CommandFailure."""
        body = await self._send("GET", collection(kind, namespace), query=query)
        return msgspec.json.decode(body, type=Object).get("items") or []

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        """Create an object and return it. Raises CommandFailure."""
        whole = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        made = await self._send("POST", collection(kind, namespace), body=whole)
        return msgspec.json.decode(made, type=Object)

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object) -> None:
        """Merge fields into an object. Raises CommandFailure."""
        await self._send("PATCH", _address(kind, namespace, name), body=body)

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete the object with the name. Raises CommandFailure."""
        await self._send("DELETE", _address(kind, namespace, name))

    async def command(
        self, kind: Kind, namespace: str, name: str, action: str, *, into: str
    ) -> None:
        """Create a Command for the present object of a name. Raises CommandFailure.

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
        """Send a request. Raises CommandFailure with the error text of Go's client."""
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
            raise CommandFailure("Unauthorized" if unknown else error.status.message) from error
        except PumiceError as error:
            raise CommandFailure(_unanswered(self._transport.host, request, error)) from error


async def connect(values: Mapping[str, Value]) -> ClusterClient:
    """Return the cluster that flags or the environment name. Raises CommandFailure."""
    source = _Named(text(values, "kubeconfig"), text(values, "master"), os.environ)
    try:
        transport = await open_transport(
            source, user_agent="vcctl", request_timeout_s=_TIMEOUT_S, clock=SystemClock()
        )
    except PumiceError as error:
        raise CommandFailure(str(error)) from error
    return ClusterClient(transport, now_s=time.time())  # noqa: TID251 - ages for a person


class _Named:
    """Credentials as Go's client finds them: a file or none, and the address that a flag gives."""

    def __init__(self, file: str, master: str, environ: Mapping[str, str]) -> None:
        self._file = file
        self._master = master if "://" in master or not master else f"http://{master}"
        self._environ = environ

    async def load(self) -> Access:
        """Return address and credential. Raises CommandFailure for a file that cannot be read."""
        files = self._files()
        source = self._source(files)
        access = Access(host=_NOWHERE)
        if source is not None:
            try:
                access = await source.load()
            except PumiceError as error:
                documents = [_document(file) for file in files]
                if not isinstance(error, BadKubeconfigError):
                    raise
                access = Access(host=_host_without_user(documents) or _NOWHERE)
        if self._master:
            access = msgspec.structs.replace(access, host=self._master.rstrip("/"))
        return access

    def _files(self) -> list[str]:
        """Return the kubeconfigs that are there."""
        home = str(Path("~/.kube/config").expanduser())
        named = self._file or self._environ.get("KUBECONFIG") or home
        return [file for file in named.split(os.pathsep) if file and Path(file).exists()]

    def _source(self, files: Sequence[str]) -> Source | None:
        if self._file and not files:
            raise CommandFailure(f"stat {self._file}: no such file or directory")
        filled = [file for file in files if Path(file).stat().st_size]
        if filled:
            return KubeconfigSource(os.pathsep.join(filled), context=None, clock=SystemClock())
        account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
        inside = InClusterSource.is_offered(self._environ) and account.exists()
        return InClusterSource(environ=self._environ) if inside and not files else None


def _document(file: str) -> Object:
    """Return a kubeconfig. Raises CommandFailure with the error text of Go's client.

    Both parsers come from libyaml and name the same problems; go-yaml counts lines from 0, and
    leaves out the first.
    """
    about, content = f'error loading config file "{file}": ', Path(file).read_bytes()
    try:
        found = yaml.load(content, _LOADER)  # noqa: S506 - a safe loader
    except yaml.constructor.ConstructorError:
        return {}  # Go ignores a tag that it does not know
    except yaml.YAMLError as error:
        raise CommandFailure(f"{about}yaml: {_problem(error, content)}") from error
    if found is not None and not isinstance(found, dict):
        kind = next(words for of, words in _JSON_KINDS.items() if isinstance(found, of))
        raise CommandFailure(
            f"{about}couldn't get version/kind; json parse error: "
            f"json: cannot unmarshal {kind} into Go value of type {_TYPE_META}"
        )
    return found or {}


def _problem(error: yaml.YAMLError, content: bytes) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return "control characters are not allowed"
    if isinstance(error, yaml.composer.ComposerError) and error.problem_mark is not None:
        alias = _ALIAS.match(content.decode("utf-8", "replace"), error.problem_mark.index)
        return f"unknown anchor '{alias[1] if alias else ''}' referenced"
    marks = (error.problem_mark, error.context_mark)
    line = next((mark.line for mark in marks if mark is not None and mark.line), 0)
    line += bool(line) and isinstance(error, yaml.scanner.ScannerError)
    return f"line {line}: {error.problem}" if line else f"{error.problem}"


def _host_without_user(documents: Sequence[Object]) -> str:
    """Return the server of the current context, whose user is missing; "" without a context.

    Raises CommandFailure when the current context is missing.
    """
    current = next(filter(None, (each.get("current-context") for each in documents)), "")
    if not current:
        return ""
    context = _entry(documents, "context", current)
    if context is None:
        raise CommandFailure(
            f"invalid configuration: context was not found for specified context: {current}"
        )
    return str((_entry(documents, "cluster", context.get("cluster")) or {}).get("server", ""))


def _entry(documents: Sequence[Object], kind: str, name: object) -> Object | None:
    """Return a cluster or context; the first one of a name counts."""
    for document in documents:
        entries = document.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return entry.get(kind) or {}
    return None


def _address(kind: Kind, namespace: str, name: str) -> str:
    if not name:
        raise CommandFailure("resource name may not be empty")
    return address(kind, namespace, name)


def _unanswered(host: str, request: Request, error: PumiceError) -> str:
    """Return client-go's message for a request without a response."""
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
