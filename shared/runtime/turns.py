"""A queue that serves namespaces in turn, and the keys of each in order of arrival.

So a namespace with many keys holds up another one by a single key at a time, however many it has.
Keys that are not of the form `namespace/name` share one turn.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Distinct waiting keys, in the order in which they are served."""

    def __init__(self) -> None:
        self._keys: set[K] = set()
        self._by_namespace: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        """Keys per namespace that has any; the namespace whose turn it is comes first."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def push(self, key: K) -> None:
        """Add a key that does not wait yet behind those of its namespace."""
        self._keys.add(key)
        self._by_namespace.setdefault(_namespace(key), OrderedDict())[key] = None

    def pop(self) -> K:
        """Take the first key of the namespace whose turn it is. Raises KeyError if none waits."""
        namespace, waiting = next(iter(self._by_namespace.items()), ("", None))
        if waiting is None:
            raise KeyError("no key waits")
        key, _ = waiting.popitem(last=False)
        self._keys.discard(key)
        if waiting:
            self._by_namespace.move_to_end(namespace)
        else:
            del self._by_namespace[namespace]
        return key


def _namespace(key: Hashable) -> str:
    return str(key).rpartition("/")[0]
