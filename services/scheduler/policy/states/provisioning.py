"""ProvisioningRequests of gangs that wait for nodes, as the autoscaler reports them."""

from collections.abc import Mapping

from typing_extensions import override

from pumice.plugins import Fold, PolicyState
from shared.api import kinds
from shared.api.autoscaling import ProvisioningRequest, attempt_of


class ProvisioningRequests(PolicyState):
    """The requests by the PodGroups that they are made for."""

    def __init__(self) -> None:
        self._by_key: dict[str, ProvisioningRequest] = {}
        self._by_group: dict[str, dict[str, ProvisioningRequest]] = {}
        """Uid of a PodGroup → its requests by key."""

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read ProvisioningRequests."""
        return {kinds.PROVISIONINGREQUEST.token: Fold(self.put, self.remove)}

    def put(self, key: str, obj: ProvisioningRequest) -> None:
        """Store a request that has an owner."""
        self.remove(key)
        owner = obj.metadata.controller
        if owner is not None:
            self._by_key[key] = obj
            self._by_group.setdefault(owner.uid, {})[key] = obj

    def remove(self, key: str) -> None:
        """Forget a request."""
        known = self._by_key.pop(key, None)
        owner = known.metadata.controller if known is not None else None
        if owner is not None:
            del self._by_group[owner.uid][key]
            if not self._by_group[owner.uid]:
                del self._by_group[owner.uid]

    def of(self, group_uid: str) -> ProvisioningRequest | None:
        """Return the last request of a PodGroup."""
        return max(self._by_group.get(group_uid, {}).values(), key=attempt_of, default=None)
