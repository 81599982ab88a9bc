"""ResourceQuotas by namespace: what a namespace may use and uses, as the API server counts it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shared.api.core import ResourceQuota
from shared.model.quantity import milli

Amounts = Mapping[str, int]
"""Resource as the quota spells it → thousandths."""


class Quota(NamedTuple):
    """The status of one quota."""

    hard: Amounts
    used: Amounts


class Quotas:
    """All quotas of the cluster."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Quota]] = {}

    def put(self, key: str, obj: ResourceQuota) -> None:
        """Take over a quota. Raises `BadQuantity`."""
        quota = Quota(read(obj.status.hard), read(obj.status.used))
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


def read(listed: Mapping[str, str | int | float]) -> Amounts:
    """Return the amounts of a resource list, every name kept. Raises `BadQuantity`."""
    return {name: milli(quantity) for name, quantity in listed.items()}
