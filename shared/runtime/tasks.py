"""Small structured helpers that asyncio lacks."""

import asyncio

from shared.runtime.clock import Clock


async def sleep_or_event(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Return after `seconds`, or earlier when `event` is set; says whether it is set."""
    async with asyncio.TaskGroup() as group:
        sleeping = group.create_task(clock.sleep(seconds), name="sleep")
        waiting = group.create_task(event.wait(), name="event")
        sleeping.add_done_callback(lambda _: waiting.cancel())
        waiting.add_done_callback(lambda _: sleeping.cancel())
    return event.is_set()
