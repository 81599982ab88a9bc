"""Keeps the queues: the default ones, their parents, their states, orders to them (CA02, Q02, Q04).

One key for all: there are few, they depend on each other, and orders must be carried out in turn. A
look repeats until the facts ask for nothing more; whatever a crash interrupts is asked for again.
What the API server refuses for one queue (a webhook of somebody's) is told on it, and keeps neither
the others nor orders to them waiting.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from services.controller.adapters.announcer import ControllerEvents
from services.controller.adapters.ownership import Ownership
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.replica import Replica
from services.controller.adapters.together import all_of
from services.controller.adapters.touched import Touched
from services.controller.metrics import ControllerMetrics, QueueCounts
from services.controller.queue.orders import (
    Change,
    Refusal,
    SetMark,
    SetState,
    action_of,
    carry_out,
    follow_parent,
    mark_patch,
    targets,
)
from services.controller.queue.phases import SHUT, QueueAction
from services.controller.queue.queues import Json, missing, parent_patch, synced_state
from shared.api import kinds, time
from shared.api.bus import Command
from shared.api.scheduling import Queue, QueueState
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger
from shared.runtime.tasks import sleep_or_event

_LOOK_AGAIN_S: Final = 30.0
_RETRY_S: Final = 0.5
_ORPHAN_S: Final = 20.0
"""How long a Command waits for its queue to become known; facts of two kinds have no order."""
_KEY: Final = "queues"
_ORDERS: Final = (QueueAction.OPEN, QueueAction.CLOSE)
_WORDS: Final = {
    QueueAction.OPEN: "Open",
    QueueAction.CLOSE: "Close",
    QueueAction.SYNC: "Sync",
}


class QueueKeeper:
    """A part of the service; one replica at a time acts."""

    name: Final = "queues"

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        ownership: Ownership,
        is_synced: Callable[[], bool],
        touch: Callable[[Touched], None],
        events: ControllerEvents,
        recorder: Recorder,
        clock: Clock,
        faults: Faults,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._ownership = ownership
        self._is_synced = is_synced
        self._touch = touch
        self._events = events
        self._recorder = recorder
        self._clock = clock
        self._faults = faults
        self._metrics = metrics
        self._log = log
        self._poked = asyncio.Event()
        ownership.on_change(lambda _: self.touch_all())

    def counts(self) -> QueueCounts:
        """Return the metrics of the queues that this replica keeps (Q03)."""
        replica = self._replica
        return QueueCounts(
            groups=replica.groups.values,
            queues=lambda: replica.queues if self._ownership.owns(_KEY) else (),
        )

    def touch(self, touched: Touched) -> None:
        """Have the queues looked at when one of them changed."""
        if touched.queues:
            self.touch_all()

    def touch_all(self) -> None:
        """Have the queues looked at."""
        self._poked.set()

    async def run(self) -> None:
        """Keep the queues for ever."""
        wait_s = _RETRY_S
        while True:
            await sleep_or_event(self._clock, wait_s, self._poked)
            self._poked.clear()
            if not self._is_synced() or not self._ownership.owns(_KEY):
                wait_s = _LOOK_AGAIN_S
                continue
            try:
                with self._ownership.looking(_KEY):
                    await self._look()
                wait_s = _LOOK_AGAIN_S
            except (Retryable, Conflict, Rejected) as error:
                self._log.warning("queues_not_kept", reason=str(error))
                wait_s = _RETRY_S

    async def _look(self) -> None:
        for body in missing(self._replica.queues):
            await self._create(body)
        for command in self._replica.queue_commands():
            await self._obey(command)
        groups = self._replica.groups_per_queue()
        queues = sorted(self._replica.queues)
        await all_of([partial(self._put_right, name, groups) for name in queues], width=1)

    async def _create(self, body: Json) -> None:
        name = body["metadata"]["name"]
        try:
            answer = await self._kube.create(kinds.QUEUE, "", body)
        except AlreadyExists:
            answer = await self._kube.get(kinds.QUEUE, "", name)
        else:
            self._metrics.writes.labels("create", kinds.QUEUE.token).inc()
            self._log.info("queue_created", queue=name)
        self._touch(self._replica.written(kinds.QUEUE, answer))

    async def _put_right(self, name: str, groups: Mapping[str, int]) -> None:
        queue = self._replica.queues.get(name)
        if queue is None:
            return
        try:
            await self._sync(queue, groups)
        except Rejected as error:
            self._tell_failure(queue, QueueAction.SYNC, str(error))

    async def _sync(self, queue: Queue, groups: Mapping[str, int]) -> None:
        name = queue.metadata.name
        if (patch := parent_patch(queue)) is not None:
            await self._patch(queue, patch)
            return  # its change is looked at next
        if changes := follow_parent(name, self._replica.queues, groups):
            await self._make(changes, occasion=queue.metadata.resource_version)
            return
        state = synced_state(queue, groups=groups.get(name, 0))
        if state is not None:
            # Decided on facts that may be late, so only the version decided on is changed.
            await self._write_state(queue, state, version=queue.metadata.resource_version)

    # Orders

    async def _obey(self, command: Command) -> None:
        """Carry out a Command, then delete it: a crash in between repeats it (ADR 5)."""
        name = command.target.name if command.target is not None else ""
        queue = self._replica.queues.get(name)
        if queue is None or not targets(command, queue):
            await self._forget_orphan(command)
            return
        action = action_of(command)
        changes = carry_out(action, name, self._replica.queues, self._replica.groups_per_queue())
        occasion = command.metadata.uid
        if isinstance(changes, Refusal):
            self._tell_failure(queue, action, changes.why, occasion=occasion)
        else:
            try:
                await self._make(changes, occasion=occasion)
            except Rejected as error:
                self._tell_failure(queue, action, str(error), occasion=occasion)
            else:
                told = any(isinstance(c, SetState) and c.queue == name for c in changes)
                if action in _ORDERS and not told:
                    self._tell_success(queue, action, occasion)
        await self._delete(command)

    async def _make(self, changes: Iterable[Change], *, occasion: str) -> None:
        """Make changes in their order, each with its event on its queue (Q05)."""
        for change in changes:
            await self._change(change)
            self._faults.point("controller.after-queue-change")
            queue = self._replica.queues.get(change.queue)
            if isinstance(change, SetState) and queue is not None:
                action = QueueAction.CLOSE if change.state in SHUT else QueueAction.OPEN
                self._tell_success(queue, action, occasion)

    def _tell_failure(
        self, queue: Queue, action: QueueAction, why: str, *, occasion: str = ""
    ) -> None:
        name = queue.metadata.name
        self._log.warning("queue_order_refused", queue=name, order=action, reason=why)
        message = f"{_WORDS[action]} queue failed for {why}"
        self._recorder.tell_queue(queue, action, message, occasion=occasion, warning=True)

    def _tell_success(self, queue: Queue, action: QueueAction, occasion: str) -> None:
        message = f"{_WORDS[action]} queue succeed"
        self._recorder.tell_queue(queue, action, message, occasion=occasion)

    async def _change(self, change: Change) -> None:
        queue = self._replica.queues.get(change.queue)
        if queue is None:
            raise Conflict(f"queue {change.queue} is gone")
        if isinstance(change, SetMark):
            await self._patch(queue, mark_patch(change))
        else:
            await self._write_state(queue, change.state)

    async def _forget_orphan(self, command: Command) -> None:
        created = command.metadata.creation_timestamp
        if created is None or self._clock.now() - time.parse(created) < _ORPHAN_S:
            return
        self._log.warning("queue_order_without_queue", command=command.metadata.key)
        await self._delete(command)

    # Requests

    async def _write_state(self, queue: Queue, state: QueueState, *, version: str = "") -> None:
        was = queue.status.state
        patch = {"status": {"state": state.value}}
        await self._patch(queue, patch, version=version, subresource="status")
        name, uid = queue.metadata.name, queue.metadata.uid
        now = self._replica.queues.get(name, queue)
        self._log.info("queue_state_changed", queue=name, was=was or "", state=state.value)
        self._events.queue(now if now.metadata.uid == uid else queue, was=was, state=state)

    async def _patch(
        self, queue: Queue, patch: Json, *, version: str = "", subresource: str = ""
    ) -> None:
        meta = queue.metadata
        try:
            answer = await self._kube.patch(
                kinds.QUEUE,
                "",
                meta.name,
                patch,
                uid=meta.uid,
                resource_version=version,
                subresource=subresource,
            )
        except Gone:
            self._touch(self._replica.deleted(kinds.QUEUE, meta.name, meta.uid))
            raise
        self._metrics.writes.labels("patch", kinds.QUEUE.token).inc()
        self._touch(self._replica.written(kinds.QUEUE, answer))

    async def _delete(self, command: Command) -> None:
        meta = command.metadata
        try:
            await self._kube.delete(kinds.COMMAND, meta.namespace, meta.name, uid=meta.uid)
        except Gone:
            pass  # somebody else deleted it
        else:
            self._metrics.writes.labels("delete", kinds.COMMAND.token).inc()
        self._touch(self._replica.deleted(kinds.COMMAND, meta.key, meta.uid))
