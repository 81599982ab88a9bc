"""Plays a dialogue with an API server and writes down its answers, free of what chance decides.

A dialogue is a list of `Ask`s in a namespace of its own. In paths and bodies `{ns}` stands for that
namespace and `{uid.NAME}`, `{rv.NAME}` for what the last answer about an object of that name said.
In the written answers uids, versions, times and generated suffixes are replaced by marks.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

from tests.support.wait import within

DEADLINE_S = 60.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUFFIX = re.compile(r"(kube-api-access-|gen-)[a-z0-9]{5}")
_CHANCE = {"resourceVersion", "continue", "managedFields", "hostIP", "podIP", "podIPs"}
_CHANCE |= {"clusterIP", "clusterIPs", "nodeInfo", "addresses"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Ask(NamedTuple):
    """One request, and what of its answer is written down."""

    method: str
    path: str
    body: Any = None
    type: str = "application/json"
    query: Mapping[str, str] = MappingProxyType({})
    keep: str = "all"
    """all; `head`: status, reason, code and details only; `code`: the HTTP status alone; `names`:
    the names in a list; or a dotted path of the body."""
    events: int = 0
    """More than 0: read so many events of a watch."""
    until: str = ""
    """Ask again until this dotted path=value holds (`gone`: until 404)."""
    accept: str = "application/json"


class Dialogue:
    """One namespace on one server."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self._session = session
        self._ns = namespace
        self._seen: dict[str, str] = {}

    async def play(self, asks: Sequence[Ask]) -> list[Any]:
        """Return what was answered to each request."""
        async with within(DEADLINE_S):
            return [self._plain(await self._ask(ask), ask) for ask in asks]

    def _fill(self, text: str) -> str:
        for name, value in {**self._seen, "{ns}": self._ns}.items():
            text = text.replace(name, value)
        return text

    async def _ask(self, ask: Ask) -> dict[str, Any]:
        while True:
            answer = await self._once(ask)
            if not ask.until or _holds(answer, ask.until):
                return answer
            await asyncio.sleep(0.05)

    async def _once(self, ask: Ask) -> dict[str, Any]:
        body = None
        if ask.body is not None:
            told = ask.body if isinstance(ask.body, str) else json.dumps(ask.body)
            body = self._fill(told).encode()
        query = {key: self._fill(value) for key, value in ask.query.items()}
        url = self._fill(ask.path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": ask.type, "Accept": ask.accept}
        async with self._session.request(ask.method, url, data=body, headers=headers) as answer:
            if ask.events and answer.status == 200:
                return {"status": 200, "body": await _events(answer, ask.events)}
            text = await answer.text()
        told = json.loads(text) if text.startswith("{") else text
        self._remember(told)
        return {"status": answer.status, "body": told}

    def _remember(self, told: Any) -> None:
        if not isinstance(told, dict) or not isinstance(told.get("metadata"), dict):
            return
        meta = told["metadata"]
        name = meta.get("name", "list")
        for mark, key in (("uid", "uid"), ("rv", "resourceVersion"), ("go", "continue")):
            if meta.get(key):
                self._seen[f"{{{mark}.{name}}}"] = meta[key]

    def _plain(self, answer: dict[str, Any], ask: Ask) -> Any:
        body = answer["body"]
        if ask.keep == "code":
            return answer["status"]
        if ask.keep == "names":
            return [item["metadata"]["name"] for item in body["items"]]
        if ask.keep == "head":
            kept = {k: body.get(k) for k in ("status", "reason", "code")}
            details = body.get("details") or {}
            causes = details.get("causes")
            if causes:
                told = [{k: c.get(k) for k in ("reason", "field")} for c in causes]
                details = {**details, "causes": sorted(told, key=str)}
            body = {**kept, "details": details}
        elif ask.keep != "all":
            body = {ask.keep: _dig(body, ask.keep)}
        return {"status": answer["status"], "body": self._without_chance(body)}

    def _without_chance(self, value: Any) -> Any:
        if isinstance(value, dict):
            cleaned = {k: self._without_chance(v) for k, v in value.items() if k not in _CHANCE}
            return {k: v for k, v in sorted(cleaned.items()) if not _is_nothing(k, v)}
        if isinstance(value, list):
            return [self._without_chance(item) for item in value]
        if isinstance(value, str):
            text = value.replace(self._ns, "NS")
            text = _SUFFIX.sub(r"\1SUFFIX", _UID.sub("UID", _TIME.sub("TIME", text)))
            return re.sub(r"resource version: \d+ \(\d+\)", "resource version: N (N)", text)
        return value


def _is_nothing(key: str, value: Any) -> bool:
    """Tell what Go writes for absent members in some places and leaves out in others."""
    return value is None or (key == "strategy" and value == {})


async def _events(answer: aiohttp.ClientResponse, count: int) -> list[Any]:
    lines: list[bytes] = []
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        lines += whole
        if len(lines) >= count:
            break
    answer.close()
    told = []
    for line in lines[:count]:
        event = json.loads(line)
        obj = event["object"]
        if event["type"] == "BOOKMARK":
            marks = obj["metadata"].get("annotations")
            told.append({"type": "BOOKMARK", "kind": obj["kind"], "annotations": marks})
        elif event["type"] == "ERROR":
            told.append({"type": "ERROR", **{k: obj.get(k) for k in ("code", "reason")}})
        else:
            told.append({"type": event["type"], "name": obj["metadata"]["name"]})
    return told


def _dig(body: Any, path: str) -> Any:
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body


def _holds(answer: dict[str, Any], wanted: str) -> bool:
    if wanted == "gone":
        return bool(answer["status"] == 404)
    path, _, value = wanted.partition("=")
    return str(_dig(answer["body"], path)) == value
