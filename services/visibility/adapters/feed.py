"""Follows the events of the bus into the feed of the live page; a part of the service."""

from contextlib import aclosing
from typing import Final

from pumice.events.envelope import decode_any
from services.visibility.adapters.live import Live
from services.visibility.adapters.seen import SeenEvents
from services.visibility.answers.happenings import entry_of
from shared.api.time import format_seconds
from shared.bus.port import Batch, FromTime, Message, Reading
from shared.contracts.streams import StreamSpec
from shared.runtime.clock import Clock

_PAST_S: Final = 900.0
"""A page that is opened shows what happened so lately."""

_SEEN: Final = 4096


class EventFeed:
    """Tells each event to the readers of the feed; one that cannot be read is left out."""

    name: Final = "event-feed"

    def __init__(self, bus: Reading, stream: StreamSpec, live: Live, *, clock: Clock) -> None:
        self._bus = bus
        self._stream = stream
        self._live = live
        self._clock = clock
        self._seen = SeenEvents(_SEEN)

    async def run(self) -> None:
        """Follow for ever."""
        start = FromTime(self._clock.now() - _PAST_S)
        follow = self._bus.follow(self._stream.name, list(self._stream.subjects), start=start)
        async with aclosing(follow) as items:
            async for item in items:
                if isinstance(item, Batch):
                    for message in item.messages:
                        self._take(message)

    def _take(self, message: Message) -> None:
        event = decode_any(message.payload)
        if not self._seen.is_new(event):
            return
        entry = entry_of(event.data, format_seconds(event.time.timestamp()))
        if entry is not None:
            self._live.happened(entry)
