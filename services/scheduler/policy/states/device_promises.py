"""Allocations that the statuses of their claims do not show yet, of binds that were published.

A promise belongs to one claim, by its uid, and to the pods of the published binds. A recreated
claim has none, and a failed bind does not affect later sessions.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from pumice.plugins import Task
from services.scheduler.policy.states.claim_users import ClaimUsers
from services.scheduler.policy.states.device_holders import ids_of
from shared.api.resource import AllocationResult, ResourceClaim
from shared.contracts.messages import Bind


class PromisedAllocation(NamedTuple):
    """An allocation that the status of its claim does not show yet."""

    node: str
    allocation: AllocationResult
    claim_uid: str = ""
    pods: tuple[str, ...] = ()
    """Uids of the pods with whose binds it was published; none while it is of this session."""


class Promises:
    """Allocations of published binds, by claim."""

    def __init__(self, users: ClaimUsers) -> None:
        self._users = users
        self.by_claim: dict[str, PromisedAllocation] = {}

    def add(self, bind: Bind, claims: Mapping[str, ResourceClaim]) -> None:
        """Keep the allocations of a bind, except of recreated claims and shown ones."""
        for use in bind.devices:
            claim = claims.get(use.claim)
            outdated = (
                claim is not None
                and bool(use.uid)
                and (claim.metadata.uid != use.uid or claim.status.allocation is not None)
            )
            if use.allocated or outdated:
                continue
            allocation = msgspec.json.decode(use.allocation, type=AllocationResult)
            promised = PromisedAllocation(bind.node, allocation, use.uid)
            before = self.by_claim.get(use.claim)
            same = before is not None and before._replace(pods=()) == promised
            others = before.pods if before is not None and same else ()
            pods = tuple(dict.fromkeys((*others, bind.uid)))
            self.by_claim[use.claim] = promised._replace(pods=pods)

    def kept(
        self, key: str, claim: ResourceClaim | None
    ) -> tuple[PromisedAllocation, set[str]] | None:
        """Return the promised allocation of a claim and its pods on the node, or None."""
        promised = self.by_claim.get(key)
        uid = claim.metadata.uid if claim is not None else ""
        if promised is None or promised.claim_uid not in {"", uid}:
            return None
        pods = self._pods_with(key, promised)
        return (promised, pods) if pods else None

    def _pods_with(self, key: str, promised: PromisedAllocation) -> set[str]:
        """Return the tasks that are on the node of their bind."""
        nodes = self._users.nodes(key)
        return {uid for uid in promised.pods or nodes if nodes.get(uid) == promised.node}

    def is_shown(self, key: str, allocation: AllocationResult | None) -> bool:
        """Tell whether the allocation of a claim takes the place of one that was promised.

        One for extended resources may be left from a failed bind; the binder replaces it then.
        """
        promised = self.by_claim.get(key)
        if allocation is None or promised is None or promised.claim_uid:
            return allocation is not None
        return ids_of(promised.allocation) == ids_of(allocation)

    def drop(self, key: str, failed: AbstractSet[str]) -> None:
        """Drop the promises of these pods' binds, unless other pods share them."""
        promised = self.by_claim.get(key)
        if promised is None or not failed & set(promised.pods):
            return
        left = tuple(uid for uid in promised.pods if uid not in failed)
        if left:
            self.by_claim[key] = promised._replace(pods=left)
        else:
            del self.by_claim[key]

    def review(self, tasks: Mapping[str, Task]) -> None:
        """Drop promises of failed binds: their pods are known and not on the node."""
        for key, promised in list(self.by_claim.items()):
            known = tasks.keys() & set(promised.pods)
            self.drop(key, known - self._pods_with(key, promised))
