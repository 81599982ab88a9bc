"""Reconciles the queues: the default ones, parents, states, and Commands to them (CA02, Q02, Q04).

One key for all: there are few, they depend on each other, and Commands must be carried out in turn.
A pass repeats until nothing is left to do, also after a crash. What the API server refuses for one
queue (for example by a webhook) is recorded on it, and keeps neither the others nor Commands to
them waiting. Commands with another kind of target get an Event here and are not deleted, because
another program may handle them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from typing_extensions import override

from services.controller.adapters.reconciler import ControllerContext, SingletonReconciler
from services.controller.adapters.writer import apply
from services.controller.metrics import QueueCounts
from services.controller.queue.plan import (
    SHUT,
    Change,
    QueueAction,
    RejectedCommand,
    SetMark,
    SetState,
    action_of,
    carry_out,
    follow_parent,
    mark_patch,
    missing,
    parent_patch,
    synced_state,
    targets,
)
from services.controller.queue.trust import (
    POLICY as NAME,
)
from services.controller.queue.trust import (
    guarded_since,
    in_trusted_namespace,
    made_at,
)
from shared.api import kinds, time
from shared.api.base import Json
from shared.api.batch import Command
from shared.api.kinds import ADMISSION_POLICY, ADMISSION_POLICY_BINDING, Kind
from shared.api.scheduling import Queue, QueueState
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Conflict, Gone, Rejected
from shared.runtime.workqueue import WorkQueue


class CommandAuthorizer:
    """Decides which Commands to queues are carried out (`services.controller.queue.trust`).

    The policy is read again for each Command from an untrusted namespace: such Commands are rare,
    and a removed policy must count at once.
    """

    def __init__(self, kube: Kube, *, namespaces: Collection[str]) -> None:
        """`namespaces` are those whose Commands to queues are carried out in any case."""
        self._kube = kube
        self._namespaces = frozenset(namespaces)

    async def refusal(self, command: Command) -> str:
        """Return why a Command is not carried out, "" when it is. Raises Retryable."""
        if in_trusted_namespace(command, self._namespaces):
            return ""
        if made_at(command) >= await self._guarded_since():
            return ""
        trusted = ", ".join(sorted(self._namespaces)) or "none"
        return (
            f"queues belong to no namespace, and the API server was not asked whether the maker of"
            f" this Command may update one (ValidatingAdmissionPolicy {NAME}, or"
            f" --queue-commands-from, now: {trusted})"
        )

    async def _guarded_since(self) -> float:
        try:
            policy = await self._kube.get(ADMISSION_POLICY, "", NAME)
            binding = await self._kube.get(ADMISSION_POLICY_BINDING, "", NAME)
        except (Gone, Rejected):  # not there, not served, or not for us to see
            return float("inf")
        return guarded_since(policy, binding)


_ORPHAN_S: Final = 20.0
"""How long a Command waits for its queue to become known; facts of two kinds have no order."""
_STAGE: Final = "reconcile"
_ORDERS: Final = (QueueAction.OPEN, QueueAction.CLOSE)
_WORDS: Final = {
    QueueAction.OPEN: "Open",
    QueueAction.CLOSE: "Close",
    QueueAction.SYNC: "Sync",
}


class QueueReconciler(SingletonReconciler):
    """Reconciles all queues under one key; one replica at a time acts."""

    name = "queues"
    watched: ClassVar[Sequence[Kind]] = (kinds.QUEUE,)
    every_s = 30.0

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        trusted = (manager.namespace, *manager.settings.queue_commands_from)
        self._authorizer = CommandAuthorizer(manager.kube, namespaces=trusted)
        self._events = manager.events
        self._quarantine = manager.env.quarantine
        self._faults = manager.env.faults
        self._misdirected: set[str] = set()
        """Uids of the Commands that have an Event which says that their target takes none."""

    @override
    def collectors(self) -> Iterable[QueueCounts]:
        """Return the metrics of the queues that this replica keeps (Q03)."""
        informers = self._informers
        counts = QueueCounts(
            groups=informers.groups.values,
            queues=lambda: informers.queues if self._ownership.owns(self.name) else (),
        )
        return (counts,)

    @override
    async def reconcile_all(self) -> None:
        """Reconcile all queues in order; a failure for one object does not stop the others.

        Raises the worst failure of a request.
        """
        await apply(
            [
                *(partial(self._create, body) for body in missing(self._informers.queues)),
                *(partial(self._execute, command) for command in self._informers.queue_commands()),
            ],
            width=1,
        )
        self._report_misdirected()
        groups = self._informers.groups_per_queue()
        queues = sorted(self._informers.queues)
        await apply([partial(self._reconcile_queue, name, groups) for name in queues], width=1)

    async def _create(self, body: Json) -> None:
        name = body["metadata"]["name"]
        try:
            await self._writer.create(kinds.QUEUE, "", body)
        except AlreadyExists:
            await self._writer.get(kinds.QUEUE, "", name)
        else:
            self._log.info("queue_created", queue=name)

    async def _reconcile_queue(self, name: str, groups: Mapping[str, int]) -> None:
        queue = self._informers.queues.get(name)
        if queue is None:
            return
        with self._quarantine.isolate(kinds.QUEUE.token, name, stage=_STAGE):
            try:
                await self._sync(queue, groups)
            except Rejected as error:
                self._record_failure(queue, QueueAction.SYNC, str(error))

    async def _sync(self, queue: Queue, groups: Mapping[str, int]) -> None:
        name = queue.metadata.name
        if (patch := parent_patch(queue)) is not None:
            await self._writer.patch(kinds.QUEUE, queue.metadata, patch)
            return  # its change is reconciled next
        if changes := follow_parent(name, self._informers.queues, groups):
            await self._make(changes, occasion=queue.metadata.resource_version)
            return
        state = synced_state(queue, groups=groups.get(name, 0))
        if state is not None:
            # Decided on facts that may be late, so only the version decided on is changed.
            await self._write_state(queue, state, version=queue.metadata.resource_version)

    # Commands

    async def _execute(self, command: Command) -> None:
        with self._quarantine.isolate(kinds.COMMAND.token, command.metadata.key, stage=_STAGE):
            await self._carry_out(command)

    async def _carry_out(self, command: Command) -> None:
        """Carry out a Command, then delete it: a crash in between repeats it (ADR 5)."""
        name = command.target.name if command.target is not None else ""
        queue = self._informers.queues.get(name)
        if queue is None or not targets(command, queue):
            await self._forget_orphan(command)
            return
        if why := await self._authorizer.refusal(command):
            await self._forget(command, why)
            return
        action = action_of(command)
        groups = self._informers.groups_per_queue()
        changes = carry_out(action, name, self._informers.queues, groups)
        occasion = command.metadata.uid
        if isinstance(changes, RejectedCommand):
            self._record_failure(queue, action, changes.why, occasion=occasion)
        else:
            try:
                await self._make(changes, occasion=occasion)
            except Rejected as error:
                self._record_failure(queue, action, str(error), occasion=occasion)
            else:
                is_reported = any(isinstance(c, SetState) and c.queue == name for c in changes)
                if action in _ORDERS and not is_reported:
                    self._record_success(queue, action, occasion)
        await self._writer.delete(kinds.COMMAND, command.metadata)

    async def _make(self, changes: Iterable[Change], *, occasion: str) -> None:
        """Make changes in order, each with an Event on its queue (Q05)."""
        for change in changes:
            await self._change(change)
            self._faults.point("controller.after-queue-change")
            queue = self._informers.queues.get(change.queue)
            if isinstance(change, SetState) and queue is not None:
                action = QueueAction.CLOSE if change.state in SHUT else QueueAction.OPEN
                self._record_success(queue, action, occasion)

    def _record_failure(
        self, queue: Queue, action: QueueAction, why: str, *, occasion: str = ""
    ) -> None:
        name = queue.metadata.name
        self._log.warning("queue_order_refused", queue=name, order=action, reason=why)
        message = f"{_WORDS[action]} queue failed for {why}"
        self._recorder.queue_event(queue, action, message, occasion=occasion, warning=True)

    def _record_success(self, queue: Queue, action: QueueAction, occasion: str) -> None:
        message = f"{_WORDS[action]} queue succeed"
        self._recorder.queue_event(queue, action, message, occasion=occasion)

    async def _change(self, change: Change) -> None:
        queue = self._informers.queues.get(change.queue)
        if queue is None:
            raise Conflict(f"queue {change.queue} is gone")
        if isinstance(change, SetMark):
            await self._writer.patch(kinds.QUEUE, queue.metadata, mark_patch(change))
        else:
            await self._write_state(queue, change.state)

    async def _forget_orphan(self, command: Command) -> None:
        created = command.metadata.creation_timestamp
        if created is None or self._clock.now() - time.parse(created) < _ORPHAN_S:
            return
        assert command.target is not None, "only Commands to queues come here"
        queue = self._informers.queues.get(command.target.name)
        why = f"there is no queue {command.target.name}"
        if queue is not None:
            why = f"queue {queue.metadata.name} has uid {queue.metadata.uid}"
            why += f", not {command.target.uid}"
        await self._forget(command, why)

    async def _forget(self, command: Command, why: str) -> None:
        """Record why a Command has no effect, and delete it."""
        self._log.warning("queue_order_ignored", command=command.metadata.key, reason=why)
        self._recorder.ignored_command_event(command, why)
        await self._writer.delete(kinds.COMMAND, command.metadata)

    def _report_misdirected(self) -> None:
        """Record, once on each, which Commands are for neither a job nor a queue."""
        found = {c.metadata.uid: c for c in self._informers.misdirected_commands()}
        for uid, command in found.items():
            if uid in self._misdirected:
                continue
            target = command.target
            kind = f"{target.api_version} {target.kind}" if target is not None else "no target"
            self._recorder.ignored_command_event(
                command,
                f"{kind} takes no Commands, {kinds.JOB.api_version} {kinds.JOB.kind} and"
                f" {kinds.QUEUE.api_version} {kinds.QUEUE.kind} do",
            )
        self._misdirected = set(found)

    async def _write_state(self, queue: Queue, state: QueueState, *, version: str = "") -> None:
        was = queue.status.state
        patch = {"status": {"state": state.value}}
        await self._writer.patch(
            kinds.QUEUE, queue.metadata, patch, version=version, subresource="status"
        )
        name, uid = queue.metadata.name, queue.metadata.uid
        now = self._informers.queues.get(name, queue)
        self._log.info("queue_state_changed", queue=name, was=was or "", state=state.value)
        self._events.queue(now if now.metadata.uid == uid else queue, was=was, state=state)
