"""Removes duplicate events: a stream that is read again yields events once more."""

from collections import OrderedDict

from pumice.events import CloudEvent


class RecentEvents:
    """The latest events by source and id: after a reset of their stream they come again."""

    def __init__(self, max_events: int) -> None:
        """Remember `max_events` events; an older one counts as new when it comes again."""
        self._max_events = max_events
        self._ids: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, event: CloudEvent) -> bool:
        """Return whether an event comes for the first time, and remember it."""
        key = (event.source, event.id)
        if key in self._ids:
            return False
        self._ids[key] = None
        if len(self._ids) > self._max_events:
            self._ids.popitem(last=False)
        return True
