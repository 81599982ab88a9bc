"""The leader's audit compares what the stream holds with what this process has published.

Every few minutes the leader reads STATE from its beginning, as any reader does, and compares keys
and uids with those that it believes to be published. If they differ, its term ends: the next one
begins with what the stream says (`published`), and publishes the differences.
"""

from collections.abc import Callable
from contextlib import aclosing

from services.cache.fold.publish_queue import PublishQueue
from shared.bus.audit import Audit, LocalUids
from shared.bus.errors import WrongSequence
from shared.bus.state import StateFollower, Synced
from shared.runtime.clock import Clock


class StreamAudit:
    """Reads the stream back periodically, and compares it."""

    def __init__(self, follow: Callable[[], StateFollower], audit: Audit, *, clock: Clock) -> None:
        """`follow` returns a new reader of the stream."""
        self._follow = follow
        self._audit = audit
        self._clock = clock

    async def run(self, queue: PublishQueue) -> None:
        """Compare for as long as the term lasts. Raises WrongSequence when the stream differs."""
        self._audit.forget()
        while (left_s := self._audit.left_s()) is not None:
            await self._clock.sleep(left_s)
            read = await self._read()
            reason = self._audit.compare(queue.published_uids(), read, unfolded=queue.unconfirmed())
            if reason:
                raise WrongSequence(reason)

    async def _read(self) -> LocalUids:
        """Return what the stream holds, as of a marker that comes after this call."""
        follower = self._follow()
        assert follower.audit is not None, "it follows kinds"
        async with aclosing(follower.items()) as items:
            async for item in items:
                if isinstance(item, Synced):
                    break
        return follower.audit.read_so_far(follower.kinds)
