"""Which events came before: a stream of events that is read again yields them once more."""

from collections import OrderedDict

from pumice.events import CloudEvent


class SeenEvents:
    """The latest events by source and id: after a reset of their stream they come again."""

    def __init__(self, most: int) -> None:
        """Remember `most` events; an older one counts as new when it comes again."""
        self._most = most
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, event: CloudEvent) -> bool:
        """Tell whether an event comes for the first time, and remember it."""
        key = (event.source, event.id)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return True
