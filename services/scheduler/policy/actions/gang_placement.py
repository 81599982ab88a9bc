"""The node on which one task of a gang waits while victims terminate (A08).

⚠ As in preempt, only refusals for good keep a node out: what evictions could cure is not asked of
predicates. `strictly` asks them.
"""

import numpy as np

from pumice.plugins import BoolArray
from services.scheduler.engine.jobs.records import NOWHERE, Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.placement.candidates import Candidates
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.placement.target import PlacementTarget
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.classes import TaskClass


def best_column(
    session: Session,
    job: Job,
    sub: SubJob | None,
    task_class: TaskClass,
    within: BoolArray,
    *,
    strictly: bool,
) -> int:
    """Return the best column for a task of a class, NOWHERE when there is none.

    Nodes that have room as they are come before those that must be left first; of equal ones those
    of the shard come first, then the better score decides (SS08).
    """
    candidates = session.candidates(task_class)
    open_ = within if strictly else within & candidates.reachable()
    for waiting in (False, True):
        fits = _fits(session, candidates, task_class, waiting=waiting, strictly=strictly)
        for mask in session.by_shard(open_ & fits):
            if mask.any():
                return _best(session, candidates, PlacementTarget(job, sub, "", mask), mask)
    return NOWHERE


def _fits(
    session: Session,
    candidates: Candidates,
    task_class: TaskClass,
    *,
    waiting: bool,
    strictly: bool,
) -> BoolArray:
    if strictly:
        return candidates.future if waiting else candidates.idle
    return candidates.fits(Rows(session.cluster_state.nodes, task_class), waiting=waiting)


def _best(
    session: Session, candidates: Candidates, target: PlacementTarget, mask: BoolArray
) -> int:
    columns = np.flatnonzero(mask)
    score = candidates.score[columns]
    rank = candidates.ranked(mask)
    if rank is not None:
        score = score + rank[columns]
    bias = session.hooks.batch_node_order(target, candidates.task_class, columns)
    if bias is not None:
        score = score + bias
    turn = (columns - session.first) % len(mask)
    return int(columns[np.lexsort((turn, -score))[0]])


def still_fits(session: Session, task_class: TaskClass, column: int) -> bool:
    """Tell whether a node takes a task of a class, predicates included."""
    return bool(session.candidates(task_class).future[column])
