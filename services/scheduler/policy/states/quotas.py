"""ResourceQuotas by namespace: what a namespace may use and uses, as the API server counts it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from typing_extensions import override

from services.scheduler.engine.resources.dimensions import as_listed
from services.scheduler.engine.tasks.policy_state import Fold, PolicyState
from shared.api import kinds
from shared.api.core import ResourceQuota

Amounts = Mapping[str, int]
"""Resource as the quota spells it → thousandths."""


class Quota(NamedTuple):
    """The status of one quota."""

    hard: Amounts
    used: Amounts


class Quotas(PolicyState):
    """All quotas of the cluster."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Quota]] = {}

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read ResourceQuotas."""
        return {kinds.RESOURCEQUOTA.token: Fold(self.put, self.remove)}

    def put(self, key: str, obj: ResourceQuota) -> None:
        """Take over a quota. Raises `BadQuantity`."""
        quota = Quota(as_listed(obj.status.hard), as_listed(obj.status.used))
        self._by_namespace.setdefault(key.partition("/")[0], {})[key] = quota

    def remove(self, key: str) -> None:
        """Forget a quota."""
        namespace = key.partition("/")[0]
        quotas = self._by_namespace.get(namespace, {})
        quotas.pop(key, None)
        if not quotas:
            self._by_namespace.pop(namespace, None)

    def of(self, namespace: str) -> Iterator[Quota]:
        """Return the quotas of a namespace, by name."""
        return (quota for _, quota in sorted(self._by_namespace.get(namespace, {}).items()))
