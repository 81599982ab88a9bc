"""How many requests each process sends to the API of JetStream, per second of virtual time.

The server answers that API from one queue, leases included; a process that asks it once per object
overloads it as soon as there are many objects. Requests in `NOT_COUNTED` do not use that queue:
they fetch messages, and their number grows with the messages.
"""

from collections import Counter
from collections.abc import Callable

NOT_COUNTED = frozenset({"CONSUMER.MSG", "DIRECT.GET"})


class RequestCounts:
    """Counts requests; `now` is virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._per_second: Counter[tuple[str, int]] = Counter()
        self.operations: Counter[str] = Counter()

    def take(self, instance: str, operation: str) -> None:
        self.operations[operation] += 1
        if operation not in NOT_COUNTED:
            self._per_second[instance, int(self._now())] += 1

    def most_since(self, begun_s: int) -> int:
        """Return the most that one process has asked within one second, from a time on."""
        counts = (count for (_, at), count in self._per_second.items() if at >= begun_s)
        return max(counts, default=0)
