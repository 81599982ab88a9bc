"""Where one task of a gang would wait while victims are on their way out (A08).

⚠ As in preempt, only refusals for good keep a node out: what evictions could cure is not asked of
predicates. `strictly` asks them.
"""

import numpy as np

from pumice.plugins import BoolArray
from services.scheduler.engine.candidates import Candidates
from services.scheduler.engine.records import NOWHERE, Job
from services.scheduler.engine.rows import Rows
from services.scheduler.engine.seats import Seat
from services.scheduler.engine.session import Session
from services.scheduler.engine.shapes import TaskClass
from services.scheduler.engine.subjobs import SubJob


def best_seat(
    session: Session,
    job: Job,
    sub: SubJob | None,
    shape: TaskClass,
    within: BoolArray,
    *,
    strictly: bool,
) -> int:
    """Return the best column for a task of a class, NOWHERE when there is none.

    Nodes that have room as they are come before those that must be left first; of equal ones those
    of the shard come first, then the better score decides (SS08).
    """
    candidates = session.candidates(shape)
    open_ = within if strictly else within & candidates.reachable()
    for waiting in (False, True):
        fits = _fits(session, candidates, shape, waiting=waiting, strictly=strictly)
        for mask in session.by_shard(open_ & fits):
            if mask.any():
                return _best(session, candidates, Seat(job, sub, "", mask), mask)
    return NOWHERE


def _fits(
    session: Session, candidates: Candidates, shape: TaskClass, *, waiting: bool, strictly: bool
) -> BoolArray:
    if strictly:
        return candidates.future if waiting else candidates.idle
    return candidates.fits(Rows(session.replica.nodes, shape), waiting=waiting)


def _best(session: Session, candidates: Candidates, seat: Seat, mask: BoolArray) -> int:
    columns = np.flatnonzero(mask)
    score = candidates.score[columns]
    rank = candidates.ranked(mask)
    if rank is not None:
        score = score + rank[columns]
    bias = session.hooks.group_score(seat, candidates.shape, columns)
    if bias is not None:
        score = score + bias
    turn = (columns - session.first) % len(mask)
    return int(columns[np.lexsort((turn, -score))[0]])


def still_seated(session: Session, shape: TaskClass, column: int) -> bool:
    """Tell whether a node takes a task of a class, predicates included."""
    return bool(session.candidates(shape).future[column])
