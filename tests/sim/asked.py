"""How many requests each process sends to the API of JetStream, per second of virtual time.

That API is one queue for everybody, leases included; a process that asks it once per object chokes
it as soon as there are many. Asking a consumer for messages goes another way in the server, and
grows with the messages.
"""

from collections import Counter
from collections.abc import Callable

OTHER_WAY = frozenset({"CONSUMER.MSG", "DIRECT.GET"})


class Asked:
    """Counts requests; `now` is virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._per_second: Counter[tuple[str, int]] = Counter()
        self.operations: Counter[str] = Counter()

    def take(self, instance: str, operation: str) -> None:
        self.operations[operation] += 1
        if operation not in OTHER_WAY:
            self._per_second[instance, int(self._now())] += 1

    def most_since(self, begun_s: int) -> int:
        """Return the most that one process has asked within one second, from a time on."""
        counts = (count for (_, at), count in self._per_second.items() if at >= begun_s)
        return max(counts, default=0)
