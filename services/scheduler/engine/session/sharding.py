"""The nodes of this scheduler's shard where several share a cluster (CA12).

A NodeShard of the name that `--scheduler-sharding-name` gives says which they are. Hard: others do
not exist for it; without such an object it has none. Soft: it takes others when its own have no
room.
"""

import enum

import numpy as np
from msgspec import Struct

from pumice.plugins import BoolArray, CodeArray, NodeRows, Reason, TaskClass
from pumice.plugins.contributions import Predicate


class Mode(enum.StrEnum):
    """Whether a scheduler may leave its shard (K12)."""

    NONE = "none"
    HARD = "hard"
    SOFT = "soft"


class Sharding(Struct, frozen=True, kw_only=True):
    """Whether a scheduler keeps to a shard, and to which."""

    mode: Mode = Mode.NONE
    name: str = "volcano"
    """Name of the NodeShard."""


UNSHARDED = Sharding()
_REASON = Reason("node isn't in scheduler node shard", resolvable=False)


def outside(mask: BoolArray) -> Predicate:
    """Return a predicate that refuses the nodes that are not in a mask over all columns."""

    def refuse(_: TaskClass, rows: NodeRows) -> CodeArray:
        return (~rows.pick(mask)).astype(np.uint8)

    return Predicate(refuse, (_REASON,), static=False, identity="shard")
