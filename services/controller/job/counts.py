"""How many pods of a job are in which phase (J26): counted afresh, never by deltas."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from services.controller.job.facts import PodView
from shared.api.core import PodPhase

NONE_GONE: Final[Mapping[str, int]] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by phase; a pod that is being deleted counts as terminating only."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    by_task: Mapping[str, Mapping[str, int]] = {}
    """task → pod phase → count, without terminating pods."""

    def succeeded_of(self, task: str) -> int:
        """Return how many pods of `task` have succeeded."""
        return self.by_task.get(task, {}).get(PodPhase.SUCCEEDED, 0)


_FIELDS: Final[Mapping[str, str]] = {
    PodPhase.PENDING: "pending",
    PodPhase.RUNNING: "running",
    PodPhase.SUCCEEDED: "succeeded",
    PodPhase.FAILED: "failed",
}


def count(
    pods: Iterable[PodView],
    *,
    doomed: frozenset[str] = frozenset(),
    gone: Mapping[str, int] = NONE_GONE,
) -> Counts:
    """Count `pods`; those named in `doomed` are about to be deleted: they count as terminating.

    `gone` says per task how many have succeeded and are there no more (`completed_indexes`).
    """
    totals = dict.fromkeys((*_FIELDS.values(), "unknown"), 0)
    terminating = 0
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.deleting or pod.name in doomed:
            terminating += 1
            continue
        totals[_FIELDS.get(pod.phase, "unknown")] += 1
        if pod.task:
            of_task = by_task.setdefault(pod.task, {})
            of_task[pod.phase] = of_task.get(pod.phase, 0) + 1
    for task, number in gone.items():
        totals["succeeded"] += number
        of_task = by_task.setdefault(task, {})
        of_task[PodPhase.SUCCEEDED] = of_task.get(PodPhase.SUCCEEDED, 0) + number
    return Counts(terminating=terminating, by_task=by_task, **totals)
