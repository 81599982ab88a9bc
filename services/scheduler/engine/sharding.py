"""The nodes of this scheduler's shard where several share a cluster (`--scheduler-sharding-mode`).

Hard: others do not exist for it. Soft: it takes them when its own have no room.
"""

import numpy as np

from pumice.plugins import BoolArray, CodeArray, Reason
from services.scheduler.engine.hooks import Predicate
from services.scheduler.engine.rows import Rows
from services.scheduler.engine.shapes import TaskClass

_REASON = Reason("node isn't in scheduler node shard", resolvable=False)


def outside(mask: BoolArray) -> Predicate:
    """Return a predicate that refuses the nodes that are not in a mask over all columns."""

    def refuse(_: TaskClass, rows: Rows) -> CodeArray:
        return (~rows.pick(mask)).astype(np.uint8)

    return Predicate(refuse, (_REASON,), static=False, identity="shard")
