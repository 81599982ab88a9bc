"""Watches one kind of object and puts each change into the publish queue.

First step of the flow "watch event → scheduler": `Watcher` → `PublishQueue` → `StatePublisher` →
stream STATE.

A watcher runs in standbys too, so a new leader already has all objects. They may be old: the
process may have been frozen, or the connection may be dead without an error. So each leadership
term starts with `revalidate`:

- A kind with few objects (`RELIST_MAX`) is listed again.
- For other kinds the watcher asks the API server for its current resourceVersion and reopens the
  watch where it stopped. The kind is current once an event or bookmark of that version arrives. If
  none arrives within `_BOOKMARK_WAIT_S`, the kind is listed again.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from services.cache.fold.objects import ObservedObject, observed_object
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
from shared.runtime.errors import PumiceError
from shared.runtime.service import Context
from shared.runtime.tasks import TaskGroup

_STAGE: Final = "read"
_CHUNK: Final = 500
"""Objects of a list that are processed between two yields to the event loop."""
_NOT_FOUND_THRESHOLD: Final = 2
"""Consecutive 404 responses after which all objects of a kind count as deleted.

They are seconds apart: one wrong response of a starting server must not delete all jobs."""
RELIST_MAX: Final = 500
"""Kinds with at most this many objects (one page of a list) are listed instead of confirmed."""
_BOOKMARK_WAIT_S: Final = 5.0
"""Seconds to wait for a bookmark before the kind is listed again."""


class Watcher:
    """Watches the objects of one row of `services.cache.kinds`; a part of the service."""

    def __init__(
        self,
        row: Row,
        context: Context,
        *,
        kube: Kube,
        queue: PublishQueue,
        changed: Callable[[], None],
        metrics: CacheMetrics,
    ) -> None:
        self.kind: Final = row.kind.token
        self.name: Final = f"watch-{self.kind}"
        self._row = row
        self._kube = kube
        self._queue = queue
        self._changed = changed
        self._gate = context.readiness.gate(self.name)
        self._quarantine = context.quarantine
        self._metrics = metrics
        self._rng = context.rng
        self._log = context.log.bind(kind=self.kind)
        self._restart = asyncio.Event()
        self._watch: ListWatch | None = None
        """The watch to continue; None if the kind has to be listed first."""
        self._is_listing = False
        """Whether a list is in progress."""
        self._unconfirmed = False
        """Whether the objects, or those of a list in progress, may be older than the term."""
        self._error = ""
        self._absences = 0
        self._counted = -1
        """Value of the gauge of objects; most changes change no count."""

    def revalidate(self) -> None:
        """Confirm that the objects are current. A new leader calls this first.

        A list that is in progress is completed first.
        """
        self._unconfirmed = True
        if not self._is_listing:
            self._restart.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._gate.set(ok=False, reason=f"{self.kind} are not listed yet")
        while True:
            self._restart.clear()
            async with TaskGroup() as group:
                following = group.create_task(self._follow(), name=f"{self.name}-follow")
                await self._restart.wait()
                following.cancel()

    async def _follow(self) -> None:
        must_confirm, self._unconfirmed = self._unconfirmed, False
        if must_confirm and self._watch is not None and not await self._can_confirm(self._watch):
            self._watch = None
        self._is_listing = self._watch is None
        watch = self._watch or self._new_watch()
        relist_timer = asyncio.get_running_loop().call_later(
            _BOOKMARK_WAIT_S, self._relist_if_unconfirmed
        )
        try:
            async with aclosing(watch.items()) as items:
                async for item in items:
                    await self._handle(item, watch)
                    watch.wants_bookmark = watch.wants_bookmark and not self._queue.is_current(
                        self.kind
                    )
        finally:
            relist_timer.cancel()

    async def _can_confirm(self, watch: ListWatch) -> bool:
        """Set the version that the watch has to reach; return False if the kind must be listed."""
        if self._queue.count(self.kind) <= RELIST_MAX:
            return False
        try:
            version = await self._kube.version(self._row.kind)
        except PumiceError as exc:
            self._log.debug("version_unknown", reason=str(exc))
            return False
        self._queue.expect(self.kind, version)
        self._changed()
        watch.wants_bookmark = not self._queue.is_current(self.kind)
        return True

    def _relist_if_unconfirmed(self) -> None:
        """List again if the watch has not reached the expected version in time."""
        if self._watch is not None and self._watch.wants_bookmark:
            self._log.info("kind_listed_anew", reason=f"no bookmark in {_BOOKMARK_WAIT_S:g} s")
            self._watch = None
            self._restart.set()

    def _new_watch(self) -> ListWatch:
        return ListWatch(
            self._kube,
            self._row.kind,
            namespace=self._row.namespace,
            field_selector=self._row.field_selector,
            label_selector=self._row.label_selector,
            rng=self._rng,
        )

    async def _handle(self, item: Item, watch: ListWatch) -> None:
        match item:
            case Unavailable():
                self._is_listing = False
                self._unavailable(item)
                if self._unconfirmed:
                    self._restart.set()
                return
            case Listed():
                await self._listed(item, watch)
            case Changed(op=op, object=view):
                self._object_changed(op, view)
            case Malformed():
                self._malformed(item)
            case Bookmark(resource_version=version):
                self._queue.bookmark(self.kind, version)
        self._clear_error()
        self._changed()

    async def _listed(self, item: Listed, watch: ListWatch) -> None:
        self._watch, self._is_listing = None, True
        shown: dict[str, ObservedObject] = {}
        unreadable = {odd.metadata.key for odd in item.malformed}
        for index, view in enumerate(item.items):
            with self._quarantine.isolate(self.kind, view.metadata.key, stage=_STAGE) as isolated:
                if self._row.keep(view):
                    key, what = observed_object(view)
                    shown[key] = what
            if isolated.error is not None:
                unreadable.add(view.metadata.key)
            if index % _CHUNK == _CHUNK - 1:
                await asyncio.sleep(0)
        for odd in item.malformed:
            self._malformed(odd)
        self._quarantine.keep_only(self.kind, unreadable, stage=_STAGE)
        self._queue.listed(
            self.kind, shown, unreadable, item.resource_version, is_current=not self._unconfirmed
        )
        self._watch, self._is_listing = watch, False
        if self._unconfirmed:
            self._restart.set()
        self._log.debug("kind_listed", objects=len(shown), version=item.resource_version)

    def _object_changed(self, op: ChangeOp, view: Any) -> None:  # noqa: ANN401 - of any kind
        metadata = view.metadata
        if op is ChangeOp.DELETED:
            self._deleted(metadata)
            return
        with self._quarantine.isolate(
            self.kind, metadata.key, stage=_STAGE, uid=metadata.uid
        ) as isolated:
            if self._row.keep(view):
                self._queue.put(self.kind, *observed_object(view))
            else:
                self._deleted(metadata)
        if isolated.error is not None:
            self._queue.unreadable(self.kind, metadata.key)

    def _deleted(self, metadata: ObjectMeta) -> None:
        self._quarantine.gone(self.kind, metadata.key)
        self._queue.deleted(self.kind, metadata.key, metadata.uid, metadata.resource_version)

    def _malformed(self, odd: Malformed) -> None:
        """Keep the last readable version of an unreadable object, unless it was deleted."""
        metadata = odd.metadata
        if odd.op is ChangeOp.DELETED:
            self._deleted(metadata)
            return
        self._queue.unreadable(self.kind, metadata.key)
        self._metrics.unreadable.labels(self.kind).inc()
        self._log.error("object_unreadable", key=metadata.key, uid=metadata.uid, error=odd.error)
        why = f"cannot be read: {odd.error}"
        self._quarantine.failed(self.kind, metadata.key, stage=_STAGE, error=why, uid=metadata.uid)

    def _unavailable(self, item: Unavailable) -> None:
        self._metrics.cut_off.labels(self.kind, str(item.status)).inc()
        if not item.is_absent:
            self._absences = 0
            self._report(item.message)
            return
        self._absences += 1
        if self._queue.count(self.kind) and self._absences < _NOT_FOUND_THRESHOLD:
            self._report(item.message)
            return
        self._queue.absent(self.kind)
        self._changed()
        self._report("")

    def _clear_error(self) -> None:
        self._absences = 0
        self._report("")
        if (count := self._queue.count(self.kind)) != self._counted:
            self._counted = count
            self._metrics.objects.labels(self.kind).set(count)

    def _report(self, error: str) -> None:
        """Set the gate, and log when an error begins, changes or ends."""
        if error and error != self._error:
            self._log.warning("watch_interrupted", reason=error)
        if self._error and not error:
            self._log.info("watch_resumed")
        if error != self._error or self._gate.ok is bool(error):
            self._gate.set(not error, error)
        self._error = error
