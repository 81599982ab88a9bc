"""One watcher per kind: what list/watch tells goes into the queue, its troubles into a gate."""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from services.cache.fold.objects import Held, held
from services.cache.fold.publish_queue import PublishQueue
from services.cache.kinds import Row
from services.cache.metrics import CacheMetrics
from shared.api.meta import ObjectMeta
from shared.kube.client import Kube
from shared.kube.listwatch import (
    Bookmark,
    Changed,
    ChangeOp,
    Item,
    Listed,
    ListWatch,
    Malformed,
    Unavailable,
)
from shared.runtime.contain import Containment
from shared.runtime.health import Gate
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

_STAGE: Final = "read"
_CHUNK: Final = 500
"""Objects that are taken in before others may run: some milliseconds."""


_SURELY_ABSENT: Final = 2
"""Answers of 404 in a row after which objects that were there count as gone: seconds apart, so
that one confused answer of a starting or broken server does not take all jobs away."""


class Watcher:
    """Watches the objects of one row, for ever (a part of the service)."""

    def __init__(
        self,
        row: Row,
        *,
        kube: Kube,
        queue: PublishQueue,
        changed: Callable[[], None],
        gate: Gate,
        contain: Containment,
        metrics: CacheMetrics,
        rng: random.Random,
        log: Logger,
    ) -> None:
        self.kind: Final = row.kind.token
        self.name: Final = f"watch-{self.kind}"
        self._row = row
        self._kube = kube
        self._queue = queue
        self._changed = changed
        self._gate = gate
        self._contain = contain
        self._metrics = metrics
        self._rng = rng
        self._log = log.bind(kind=self.kind)
        self._again = asyncio.Event()
        self._trouble = ""
        self._absences = 0

    def relist(self) -> None:
        """List anew: what is held may lag behind the world (a new leader's first act)."""
        self._again.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._gate.set(ok=False, reason=f"{self.kind} are not listed yet")
        while True:
            self._again.clear()
            async with TaskGroup() as group:
                following = group.create_task(self._follow(), name=f"{self.name}-follow")
                await self._again.wait()
                following.cancel()

    async def _follow(self) -> None:
        watch = ListWatch(
            self._kube,
            self._row.kind,
            field_selector=self._row.field_selector,
            label_selector=self._row.label_selector,
            rng=self._rng,
        )
        async with aclosing(watch.items()) as items:
            async for item in items:
                if self._again.is_set():
                    return  # from a list that began before a new one was asked for
                await self._take(item)

    async def _take(self, item: Item) -> None:
        match item:
            case Unavailable():
                self._unavailable(item)
                return
            case Listed():
                await self._listed(item)
            case Changed(op=op, object=view):
                self._changed_to(op, view)
            case Malformed():
                self._malformed(item)
            case Bookmark(resource_version=version):
                self._queue.bookmark(self.kind, version)
        self._well()
        self._changed()

    async def _listed(self, item: Listed) -> None:
        shown: dict[str, Held] = {}
        unreadable = {odd.metadata.key for odd in item.malformed}
        for index, view in enumerate(item.items):
            with self._contain.isolate(self.kind, view.metadata.key, stage=_STAGE) as isolated:
                if self._row.keep(view):
                    key, what = held(view)
                    shown[key] = what
            if isolated.error is not None:
                unreadable.add(view.metadata.key)
            if index % _CHUNK == _CHUNK - 1:
                await asyncio.sleep(0)
        if self._again.is_set():
            return
        for odd in item.malformed:
            self._malformed(odd)
        self._contain.keep_only(self.kind, unreadable, stage=_STAGE)
        self._queue.listed(self.kind, shown, unreadable, item.resource_version)
        self._log.debug("kind_listed", objects=len(shown), version=item.resource_version)

    def _changed_to(self, op: ChangeOp, view: Any) -> None:  # noqa: ANN401 - of any kind
        metadata = view.metadata
        if op is ChangeOp.DELETED:
            self._deleted(metadata)
            return
        with self._contain.isolate(self.kind, metadata.key, stage=_STAGE, uid=metadata.uid):
            if self._row.keep(view):
                self._queue.put(self.kind, *held(view))
            else:
                self._deleted(metadata)

    def _deleted(self, metadata: ObjectMeta) -> None:
        self._contain.gone(self.kind, metadata.key)
        self._queue.deleted(self.kind, metadata.key, metadata.uid, metadata.resource_version)

    def _malformed(self, odd: Malformed) -> None:
        """Keep the last readable form of an unreadable object, unless it is gone."""
        metadata = odd.metadata
        if odd.op is ChangeOp.DELETED:
            self._deleted(metadata)
            return
        self._metrics.unreadable.labels(self.kind).inc()
        self._log.error("object_unreadable", key=metadata.key, uid=metadata.uid, error=odd.error)
        why = f"cannot be read: {odd.error}"
        self._contain.failed(self.kind, metadata.key, stage=_STAGE, error=why, uid=metadata.uid)

    def _unavailable(self, item: Unavailable) -> None:
        self._metrics.cut_off.labels(self.kind, str(item.status)).inc()
        if not item.is_absent:
            self._absences = 0
            self._report(item.message)
            return
        self._absences += 1
        if self._queue.count(self.kind) and self._absences < _SURELY_ABSENT:
            self._report(item.message)
            return
        self._queue.absent(self.kind)
        self._changed()
        self._report("")

    def _well(self) -> None:
        self._absences = 0
        self._report("")
        self._metrics.objects.labels(self.kind).set(self._queue.count(self.kind))

    def _report(self, trouble: str) -> None:
        """Set the gate, and log when the trouble begins, changes or ends."""
        if trouble and trouble != self._trouble:
            self._log.warning("watch_interrupted", reason=trouble)
        if self._trouble and not trouble:
            self._log.info("watch_resumed")
        if trouble != self._trouble or self._gate.ok is bool(trouble):
            self._gate.set(not trouble, trouble)
        self._trouble = trouble
