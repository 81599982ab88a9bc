"""What keepers have in common: keys of one kind in a mailbox, looked at where they are ours.

A keeper is poked when something that its keys are about has changed; it looks at the present state
and brings about what is missing. Most serve the objects of one kind among the holdings
(`KindKeeper`), and are poked when one of them, or a job of theirs, changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import msgspec
from typing_extensions import override

from services.controller.adapters.ownership import Ownership
from services.controller.adapters.touched import Touched
from shared.api.kinds import Kind
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.mailbox import Mailbox


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What each keeper is given."""

    ownership: Ownership
    mailbox: Mailbox[str]
    is_synced: Callable[[], bool]
    workers: int
    log: Logger


class Keeper(ABC):
    """A part of the service and the handler of its mailbox."""

    def __init__(self, name: str, held: Iterable[str], frame: Frame) -> None:
        """Serve the keys that `held` yields, as often as it is asked."""
        self.name = name
        self._held = held
        self._frame = frame
        frame.ownership.on_change(lambda _: self.touch_all())

    @abstractmethod
    async def bring_about(self, key: str) -> None:
        """Do what one object needs. Raises any of the errors of a seam to be called again."""

    async def run(self) -> None:
        """Serve keys for ever."""
        await self._frame.mailbox.run(self.look, self._frame.workers)

    @abstractmethod
    def touch(self, touched: Touched) -> None:
        """Have what some facts touched looked at."""

    def touch_all(self) -> None:
        """Have everything looked at that this replica owns."""
        for key in self._held:
            self.poke(key)

    def poke(self, key: str, after_s: float = 0.0) -> None:
        """Have one key looked at, if it is ours."""
        if self._frame.ownership.owns(self.owned_as(key)):
            self._frame.mailbox.poke_later(key, after_s)

    async def look(self, key: str) -> None:
        """Look at one key. Raises Retryable to be called again later."""
        owned_as, frame = self.owned_as(key), self._frame
        if not frame.ownership.owns(owned_as) or not frame.is_synced():
            return  # everything is looked at once it is ours, and known
        with frame.ownership.looking(owned_as):
            try:
                await self.bring_about(key)
            except Gone:
                return  # the fact of it asks again
            except Conflict as error:
                frame.log.info("object_changed_meanwhile", keeper=self.name, key=key)
                raise Retryable(str(error)) from error
            except Rejected as error:
                frame.log.warning("object_refused", keeper=self.name, key=key, reason=str(error))
                raise Retryable(str(error)) from error

    def owned_as(self, key: str) -> str:
        """Return what the partition of a key follows from: jobs and groups from their keys."""
        return key


class KindKeeper(Keeper):
    """Keeps the objects of one kind among the holdings."""

    def __init__(self, kind: Kind, held: Iterable[str], frame: Frame) -> None:
        """Serve the objects of `kind`; `held` yields their keys."""
        super().__init__(kind.token, held, frame)

    @override
    def touch(self, touched: Touched) -> None:
        for place in touched.others:
            if place.token == self.name:
                self.poke(place.key)

    @override
    def owned_as(self, key: str) -> str:
        """Return the key with its kind before it: a kind's keys are its own."""
        return f"{self.name}/{key}"
