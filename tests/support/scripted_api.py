"""A small HTTP server that answers what a test wrote down: for what a real API server rarely does.

It shows protocol edges (a cut line, a reset, silence, 410 in the middle), never the behaviour of
Kubernetes itself: that is tested on the real kube-apiserver.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from shared.kube.client import Kube
from shared.kube.config import connect

ENDS = web.RequestKey("ends", asyncio.Event)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen(msgspec.Struct, frozen=True):
    """One request as the server got it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    peer: object = None
    client: str = ""
    """Common name of the client certificate."""


class ScriptedApi:
    """Answers requests in order from `script`; beyond its end each gets 503."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.seen: list[Seen] = []
        self.url = ""
        self.cluster: dict[str, Any] = {}
        self._ends = asyncio.Event()

    def then(self, *answers: Answer) -> None:
        """Add answers to the script."""
        self.script.extend(answers)

    def kubeconfig(self, **user: Any) -> str:
        """Return a kubeconfig for this server as YAML, with `user` as its user section."""
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": self.url, **self.cluster}}],
                "users": [{"name": "u", "user": user}],
            }
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record a request and play the next answer."""
        self.seen.append(
            Seen(
                method=request.method,
                path=request.rel_url.raw_path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=await request.read(),
                peer=request.get_extra_info("peername"),
                client=_common_name(request),
            )
        )
        answer = self.script.pop(0) if self.script else status(503, "the script is over")
        request[ENDS] = self._ends
        return await answer(request)

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["ScriptedApi"]:
        """Serve on a free port of the loopback."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            self._ends.set()
            await runner.cleanup()


def _common_name(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    names = dict(pair for rdn in certificate.get("subject", ()) for pair in rdn)
    return str(names.get("commonName", ""))


def json(body: Any, code: int = 200, **headers: str) -> Answer:
    """Answer with a JSON body."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(
            body=msgspec.json.encode(body),
            status=code,
            headers={k.replace("_", "-"): v for k, v in headers.items()},
            content_type="application/json",
        )

    return answer


def status(code: int, message: str = "", reason: str = "", **extra: Any) -> Answer:
    """Answer with a Status object."""
    headers = extra.pop("headers", {})
    return json(
        {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "message": message,
            "reason": reason,
            **extra,
        },
        code,
        **headers,
    )


def chunks(*parts: bytes, ending: str = "end") -> Answer:
    """Answer with a stream of `parts`, each sent by itself, then end | reset | hang."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.005)  # so that the parts do not travel in one segment
        if ending == "hang":
            await request[ENDS].wait()
        if ending == "reset" and request.transport:
            request.transport.abort()
        return response

    return answer


def hang() -> Answer:
    """Never answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await request[ENDS].wait()
        return web.Response()

    return answer


def obj(name: str, version: int, **more: Any) -> dict[str, Any]:
    """Return an object in the API server's form."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, **more}


def line(type_: str, body: Any) -> bytes:
    """Return one line of a watch."""
    return msgspec.json.encode({"type": type_, "object": body}) + b"\n"


def bookmark(version: int, *, initial_end: bool = False) -> bytes:
    """Return a bookmark as the API server writes it, nulls included."""
    annotations = {"k8s.io/initial-events-end": "true"} if initial_end else {}
    metadata = {
        "resourceVersion": str(version),
        "creationTimestamp": None,
        "annotations": annotations,
    }
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
    return line("BOOKMARK", {**body, "spec": {"containers": None}, "status": {}})


def page(items: list[Any], version: int, token: str = "") -> Answer:
    """Answer with one page of a list."""
    metadata = {"resourceVersion": str(version), "continue": token}
    return json({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})


@asynccontextmanager
async def client_of(
    api: ScriptedApi, directory: Path, *, request_timeout_s: float = 10.0
) -> AsyncIterator[Kube]:
    """Open a client of the server, by a kubeconfig in `directory`."""
    file = directory / "kubeconfig"
    file.write_text(api.kubeconfig(token="t0"))
    agent = "pumice-test/1"
    async with await connect(
        str(file), user_agent=agent, request_timeout_s=request_timeout_s
    ) as kube:
        yield kube
