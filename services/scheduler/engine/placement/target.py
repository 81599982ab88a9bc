"""The target of a placement: a job or a subgroup of it, and the nodes that it may go to.

Where plugins score by the rest of a group (BatchNodeOrder of SS08), the scores change with each
placement and compare the candidates with each other, so that `fill` cannot look ahead: the caller
gets one column at a time and asks again.
"""

from typing import NamedTuple

import numpy as np

from pumice.plugins import BoolArray
from pumice.plugins.points import Points
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.placement.hooks import Combined


class PlacementTarget(NamedTuple):
    """The job, and where its pods may go: what a choice of nodes knows beyond the task class."""

    job: Job
    sub: SubJob | None = None
    allocated: str = ""
    """HyperNode in which the subgroup is so far."""
    within: BoolArray | None = None
    """Nodes that may be chosen; None = all."""


def choose_by_batch_order(
    hooks: Combined, candidates: Candidates, target: PlacementTarget, *, waiting: bool, first: int
) -> list[int]:
    """Return the best column for one task, none when no plugin tells the candidates apart.

    Among equals the search begins at column `first`.
    """
    if not hooks.of(Points.batch_node_order):
        return []
    mask = candidates.future if waiting else candidates.idle
    if target.within is not None:
        mask = mask & target.within
    columns = np.flatnonzero(mask)
    if not len(columns):
        return []
    bias = hooks.batch_node_order(target, candidates.task_class, columns)
    if bias is None:
        return []
    rank = candidates.ranked(mask)
    score = candidates.score[columns] + bias
    if rank is not None:
        score = score + rank[columns]
    turn = (columns - first) % len(mask)
    return [int(columns[np.lexsort((turn, -score))[0]])]
