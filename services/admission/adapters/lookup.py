"""What rules have to know of the cluster, asked of the API server itself.

Not of the bus: admission has to answer when NATS is away, too. One list of queues serves all
requests of a second; a refusal is never based on it, but on a fresh one (`fresh=True`), so that a
queue made a moment ago is known; nor is anything about a queue itself. Annotations of a namespace
are at most a second old likewise: a thousand groups made at once ask for them once. The fields of
pods and claims are those of the API server's OpenAPI of the core group, which any account may read;
an API server without it has no fields checked.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from services.admission.rules.fields import CLAIM, TEMPLATE, Schema, Schemas
from shared.api import kinds
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone, PumiceError, Retryable
from shared.runtime.logs import Logger

_YOUNG_S: Final = 1.0
_NAMESPACES_MOST: Final = 1000


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class Lookup:
    """Reads queues and namespaces."""

    def __init__(self, kube: Kube, *, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._queues: Mapping[str, Queue] = {}
        self._listed_at = float("-inf")
        self._failed_at = float("-inf")
        """When the last list was begun that failed."""
        self._failure = ""
        self._listing = asyncio.Lock()
        self._annotations: dict[str, tuple[float, Mapping[str, str]]] = {}
        """By namespace, in the order in which they were read: when, and what was found."""

    async def queues(self, *, fresh: bool = False) -> Mapping[str, Queue]:
        """Return all queues by name, at most a second old; those of now when `fresh`.

        Raises Retryable when the API server does not answer. All who wait for one list share its
        failure, too: asking by turns, the last of many would wait for as many time limits.
        """
        asked_at = self._clock.monotonic()
        async with self._listing:
            old = asked_at if fresh else asked_at - _YOUNG_S
            if self._listed_at < old:
                if self._failed_at >= asked_at:
                    raise Retryable(self._failure)
                await self._list()
            return self._queues

    async def _list(self) -> None:
        begun_at = self._clock.monotonic()
        try:
            listing = await self._kube.list(kinds.QUEUE)
        except Retryable as error:
            self._failed_at, self._failure = begun_at, str(error)
            raise
        self._queues = {queue.metadata.name: queue for queue in listing.items}
        self._listed_at = begun_at

    async def annotations(self, namespace: str) -> Mapping[str, str]:
        """Return the annotations of a namespace, at most a second old; none when it is not there.

        Raises Retryable when the API server does not answer.
        """
        asked_at = self._clock.monotonic()
        read_at, found = self._annotations.get(namespace, (float("-inf"), {}))
        if read_at >= asked_at - _YOUNG_S:
            return found
        try:
            raw = await self._kube.get(kinds.NAMESPACE, "", namespace)
        except Gone:
            return {}
        found = msgspec.json.decode(raw, type=_Named).metadata.annotations
        self._annotations.pop(namespace, None)
        self._annotations[namespace] = (asked_at, found)
        if len(self._annotations) > _NAMESPACES_MOST:
            del self._annotations[next(iter(self._annotations))]
        return found


_PATH: Final = "/openapi/v3/api/v1"
_AGAIN_S: Final = 600.0
"""An API server is upgraded now and then."""
_RETRY_S: Final = 30.0


class _Components(msgspec.Struct, frozen=True, kw_only=True):
    schemas: dict[str, Schema] = msgspec.field(default_factory=dict)


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    components: _Components = _Components()


class OpenApi:
    """A part of the service: `schemas` are those of the last good answer."""

    name: Final = "openapi"

    def __init__(self, kube: Kube, *, clock: Clock, log: Logger) -> None:
        self._kube = kube
        self._clock = clock
        self._log = log
        self._complaint = ""
        self.schemas: Schemas = {}

    async def run(self) -> None:
        """Read it now and again, until cancelled."""
        while True:
            await self._clock.sleep(_AGAIN_S if await self._read() else _RETRY_S)

    async def _read(self) -> bool:
        try:
            answer = await self._kube.request("GET", _PATH)
            found = msgspec.json.decode(answer, type=_Document).components.schemas
        except (PumiceError, msgspec.DecodeError) as error:
            self._complain(str(error))
            return False
        if not {TEMPLATE, CLAIM} <= found.keys():
            self._complain(f"{_PATH} has no {TEMPLATE}")
            return False
        self.schemas, self._complaint = found, ""
        return True

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            self._log.info("openapi_not_read", reason=why)
