"""STATE into the replica: folds facts, tells who deserves a look."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from services.controller.adapters.replica import Replica
from services.controller.adapters.touched import Touched
from services.controller.metrics import ControllerMetrics
from shared.api.errors import describe
from shared.bus.port import Reset
from shared.bus.state import Facts, Stale, StateItem, Synced
from shared.contracts.messages import Fact
from shared.runtime.health import Gate
from shared.runtime.logs import Logger


class States(Protocol):
    """What the feed needs of `shared.bus.state.StateFollower`."""

    def items(self) -> AsyncGenerator[StateItem, None]:
        """Yield for ever."""
        ...

    def why_not_synced(self) -> str:
        """Return what is waited for, or ""."""
        ...


class Feed:
    """A part of the service; `synced` gates every look."""

    name: Final = "state"

    def __init__(
        self,
        states: States,
        replica: Replica,
        *,
        touch: Callable[[Touched], None],
        on_synced: Callable[[], None],
        gate: Gate,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._states = states
        self._replica = replica
        self._touch = touch
        self._on_synced = on_synced
        self._gate = gate
        self._metrics = metrics
        self._log = log
        self._synced = False

    @property
    def synced(self) -> bool:
        """Whether the replica is the whole world as of a moment ago."""
        return self._synced

    async def run(self) -> None:
        """Follow STATE for ever."""
        async with aclosing(self._states.items()) as items:
            async for item in items:
                self._take(item)

    def _take(self, item: StateItem) -> None:
        match item:
            case Facts(facts=facts):
                for fact in facts:
                    self._fold(fact)
            case Synced():
                self._touch(self._replica.complete())
                if not self._synced:
                    self._synced = True
                    self._gate.set(ok=True)
                    self._log.info("state_synced", jobs=len(self._replica.jobs))
                    self._on_synced()
            case Stale(reason=reason):
                self._unsynced(reason)
            case Reset(reason=reason):
                self._replica.lost_touch()
                self._unsynced(reason)

    def _fold(self, fact: Fact) -> None:
        try:
            self._touch(self._replica.fold([fact]))
        except msgspec.DecodeError as error:
            self._metrics.unreadable.labels(fact.kind).inc()
            self._log.error("fact_not_folded", kind=fact.kind, key=fact.key, reason=describe(error))

    def _unsynced(self, reason: str) -> None:
        if self._synced:
            self._log.warning("state_not_synced", reason=reason)
        self._synced = False
        self._gate.set(ok=False, reason=reason)
