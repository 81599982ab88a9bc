"""minruntime: a job runs for a minimum time before others may evict its gang.

The annotations `pumice.dev/preempt-min-runtime` and `pumice.dev/reclaim-min-runtime` of a queue, or
of an ancestor, say how long; see docs/evictions.md. KAI-Scheduler has a plugin of that name.
"""

from collections.abc import Sequence
from typing import Final

from pumice.plugins import (
    Arguments,
    Cluster,
    EvictionContext,
    EvictionKind,
    Hooks,
    Job,
    Task,
    TaskStatus,
)
from services.scheduler.policy.arguments import seconds
from shared.api import keys
from shared.api.scheduling import queue_lineage
from shared.model import durations

_PREEMPT: Final = keys.PREEMPT_MIN_RUNTIME
_RECLAIM: Final = keys.RECLAIM_MIN_RUNTIME


class MinRuntime:
    """Protects gangs that have not run long enough."""

    name = "minruntime"

    def __init__(self, arguments: Arguments) -> None:
        """Read the times that count for queues without an annotation."""
        self._defaults = {
            _PREEMPT: seconds(arguments, "minruntime.preempt", 0),
            _RECLAIM: seconds(arguments, "minruntime.reclaim", 0),
        }

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the protection to all actions that evict."""
        self._cluster = cluster
        self._known: dict[tuple[str, str], float] = {}
        hooks.preemptable(lambda _, candidates: self._unprotected(_PREEMPT, candidates))
        hooks.reclaimable(lambda _, candidates: self._unprotected(_RECLAIM, candidates))
        hooks.evictable(self._evictable)

    def _evictable(self, context: EvictionContext, candidates: Sequence[Task]) -> list[Task]:
        if context.kind is EvictionKind.DEFRAGMENT:
            return self._unprotected(_PREEMPT, self._unprotected(_RECLAIM, candidates))
        kind = _PREEMPT if context.kind is EvictionKind.GANG_PREEMPT else _RECLAIM
        return self._unprotected(kind, candidates)

    def _unprotected(self, kind: str, candidates: Sequence[Task]) -> list[Task]:
        """Return the tasks of jobs that have run long enough, and the surplus of the others."""
        spare: dict[str, int | None] = {}
        found = []
        for task in candidates:
            job = self._cluster.job_of(task)
            if job is None:
                continue
            if job.key not in spare:
                spare[job.key] = self._spare(kind, job)
            left = spare[job.key]
            if left is None or left > 0:
                spare[job.key] = None if left is None else left - 1
                found.append(task)
        return found

    def _spare(self, kind: str, job: Job) -> int | None:
        """Return how many tasks may go of a job that is protected; None for one that is not."""
        if self._cluster.now - started(job) >= self.least_s(kind, job.queue):
            return None
        return max(0, job.ready_count - job.min_available)

    def least_s(self, kind: str, queue: str) -> float:
        """Return the least run time in a queue: its own, that of its nearest ancestor, the default.

        An annotation that is no duration counts as absent.
        """
        found = self._known.get((kind, queue))
        if found is None:
            found = self._known[kind, queue] = self._stated(kind, queue)
        return found

    def _stated(self, kind: str, name: str) -> float:
        for each in queue_lineage(name, self._parent_of):
            queue = self._cluster.queue(each)
            stated = durations.setting(queue.annotations.get(kind, "")) if queue else None
            if stated is not None and stated >= 0:
                return stated
        return self._defaults[kind]

    def _parent_of(self, name: str) -> str:
        queue = self._cluster.queue(name)
        return queue.parent if queue else ""


def started(job: Job) -> float:
    """Return when a job's gang was complete, in Unix seconds; infinity while it is not.

    That is when the kubelet took the last pod of its minimum, in the order in which it took them.
    """
    running = job.by_status[TaskStatus.RUNNING].values()
    times = sorted(task.started for task in running)
    at = max(job.min_available, 1) - 1
    return times[at] if at < len(times) else times[-1] if times else float("inf")
