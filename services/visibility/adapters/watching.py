"""Watches: a query runs each second, and the changes of its result are sent.

Watches of one collection share these queries. A watch continues from a list that was given a
moment ago; an older version is refused with 410, and the client lists again. Watches are bounded
in number and time, and users share them.
"""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import ClientConnectionError, web

from services.visibility.adapters.shares import Displaced, FairShares
from services.visibility.adapters.sources import Objects, Sources
from services.visibility.api import tables
from services.visibility.api.requests import ServedTarget
from services.visibility.api.statuses import EXPIRED, ApiFailure
from services.visibility.api.users import User
from services.visibility.metrics import VisibilityMetrics
from shared.api.base import Json, View
from shared.model.numbers import parse_bool
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable

_EVERY_S: Final = 1.0
_BOOKMARK_S: Final = 30.0
_LONGEST_S: Final = 600.0
"""Longest watch in seconds: a new one is authorized again."""
_WRITE_S: Final = 30.0
_MAX: Final = 100
_KEPT: Final = 32
"""Lists that a watch may continue from."""
_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}

Snapshot = Mapping[str, View]
"""Objects by `namespace/name`."""


class _Feed:
    """The latest result of one collection, while it has at least one watch."""

    def __init__(self) -> None:
        self.readers = 0
        self.asked_s = float("-inf")
        self.version = ""
        self.objects: Snapshot = {}
        self.turn = asyncio.Lock()


class Watching:
    """Streams changes of lists."""

    def __init__(self, sources: Sources, *, clock: Clock, metrics: VisibilityMetrics) -> None:
        self._sources = sources
        self._clock = clock
        self._metrics = metrics
        self._kept: OrderedDict[tuple[str, ...], Snapshot] = OrderedDict()
        self._feeds: dict[tuple[str, ...], _Feed] = {}
        self._slots = FairShares(_MAX, "watches")

    def remember(self, target: ServedTarget, objects: Objects) -> str:
        """Return the version of a list; a watch may start from it for a while."""
        version = _version(objects)
        if "watch" in target.resource.verbs:
            slot = (*_collection(target), version)
            self._kept.pop(slot, None)
            self._kept[slot] = {_key(obj): obj for obj in objects}
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return version

    async def stream(
        self, request: web.Request, user: User, target: ServedTarget, *, is_table: bool
    ) -> web.StreamResponse:
        """Send changes until the client goes or the time is over. Raises ApiFailure, Retryable."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            async with self._slots.slot(user), self._feed(target) as feed:
                await self._fresh(feed, target)
                begun = self._begin(target)
                lines = _Lines(target, is_table=is_table)
                with contextlib.suppress(ConnectionError, ClientConnectionError, TimeoutError):
                    await response.prepare(request)
                    async with asyncio.timeout(_time_limit_s(target)):
                        await self._send(response, feed, target, lines, begun)
        except Displaced:
            if not response.prepared:
                raise
        return response

    def _begin(self, target: ServedTarget) -> Snapshot | None:
        """Return what the client knows; None if it needs everything."""
        version = target.query.get("resourceVersion", "")
        if version in ("", "0") or _is_set(target, "sendInitialEvents"):
            return None
        known = self._kept.get((*_collection(target), version))
        if known is None:
            raise ApiFailure(EXPIRED, f"too old resource version: {version}")
        return known

    @asynccontextmanager
    async def _feed(self, target: ServedTarget) -> AsyncIterator[_Feed]:
        slot = _collection(target)
        feed = self._feeds.setdefault(slot, _Feed())
        feed.readers += 1
        self._metrics.watches.inc()
        try:
            yield feed
        finally:
            feed.readers -= 1
            self._metrics.watches.dec()
            if not feed.readers:
                del self._feeds[slot]

    async def _fresh(self, feed: _Feed, target: ServedTarget) -> None:
        """Run the query again unless another watch has done so within the second."""
        async with feed.turn:
            if self._clock.monotonic() - feed.asked_s < _EVERY_S / 2:
                return
            objects = await self._sources.listing(target)
            feed.asked_s = self._clock.monotonic()
            feed.version = self.remember(target, objects)
            feed.objects = self._kept[*_collection(target), feed.version]

    async def _send(
        self,
        response: web.StreamResponse,
        feed: _Feed,
        target: ServedTarget,
        lines: "_Lines",
        known: Snapshot | None,
    ) -> None:
        sent_s = self._clock.monotonic()
        is_initial = known is None and _is_set(target, "sendInitialEvents")
        known = known or {}
        while True:
            changes = lines.changes(known, feed.objects, feed.version, now=self._clock.now())
            if is_initial:
                changes.append(lines.bookmark(feed.version, _INITIAL_END))
                is_initial = False
            elif not changes and self._clock.monotonic() - sent_s > _BOOKMARK_S:
                changes.append(lines.bookmark(feed.version))
            if changes:
                async with asyncio.timeout(_WRITE_S):
                    await response.write(b"".join(changes))
                sent_s = self._clock.monotonic()
            known = feed.objects
            await self._clock.sleep(_EVERY_S)
            with contextlib.suppress(Retryable):  # what was known last stays known
                await self._fresh(feed, target)


class _Lines:
    """Makes the lines of one watch."""

    def __init__(self, target: ServedTarget, *, is_table: bool) -> None:
        self._resource = target.resource
        self._include = target.query.get("includeObject") or "Metadata"
        self._bookmarks = _is_set(target, "allowWatchBookmarks")
        self._is_table = is_table
        self._is_headed = False

    def changes(
        self, before: Snapshot, after: Snapshot, version: str, *, now: float
    ) -> list[bytes]:
        """Return a line for each object that was added, changed or deleted."""
        return [
            self._line(kind, self._object(obj, version, now))
            for kind, obj in _differences(before, after)
        ]

    def bookmark(self, version: str, annotations: Mapping[str, str] | None = None) -> bytes:
        """Return a line that names the version only; empty if the client requests none."""
        if not self._bookmarks:
            return b""
        metadata: Json = {"resourceVersion": version, "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        head = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return self._line("BOOKMARK", {**head, "metadata": metadata})

    def _object(self, obj: View, version: str, now: float) -> Json:
        shown = versioned(obj, version)
        if not self._is_table:
            return tables.whole(self._resource, shown)
        headed, self._is_headed = not self._is_headed, True
        return tables.table(
            self._resource,
            [shown],
            now=now,
            version=version,
            include=self._include,
            headed=headed,
        )

    def _line(self, kind: str, obj: Json) -> bytes:
        return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def _differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, View]]:
    for key, obj in before.items():
        if key not in after:
            yield "DELETED", obj
    for key, obj in after.items():
        if key not in before:
            yield "ADDED", obj
        elif before[key] != obj:
            yield "MODIFIED", obj


def versioned(obj: View, version: str) -> View:
    """Return an object with the resourceVersion of its list."""
    metadata = msgspec.structs.replace(
        obj.metadata,  # type: ignore[attr-defined]
        resource_version=version,
    )
    return msgspec.structs.replace(obj, metadata=metadata)


def _key(obj: View) -> str:
    key: str = obj.metadata.key  # type: ignore[attr-defined]
    return key


def _collection(target: ServedTarget) -> tuple[str, ...]:
    selector = target.query.get("fieldSelector", "")
    return (target.resource.plural, target.namespace, target.name, selector)


def _is_set(target: ServedTarget, option: str) -> bool:
    return parse_bool(target.query.get(option)) is True


def _version(objects: Objects) -> str:
    """Return a number that is another one when a list is another one."""
    digest = hashlib.blake2b(msgspec.json.encode(objects), digest_size=8).digest()
    return str((int.from_bytes(digest) >> 1) or 1)


def _time_limit_s(target: ServedTarget) -> float:
    given = target.query.get("timeoutSeconds", "")
    return min(float(given), _LONGEST_S) if given.isdecimal() and int(given) else _LONGEST_S
