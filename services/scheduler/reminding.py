"""Publishes wanted statuses again that their objects do not show yet; the worker's, and pure.

A status stays on the bus for a short time only, so that the stream holds what is on its way and not
what has been; it needs no removal. A status that is lost (a binder away for long, a bus that lost
its streams) must not be lost for ever, so the scheduler looks at it again: after `FIRST_S`, then at
intervals that double up to `LONGEST_S`. Each status lives on the bus twice as long as it takes
until it would be published again, so that there is always one as long as one is needed.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import ShardStatus
from shared.contracts import messages as m

FIRST_S: Final = 60
LONGEST_S: Final = 3600


class DesiredStatus(Struct, frozen=True, kw_only=True):
    """One wanted status on its way to the bus."""

    kind: str
    """Token of the kind."""
    wanted: m.Desired
    ttl_s: int = 2 * FIRST_S
    """Time to live on the bus."""


class _Sent(Struct, frozen=True, kw_only=True):
    status: DesiredStatus
    due: float
    interval_s: int


class Reminders:
    """Remembers the statuses that were published and that nothing has been seen of."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, statuses: Iterable[DesiredStatus], *, now: float) -> None:
        """Remember statuses that are about to be published; the last one about an object counts."""
        for status in statuses:
            self._remember(status, now=now, interval_s=FIRST_S)

    def due(self, *, now: float, stands: Callable[[DesiredStatus], bool]) -> list[DesiredStatus]:
        """Return the statuses to publish again; those that no longer stand are forgotten."""
        again = []
        while self._due and self._due[0][0] <= now:
            at, uid = heapq.heappop(self._due)
            sent = self._sent.get(uid)
            if sent is None or sent.due != at:
                continue  # published anew since
            if not stands(sent.status):
                del self._sent[uid]
                continue
            interval_s = min(2 * sent.interval_s, LONGEST_S)
            # Without a version: whatever is in the way, the binder has to look.
            wanted = replace(sent.status.wanted, rv="")
            status = replace(sent.status, wanted=wanted, ttl_s=2 * interval_s)
            self._remember(status, now=now, interval_s=interval_s)
            again.append(status)
        return again

    def forget(self) -> None:
        """Forget everything: what objects show is looked at afresh."""
        self._sent.clear()
        self._due.clear()

    def _remember(self, status: DesiredStatus, *, now: float, interval_s: int) -> None:
        sent = _Sent(status=status, due=now + interval_s, interval_s=interval_s)
        self._sent[status.wanted.uid] = sent
        heapq.heappush(self._due, (sent.due, status.wanted.uid))


def shard_status(wanted: m.DesiredNodeShard) -> ShardStatus:
    """Return the status that a message wants of a NodeShard."""
    return ShardStatus(
        in_use=frozenset(wanted.in_use),
        to_add=frozenset(wanted.to_add),
        to_remove=frozenset(wanted.to_remove),
    )


def stands(status: DesiredStatus, cluster_state: ClusterState) -> bool:
    """Tell whether a status is still the scheduler's, and its object does not show it."""
    wanted = status.wanted
    if isinstance(wanted, m.DesiredPodGroup):
        job = cluster_state.jobs.get(wanted.key)
        return job is not None and job.uid == wanted.uid and job.decided is not None
    if isinstance(wanted, m.DesiredUngated):
        task = cluster_state.task(wanted.uid)
        return task is not None and task.lifting
    if isinstance(wanted, m.DesiredPod):
        task = cluster_state.task(wanted.uid)
        return task is not None and not task.fact_node and task.last_condition != task.shown
    if isinstance(wanted, m.DesiredNodeShard):
        return cluster_state.shards.stands(wanted.key, wanted.uid, shard_status(wanted))
    queue = cluster_state.jobs.queues.get(wanted.key)
    return (
        queue is not None
        and queue.uid == wanted.uid
        and (dict(queue.shown_allocated), queue.shown_pending) != (wanted.allocated, wanted.pending)
        and (dict(queue.last_allocated), queue.last_pending) == (wanted.allocated, wanted.pending)
    )
