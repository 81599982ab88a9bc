"""Choosing a node for one task of a group whose other tasks matter (BatchNodeOrder of SS08).

Such scores change with each placement and compare the candidates with each other, so `fill` cannot
look ahead: the caller gets one column and asks again.
"""

import numpy as np

from pumice.plugins.points import Points
from services.scheduler.engine.candidates import Candidates
from services.scheduler.engine.hooks import Combined
from services.scheduler.engine.seats import Seat


def seated(
    hooks: Combined, candidates: Candidates, seat: Seat, *, waiting: bool, first: int
) -> list[int]:
    """Return the best column for one task, none when no plugin tells the candidates apart.

    Among equals the search begins at column `first`.
    """
    if not hooks.of(Points.group_score):
        return []
    mask = candidates.future if waiting else candidates.idle
    if seat.within is not None:
        mask = mask & seat.within
    columns = np.flatnonzero(mask)
    if not len(columns):
        return []
    bias = hooks.group_score(seat, candidates.shape, columns)
    if bias is None:
        return []
    rank = candidates.ranked(mask)
    score = candidates.score[columns] + bias
    if rank is not None:
        score = score + rank[columns]
    turn = (columns - first) % len(mask)
    return [int(columns[np.lexsort((turn, -score))[0]])]
