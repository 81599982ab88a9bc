"""STATE into the informers: folds facts, and says when the stores are complete."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol

from services.controller.adapters.informers import Informers
from services.controller.metrics import ControllerMetrics
from shared.bus.port import Reset
from shared.bus.state import Facts, Stale, StateItem, Synced
from shared.contracts.messages import Fact, Marker, Op
from shared.runtime.contain import Containment
from shared.runtime.health import Gate
from shared.runtime.logs import Logger

_STAGE: Final = "fold"


class States(Protocol):
    """The part of `shared.bus.state.StateFollower` that the feed uses."""

    def items(self) -> AsyncGenerator[StateItem, None]:
        """Yield for ever."""
        ...

    def why_not_synced(self) -> str:
        """Return what is waited for, or ""."""
        ...


class Feed:
    """A part of the service; `synced` gates every reconciliation."""

    name: Final = "state"

    def __init__(
        self,
        states: States,
        informers: Informers,
        *,
        hear: Callable[[Marker], None],
        on_synced: Callable[[], None],
        gate: Gate,
        contain: Containment,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._states = states
        self._informers = informers
        self._hear = hear
        self._on_synced = on_synced
        self._gate = gate
        self._contain = contain
        self._metrics = metrics
        self._log = log
        self._synced = False

    @property
    def synced(self) -> bool:
        """Whether the stores are the whole cluster as of a moment ago."""
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
            case Synced(marker=marker):
                self._hear(marker)
                self._informers.complete()
                if not self._synced:
                    self._synced = True
                    self._gate.set(ok=True)
                    self._log.info("state_synced", jobs=len(self._informers.jobs))
                    self._on_synced()
            case Stale(reason=reason):
                self._unsynced(reason)
            case Reset(reason=reason):
                self._informers.lost_touch()
                self._contain.begin_anew(stage=_STAGE)
                self._unsynced(reason)

    def _fold(self, fact: Fact) -> None:
        with self._contain.isolate(fact.kind, fact.key, stage=_STAGE, uid=fact.uid) as isolated:
            self._informers.fold([fact])
        if isolated.error is not None:
            self._metrics.unreadable.labels(fact.kind).inc()
        elif fact.op is Op.DELETE:
            self._contain.gone(fact.kind, fact.key)

    def _unsynced(self, reason: str) -> None:
        if self._synced:
            self._log.warning("state_not_synced", reason=reason)
        self._synced = False
        self._gate.set(ok=False, reason=reason)
