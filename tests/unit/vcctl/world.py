"""A server that always answers the same: the objects of `world.yaml` at a moment; no writes.

Volcano's programs and ours read the same moments and values from it, also those that no API server
would give out: ages of years, statuses of pods that no kubelet is there for.
"""

import datetime as dt
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

from shared.api import kinds
from shared.kube.errors import read_status, refusal
from shared.kube.wire import Request
from tests.support.manifests import LOADER

SERVED = {
    kind.kind: kind
    for kind in (
        kinds.JOB,
        kinds.QUEUE,
        kinds.PODGROUP,
        kinds.JOBFLOW,
        kinds.JOBTEMPLATE,
        kinds.POD,
        kinds.EVENT,
    )
}
MOMENT = re.compile(r'"@(-?\d+)"')


def objects(now_s: float) -> list[dict]:
    """Return the objects of the world as they are at a moment."""

    def moment(match: re.Match[str]) -> str:
        at = dt.datetime.fromtimestamp(int(now_s) + int(match[1]), dt.UTC)
        return f'"{at:%Y-%m-%dT%H:%M:%SZ}"'

    return json.loads(MOMENT.sub(moment, _template()))


@cache
def _template() -> str:
    """Return the world as JSON whose moments are still to be set; YAML takes long to read."""
    text = (Path(__file__).parent / "world.yaml").read_text("utf-8")
    return json.dumps(yaml.load(text, LOADER))


def answer(items: list[dict], method: str, path: str, query: dict[str, str]) -> tuple[int, dict]:
    """Return code and body of the answer to a request."""
    for kind in SERVED.values():
        own = [{**i, "apiVersion": kind.api_version} for i in items if i["kind"] == kind.kind]
        root, _, rest = kind.path().rpartition("/")
        found = re.fullmatch(rf"{root}(?:/namespaces/([^/]+))?/{rest}(?:/([^/]+))?", path)
        if found is None or method != "GET":
            continue
        here = [i for i in own if found[1] in {None, i["metadata"].get("namespace")}]
        if found[2] is None:
            return 200, _listing(kind, _selected(here, query.get("labelSelector", "")))
        named = [i for i in here if i["metadata"]["name"] == found[2]]
        return (200, named[0]) if named else _missing(kind, found[2])
    return 404, {"kind": "Status", "apiVersion": "v1", "code": 404, "message": "no such path"}


def _listing(kind: kinds.Kind, items: list[dict]) -> dict:
    bare = [{k: v for k, v in item.items() if k not in {"kind", "apiVersion"}} for item in items]
    return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "items": bare}


def _selected(items: list[dict], selector: str) -> list[dict]:
    name, _, values = selector.partition(" in ")
    labels = [item["metadata"].get("labels", {}) for item in items]
    kept = zip(items, labels, strict=True)
    if values:
        return [item for item, own in kept if own.get(name, "") in values.strip("()").split(",")]
    return [item for item, own in kept if not name or name in own]


def _missing(kind: kinds.Kind, name: str) -> tuple[int, dict]:
    place = ".".join(filter(None, (kind.plural, kind.group)))
    return 404, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": f'{place} "{name}" not found',
    }


class WorldTransport:
    """The way to the world without a network, for a `Cluster`."""

    host = "http://127.0.0.1"

    def __init__(self, now_s: float) -> None:
        self._items = objects(now_s)

    async def exchange(self, request: Request) -> bytes:
        code, body = answer(self._items, request.method, request.path, dict(request.query))
        data = json.dumps(body).encode()
        if code >= 400:
            raise refusal(request.doing, read_status(code, data))
        return data

    async def close(self) -> None:
        """Nothing is open."""


@contextmanager
def served(now_s: float) -> Iterator[str]:
    """Serve the world over HTTP; yields its address."""
    items = objects(now_s)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(at.query).items()}
            code, body = answer(items, self.command, at.path, query)
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
