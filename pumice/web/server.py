"""Serves the page on the loopback and passes its questions on, as `kubectl proxy` does.

Requests that `gate` refuses are not served. Each response forbids scripts, styles and
connections of any other origin, so that a name in the cluster that reads like markup stays text.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, Protocol

import aiohttp
import msgspec
import yaml
from aiohttp import web
from typing_extensions import override

from pumice.local.errors import LocalError
from pumice.queries.workloads import OwnerChains
from pumice.web.gate import RequestGate, is_proxied
from shared.kube.errors import UNAUTHORIZED, Refusal
from shared.kube.wire import Request, Stream
from shared.runtime.errors import PumiceError
from shared.serving.bodies import BodyTooLargeError, read_body

MOST_BYTES: Final = 1 << 20


class PastedError(ValueError):
    """The text holds no Job; the message is for its author."""


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a few lines of them can stand for gigabytes."""

    @override
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise PastedError("YAML aliases are not taken here")
        return super().compose_node(parent, index)


def job_in(text: str) -> bytes:
    """Return the first Job of the documents as JSON. Raises PastedError."""
    try:
        documents = [found for found in yaml.load_all(text, _Loader) if isinstance(found, dict)]
        jobs = [found for found in documents if _is_job(found)]
        if jobs:
            return msgspec.json.encode(jobs[0])
    except (yaml.YAMLError, RecursionError) as error:
        raise PastedError(
            f"this is neither YAML nor JSON: {' '.join(str(error).split())}"
        ) from error
    except (TypeError, ValueError) as error:
        raise PastedError(str(error)) from error
    found = documents[0].get("kind", "an object without kind") if documents else "no object"
    raise PastedError(f"a Job of batch.volcano.sh is wanted, and here is {found}")


def _is_job(found: dict[Any, Any]) -> bool:
    return found.get("kind") == "Job" and str(found.get("apiVersion")).startswith("batch.volcano.")


HOST: Final = "127.0.0.1"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_SILENCE_S: Final = 60.0
"""The stream of changes sends something at least every 15 s."""
_CLOSED_S: Final = 2.0

Files = Mapping[str, tuple[bytes, str]]
"""Path → content and type."""


class PageTransport(Protocol):
    """Requests to the API server with the user's credentials."""

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a response. Raises Refusal, or Unreachable."""

    async def open(self, request: Request) -> Stream:
        """Return a streaming response; raises as `exchange` does."""


class KubeconfigFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the page shows of its user's kubeconfig."""

    server: str
    namespace: str


def page_files() -> Files:
    """Return the files of the page."""
    found = {
        f"/{name}": _file(file) for name, file in _below(resources.files("pumice.web") / "page")
    }
    return {**found, "/": found["/index.html"]}


def _below(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found = []
    for each in folder.iterdir():
        name = f"{prefix}{each.name}"
        found += _below(each, f"{name}/") if each.is_dir() else [(name, each)]
    return found


def _file(file: Traversable) -> tuple[bytes, str]:
    return file.read_bytes(), _TYPES.get(file.name.rpartition(".")[2], "application/octet-stream")


class PageServer:
    """Serves one browser."""

    def __init__(
        self, transport: PageTransport, *, gate: RequestGate, context: KubeconfigFacts
    ) -> None:
        self._transport = transport
        self._owners = OwnerChains(transport)
        self._gate = gate
        self._context = context
        self._files = page_files()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Listen at a port of the loopback. Raises LocalError when it is taken."""
        server = web.Server(self._respond, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=_CLOSED_S)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, HOST, port).start()
            except OSError as error:
                raise LocalError(
                    f"port {port} cannot be used: choose another with --port"
                ) from error
            yield
        finally:
            await runner.cleanup()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = self._gate.refuses(request.method, request.headers)
        if refused is not None:
            return _plain(refused.status, refused.words)
        if request.method not in ("GET", "POST"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET and POST are answered")
        if request.method == "GET" and request.path == "/" and "key" in request.query:
            return self._welcome(request.query["key"])
        if not self._gate.knows(request.headers):
            words = "Open the address that `pumice web` has printed: it holds the key to this page."
            return _status(HTTPStatus.UNAUTHORIZED, words)
        if is_proxied(request.method, request.raw_path.partition("?")[0]):
            return await self._pass_on(request)
        return await self._own(request)

    def _welcome(self, key: str) -> web.Response:
        """Exchange the key for a cookie, so that it does not stay in the address."""
        if not self._gate.is_key(key):
            return _status(
                HTTPStatus.UNAUTHORIZED, "This is not the key of the `pumice web` that runs."
            )
        response = _plain(HTTPStatus.SEE_OTHER, "")
        response.headers["Location"] = "/"
        # Not strict: a link to the page from another site is to find the page open.
        response.set_cookie(self._gate.cookie, key, httponly=True, samesite="Lax", path="/")
        return response

    async def _own(self, request: web.BaseRequest) -> web.Response:
        if request.method == "POST":
            return await self._pasted(request) if request.path == "/web/yaml" else _missing()
        if request.path == "/web/context":
            return _response(msgspec.json.encode(self._context), _JSON)
        found = self._files.get(request.path)
        return _response(*found) if found else _missing()

    async def _pasted(self, request: web.BaseRequest) -> web.Response:
        try:
            body = await read_body(request, most=MOST_BYTES)
            return _response(job_in(body.decode()), _JSON)
        except BodyTooLargeError:
            return _too_large()
        except PastedError as error:
            return _status(HTTPStatus.BAD_REQUEST, str(error))
        except UnicodeDecodeError:
            return _status(HTTPStatus.BAD_REQUEST, "the text is not UTF-8")

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            is_post = request.method == "POST"
            body = await read_body(request, most=MOST_BYTES) if is_post else None
        except BodyTooLargeError:
            return _too_large()
        forwarded = Request(
            method=request.method,
            path=request.raw_path.partition("?")[0],
            query=tuple(request.query.items()),
            body=body,
        )
        try:
            if forwarded.path.endswith("/changes"):
                return await self._stream(request, forwarded)
            answer = await self._transport.exchange(forwarded)
            return _response(await self._owners.shown(answer), _JSON)
        except Refusal as error:
            return _refused(error)
        except PumiceError as error:
            return _status(HTTPStatus.BAD_GATEWAY, str(error))

    async def _stream(self, request: web.BaseRequest, forwarded: Request) -> web.StreamResponse:
        stream = await self._transport.open(forwarded)
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": _EVENTS})
        try:
            with contextlib.suppress(PumiceError, ConnectionError, aiohttp.ClientConnectionError):
                await response.prepare(request)
                while chunk := await stream.read(silence_s=_SILENCE_S):
                    await response.write(chunk)
        finally:
            stream.close()
        return response


def _refused(error: Refusal) -> web.Response:
    status = error.status
    if status.code == UNAUTHORIZED:  # the page would take it for its own key
        return _status(
            HTTPStatus.BAD_GATEWAY, "The API server does not know this kubeconfig's user."
        )
    return _status(status.code, status.message or str(error), reason=status.reason)


def _status(code: int, message: str, *, reason: str = "") -> web.Response:
    """Return a refusal as the API server writes it."""
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    body = msgspec.json.encode({**head, "message": message, "reason": reason, "code": code})
    return web.Response(status=code, body=body, content_type=_JSON, headers=_HEADERS)


def _missing() -> web.Response:
    return _status(HTTPStatus.NOT_FOUND, "The page does not ask this.")


def _too_large() -> web.Response:
    response = _status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BYTES} bytes")
    response.force_close()
    return response


def _response(body: bytes, content_type: str) -> web.Response:
    charset = "utf-8" if content_type.startswith("text/") else None
    return web.Response(body=body, content_type=content_type, charset=charset, headers=_HEADERS)


def _plain(code: int, text: str) -> web.Response:
    return web.Response(status=code, text=text, headers=_HEADERS)
