"""What rules have to know of the cluster, asked of the API server itself.

Not of the bus: admission has to answer when NATS is away, too. One list of queues serves all
requests of a second; a refusal is never based on it, but on a fresh one (`fresh=True`), so that a
queue made a moment ago is known; nor is anything about a queue itself.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from shared.api import kinds
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone, Retryable

_YOUNG_S: Final = 1.0


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
        """Return the annotations of a namespace, none when it is not there. Raises Retryable."""
        try:
            raw = await self._kube.get(kinds.NAMESPACE, "", namespace)
        except Gone:
            return {}
        return msgspec.json.decode(raw, type=_Named).metadata.annotations
