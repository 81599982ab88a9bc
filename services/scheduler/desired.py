"""Extra status updates and retries that do not come from a scheduling plan. Pure.

A status expires from the bus after a short time, so that the stream holds only statuses that are
not written yet. A lost status (a binder was down, the bus lost its streams) is published again:
after `FIRST_S`, then at intervals that double up to `LONGEST_S`. Each status lives twice that
interval, so that one is on the bus as long as it is needed. A status that will be void soon lives
shorter.

No session decides the status of the scheduler's own NodeShard (`OwnShard`, CA12), or the conditions
of objects that could not be folded (`QuarantineConditions`), which tell their owners why.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pumice.plugins import Condition
from services.scheduler.engine.plan import DesiredPodCondition, DesiredPodGroupStatus, Plan
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import Sharding, ShardMode, ShardStatus
from shared.api.kinds import NODESHARD, POD, PODGROUP
from shared.contracts import messages as m
from shared.model.delayed_status import DueTimes

FIRST_S: Final = 60
LONGEST_S: Final = 3600
_LETTERS_MAX: Final = 300
_LEFT_OUT_MAX: Final = 1_000
"""Most conditions of one cycle about objects that were left out."""


class DesiredStatus(Struct, frozen=True, kw_only=True):
    """A desired status of one object, with how to publish it on DESIRED."""

    kind: str
    """Token of the kind."""
    message: m.Desired
    ttl_s: int = 2 * FIRST_S
    """Time to live on the bus."""
    deferral_s: int = 0
    """Seconds for which the first write may wait for a newer status of the object."""


class _Sent(Struct, frozen=True, kw_only=True):
    status: DesiredStatus
    interval_s: int


class Reminders:
    """Remembers published statuses that their objects do not show yet."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self._due = DueTimes()

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, statuses: Iterable[DesiredStatus], *, now: float) -> None:
        """Remember statuses that are about to be published; the last one about an object counts."""
        for status in statuses:
            self._remember(status, now=now, interval_s=FIRST_S)

    def due(
        self, *, now: float, is_outstanding: Callable[[DesiredStatus], bool]
    ) -> list[DesiredStatus]:
        """Return the statuses to publish again; those no longer outstanding are forgotten."""
        again = []
        for uid in self._due.take(now=now):
            sent = self._sent[uid]
            if not is_outstanding(sent.status):
                del self._sent[uid]
                continue
            interval_s = min(2 * sent.interval_s, LONGEST_S)
            # Without a version, so that the binder reads and compares the object.
            message = replace(sent.status.message, rv="")
            status = replace(sent.status, message=message, ttl_s=2 * interval_s, deferral_s=0)
            self._remember(status, now=now, interval_s=interval_s)
            again.append(status)
        return again

    def forget(self) -> None:
        """Forget everything: the objects are compared again."""
        self._sent.clear()
        self._due.clear()

    def _remember(self, status: DesiredStatus, *, now: float, interval_s: int) -> None:
        self._sent[status.message.uid] = _Sent(status=status, interval_s=interval_s)
        self._due.set(status.message.uid, now + interval_s)


def shard_status(message: m.DesiredNodeShard) -> ShardStatus:
    """Return the status of a NodeShard that a message desires."""
    return ShardStatus(
        in_use=frozenset(message.in_use),
        to_add=frozenset(message.to_add),
        to_remove=frozenset(message.to_remove),
    )


def is_outstanding(status: DesiredStatus, cluster_state: ClusterState) -> bool:
    """Tell whether a status is still the scheduler's, and its object does not show it."""
    message = status.message
    if isinstance(message, m.DesiredPodGroup | m.DesiredNativePodGroup):
        job = cluster_state.jobs.get(message.key)
        return job is not None and job.uid == message.uid and job.decided is not None
    if isinstance(message, m.DesiredUngated):
        task = cluster_state.task(message.uid)
        return task is not None and task.lifting
    if isinstance(message, m.DesiredPod):
        task = cluster_state.task(message.uid)
        return task is not None and not task.fact_node and task.last_condition != task.shown
    if isinstance(message, m.DesiredNodeShard):
        return cluster_state.shards.is_outstanding(message.key, message.uid, shard_status(message))
    queue = cluster_state.jobs.queues.get(message.key)
    return (
        queue is not None
        and queue.uid == message.uid
        and (dict(queue.shown_allocated), queue.shown_pending)
        != (message.allocated, message.pending)
        and (dict(queue.last_allocated), queue.last_pending) == (message.allocated, message.pending)
    )


class OwnShard:
    """The status of the scheduler's own NodeShard: asked for once per change of it."""

    def __init__(self, sharding: Sharding) -> None:
        self.sharding = sharding
        self._offered: ShardStatus | None = None
        """The status that is about to be published."""

    def carried_over(self, before: ClusterState, anew: ClusterState) -> ClusterState:
        """Return a cluster state that is filled again; what was given back remains so."""
        anew.shards.given_back = before.shards.given_back
        return anew

    def statuses(self, cluster_state: ClusterState, cycle: int) -> list[DesiredStatus]:
        """Return the status to publish if it has changed; released nodes are no longer used."""
        self._offered = None
        name, shards = self.sharding.name, cluster_state.shards
        own = shards.get(name)
        if self.sharding.mode is ShardMode.NONE or own is None:
            return []
        status = shards.status(name, cluster_state.busy_nodes())
        if status is None:
            return []
        self._offered = status
        shards.give_back(name, status)
        message = m.DesiredNodeShard(
            key=name,
            uid=own.uid,
            in_use=tuple(sorted(status.in_use)),
            to_add=tuple(sorted(status.to_add)),
            to_remove=tuple(sorted(status.to_remove)),
            leadership_term=shards.unsigned(name),
            cycle=cycle,
            rv=own.rv,
        )
        return [DesiredStatus(kind=NODESHARD.token, message=message)]

    def assume(self, cluster_state: ClusterState) -> None:
        """Use a status that was published until the object shows it."""
        if self._offered is not None:
            cluster_state.shards.assume_status(self.sharding.name, self._offered)


class QuarantineConditions:
    """Conditions of pods and PodGroups that could not be folded; they go out with the next plan."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, kind: str, key: str, uid: str, reason: Exception | str) -> None:
        """Note an object that is left out, and why."""
        if kind in {POD.token, PODGROUP.token} and uid and len(self._waiting) < _LEFT_OUT_MAX:
            name = f"{type(reason).__name__}: " if isinstance(reason, Exception) else ""
            text = " ".join(f"{name}{reason}"[: 2 * _LETTERS_MAX].split())[:_LETTERS_MAX]
            self._waiting[kind, key] = (uid, f"left out by the scheduler until it changes: {text}")

    def added(self, plan: Plan) -> Plan:
        """Return a plan with the conditions that wait."""
        if not self._waiting:
            return plan
        waiting, self._waiting = self._waiting, {}
        pods = tuple(
            DesiredPodCondition(
                key=key, uid=uid, condition=Condition("PodScheduled", "False", "Quarantined", text)
            )
            for (kind, key), (uid, text) in waiting.items()
            if kind == POD.token
        )
        groups = tuple(
            DesiredPodGroupStatus(
                key=key,
                uid=uid,
                phase="Pending",
                running=0,
                succeeded=0,
                failed=0,
                conditions=(Condition("Unschedulable", "True", "Quarantined", text),),
            )
            for (kind, key), (uid, text) in waiting.items()
            if kind == PODGROUP.token
        )
        return replace(plan, pods=(*plan.pods, *pods), podgroups=(*plan.podgroups, *groups))


def digest(fact: m.Fact) -> bytes:
    """Return a digest of the content of an object."""
    return hashlib.blake2b(bytes(fact.body), digest_size=16).digest()
