"""Choosing a node for one task of a group whose other tasks matter (BatchNodeOrder of SS08).

Such scores change with each placement and compare the candidates with each other, so `fill` cannot
look ahead: the caller gets one column and asks again.
"""

from typing import TYPE_CHECKING

import numpy as np

from services.scheduler.engine.candidates import Candidates
from services.scheduler.engine.subjobs import Seat

if TYPE_CHECKING:
    from services.scheduler.engine.session import Session


def seated(session: "Session", candidates: Candidates, seat: Seat, *, waiting: bool) -> list[int]:
    """Return the best column for one task, none when no plugin tells the candidates apart."""
    if not session.hooks.group_score.tiers:
        return []
    mask = candidates.future if waiting else candidates.idle
    if seat.within is not None:
        mask = mask & seat.within
    columns = np.flatnonzero(mask)
    if not len(columns):
        return []
    bias = session.hooks.group_bias(seat, candidates.shape, columns)
    if bias is None:
        return []
    rank = candidates.ranked(mask)
    score = candidates.score[columns] + bias
    if rank is not None:
        score = score + rank[columns]
    turn = (columns - session.first) % len(mask)
    return [int(columns[np.lexsort((turn, -score))[0]])]
