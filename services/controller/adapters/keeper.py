"""What keepers have in common: keys of one kind in a mailbox, looked at where they are ours.

A keeper serves the objects of one kind among the holdings. It is poked when one of them, or a job
of theirs, changed; it looks at the present state and brings about what is missing.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from services.controller.adapters.ownership import Ownership
from services.controller.adapters.replica import Touched
from shared.api.kinds import Kind
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.mailbox import Mailbox


class Keeper:
    """The handler of a mailbox; `look` does the work for one key that is ours."""

    def __init__(
        self,
        kind: Kind,
        *,
        keys: Iterable[str],
        ownership: Ownership,
        mailbox: Mailbox[str],
        is_synced: Callable[[], bool],
        workers: int,
        log: Logger,
    ) -> None:
        self.kind: Final = kind
        self.name: Final = kind.token
        self._keys = keys
        self._ownership = ownership
        self._mailbox = mailbox
        self._is_synced = is_synced
        self._workers = workers
        self._log = log
        self._look: Callable[[str], Awaitable[None]] | None = None
        ownership.on_change(lambda _: self.touch_all())

    def serve(self, look: Callable[[str], Awaitable[None]]) -> None:
        """Say what a look is; once, before `run`."""
        self._look = look

    async def run(self) -> None:
        """Serve keys for ever."""
        await self._mailbox.run(self.look, self._workers)

    def touch(self, touched: Touched) -> None:
        """Have what some facts touched looked at."""
        for place in touched.others:
            if place.token == self.kind.token:
                self.poke(place.key)

    def touch_all(self) -> None:
        """Have everything looked at that this replica owns."""
        for key in self._keys:
            self.poke(key)

    def poke(self, key: str, after_s: float = 0.0) -> None:
        """Have one key looked at, if it is ours."""
        if self._ownership.owns(self._owned_as(key)):
            self._mailbox.poke_later(key, after_s)

    async def look(self, key: str) -> None:
        """Look at one key. Raises Retryable to be called again later."""
        assert self._look is not None, f"nobody serves {self.kind.kind}"
        owned_as = self._owned_as(key)
        if not self._ownership.owns(owned_as) or not self._is_synced():
            return  # everything is looked at once it is ours, and known
        with self._ownership.looking(owned_as):
            try:
                await self._look(key)
            except Gone:
                return  # the fact of it asks again
            except Conflict as error:
                self._log.info("object_changed_meanwhile", kind=self.kind.kind, key=key)
                raise Retryable(str(error)) from error
            except Rejected as error:
                self._log.warning("object_refused", kind=self.kind.kind, key=key, reason=str(error))
                raise Retryable(str(error)) from error

    def _owned_as(self, key: str) -> str:
        """Return what the partition of a key follows from: a kind's keys are its own."""
        return f"{self.kind.token}/{key}"
