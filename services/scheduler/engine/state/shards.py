"""NodeShards as a scheduler sees them, and which nodes of its own it may use (CA12).

A NodeShard of the name that `--scheduler-sharding-name` gives says which nodes a scheduler has
where several share a cluster. Hard: it ignores other nodes; without such an object it has none.
Soft: it uses other nodes when its own have no room.

A scheduler uses a node only while its own NodeShard shows the node in use and no other one does. It
gives a node back once nothing is under way there. The API server orders the writes of all
NodeShards, and each scheduler reads them in that order: of two schedulers that claim one node, the
later one has seen the claim of the earlier one before it sees its own.

Where schedulers act under Leases, the nodes of one whose Lease has run out may be given to others.
So a claim holds in one term of the Lease only: until the NodeShard names the present
one, what it shows may be from before, and no node of it is used.
"""

import enum
from collections.abc import Collection, Iterator

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from pumice.plugins import BoolArray, CodeArray, NodeRows, Reason, TaskClass
from pumice.plugins.contributions import Predicate
from shared.api import keys
from shared.api.scheduling import NodeShard


class ShardMode(enum.StrEnum):
    """Whether a scheduler may leave its shard (K12)."""

    NONE = "none"
    HARD = "hard"
    SOFT = "soft"


class Sharding(Struct, frozen=True, kw_only=True):
    """The shard of a scheduler, and whether it may leave it."""

    mode: ShardMode = ShardMode.NONE
    name: str = "volcano"
    """Name of the NodeShard."""


UNSHARDED = Sharding()
_REASON = Reason("node isn't in scheduler node shard", resolvable=False)


def outside(mask: BoolArray) -> Predicate:
    """Return a predicate that refuses the nodes that are not in a mask over all columns."""

    def refuse(_: TaskClass, rows: NodeRows) -> CodeArray:
        return (~rows.pick(mask)).astype(np.uint8)

    return Predicate(refuse, (_REASON,), static=False, identity="shard")


_NONE: frozenset[str] = frozenset()


class ShardStatus(Struct, frozen=True, kw_only=True):
    """Status of a NodeShard, without its time."""

    in_use: frozenset[str] = _NONE
    to_add: frozenset[str] = _NONE
    to_remove: frozenset[str] = _NONE


class Shard(Struct, frozen=True, kw_only=True):
    """One NodeShard."""

    uid: str
    rv: str
    desired: frozenset[str]
    shown: ShardStatus
    leadership_term: str
    """In which its scheduler claims nodes."""


class NodeShards:
    """All NodeShards by name, and the last desired status of each."""

    def __init__(self) -> None:
        self.leadership_term: str | None = None
        """In which this scheduler acts, "" without a Lease; None: whichever the object names."""
        self._shards: dict[str, Shard] = {}
        self._desired: dict[str, ShardStatus] = {}
        """Published and not shown yet."""
        self.given_back: dict[str, frozenset[str]] = {}
        """Nodes that the scheduler has asked to be shown as not in use, until they are.

        The write may have happened already: the node is another scheduler's, although neither is
        seen yet, and even if it is desired again meanwhile.
        """

    def put(self, name: str, found: NodeShard) -> None:
        """Store a NodeShard; its status is decided again."""
        status = found.status
        shown = ShardStatus(
            in_use=frozenset(status.nodes_in_use),
            to_add=frozenset(status.nodes_to_add),
            to_remove=frozenset(status.nodes_to_remove),
        )
        self._shards[name] = Shard(
            uid=found.metadata.uid,
            rv=found.metadata.resource_version,
            desired=frozenset(found.spec.nodes_desired),
            shown=shown,
            leadership_term=found.metadata.annotations.get(keys.LEADERSHIP_TERM, ""),
        )
        self._desired.pop(name, None)
        if name in self.given_back:
            self.given_back[name] &= shown.in_use

    def remove(self, name: str) -> None:
        """Drop a NodeShard."""
        self._shards.pop(name, None)
        self._desired.pop(name, None)

    def get(self, name: str) -> Shard | None:
        """Return a NodeShard."""
        return self._shards.get(name)

    def usable(self, name: str) -> frozenset[str]:
        """Return the nodes that the scheduler claims and no other scheduler does."""
        own = self._shards.get(name)
        if own is None or not self._is_of_now(own):
            return _NONE
        remaining = (own.desired & own.shown.in_use) - self.given_back.get(name, _NONE)
        return remaining.difference(*self._claims_of_others(name))

    def claimed(self, name: str) -> frozenset[str]:
        """Return the nodes that the scheduler should claim: those that no other has in use.

        Where two claim one node, the first name keeps its claim and the other gives way.
        """
        own = self._shards.get(name)
        if own is None:
            return _NONE
        found = own.desired
        for other, shard in self._shards.items():
            if other != name:
                in_use = shard.shown.in_use
                found -= in_use if other < name else in_use - own.shown.in_use
        return found

    def status(self, name: str, busy: Collection[str]) -> ShardStatus | None:
        """Return the status to write, None if it is shown or already published.

        `busy` nodes have binds or evictions that the API server does not show yet: they stay in
        use.
        """
        own = self._shards.get(name)
        if own is None:
            return None
        remaining = self.claimed(name) - self.given_back.get(name, _NONE)
        in_use = remaining | (own.shown.in_use & frozenset(busy))
        found = ShardStatus(
            in_use=in_use, to_add=own.desired - in_use, to_remove=in_use - own.desired
        )
        is_shown = found == own.shown and self._is_of_now(own)
        return None if is_shown or found == self._desired.get(name) else found

    def give_back(self, name: str, status: ShardStatus) -> None:
        """Stop using nodes that the next published status releases."""
        own = self._shards.get(name)
        if own is not None:
            before = self.given_back.get(name, _NONE)
            self.given_back[name] = before | (own.shown.in_use - status.in_use)

    def is_outstanding(self, name: str, uid: str, status: ShardStatus) -> bool:
        """Return whether a status that was published is still to be written."""
        own = self._shards.get(name)
        return own is not None and own.uid == uid and self._desired.get(name) == status

    def assume_status(self, name: str, status: ShardStatus) -> None:
        """Use a status that was published until the object shows it."""
        if name in self._shards:
            self._desired[name] = status

    def forget_desired(self) -> None:
        """Use the statuses that objects show."""
        self._desired.clear()

    def unsigned(self, name: str) -> str | UnsetType:
        """Return the present leadership term if the NodeShard does not name it."""
        own = self._shards.get(name)
        if own is None or self.leadership_term is None or self._is_of_now(own):
            return UNSET
        return self.leadership_term

    def _is_of_now(self, own: Shard) -> bool:
        return self.leadership_term in (None, own.leadership_term)

    def _claims_of_others(self, name: str) -> Iterator[frozenset[str]]:
        return (one.shown.in_use for other, one in self._shards.items() if other != name)
