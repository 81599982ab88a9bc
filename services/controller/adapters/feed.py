"""Feeds the informers from the bus: facts of STATE, and admissions of EVENTS.

First step of the flow "Job event → pods created".

`Feed` folds facts, and says when the stores are complete. `AdmissionFeed` receives the PodGroups
that scheduling has admitted before their status shows it (ADR 35). So pods are created earlier, and
the API server saves a write. Nothing depends on it: if an event is lost, or is about another
version of the PodGroup, the status follows soon.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from typing_extensions import override

from pumice.events import EventsError, GangAdmitted, decode
from pumice.events.types import Event
from services.controller.adapters.informers import Informers
from services.controller.adapters.store import Identity, StoreKey
from services.controller.metrics import ControllerMetrics
from shared.bus.nats import NatsBus
from shared.bus.state import Stale, StateFollower, StateItem, Synced
from shared.bus.values import Reset
from shared.contracts.messages import Fact, Marker, Op
from shared.model.numbers import whole
from shared.runtime.env import Env
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger

_STAGE: Final = "fold"


class InformerFeed:
    """Follows STATE; a part of the service, whose `synced` gates every reconciliation."""

    name: Final = "state"

    def __init__(
        self,
        states: StateFollower,
        informers: Informers,
        *,
        on_marker: Callable[[Marker], None],
        on_synced: Callable[[], None],
        gate: ReadinessGate,
        env: Env,
        metrics: ControllerMetrics,
    ) -> None:
        self._states = states
        self._informers = informers
        self._on_marker = on_marker
        self._on_synced = on_synced
        self._gate = gate
        self._quarantine = env.quarantine
        self._metrics = metrics
        self._log = env.log
        self._synced = False

    @property
    def synced(self) -> bool:
        """Whether the stores hold the whole cluster, at most some seconds old."""
        return self._synced

    async def run(self) -> None:
        """Follow STATE until cancelled."""
        async with aclosing(self._states.items()) as items:
            async for item in items:
                self._handle(item)

    def _handle(self, item: StateItem) -> None:
        match item:
            case list(facts):
                for fact in facts:
                    self._fold(fact)
            case Synced(marker=marker):
                self._on_marker(marker)
                self._informers.passed(marker.bookmarks)
                self._informers.complete()
                if not self._synced:
                    self._synced = True
                    self._gate.set(ok=True)
                    self._log.info("state_synced", jobs=len(self._informers.jobs))
                    self._on_synced()
                self._states.compare(
                    self._informers.local_uids,
                    lambda: self._informers.unpublished(marker.bookmarks),
                )
            case Stale(reason=reason):
                self._unsynced(reason)
            case Reset(reason=reason):
                self._informers.begin_resync()
                self._quarantine.begin_anew(stage=_STAGE)
                self._unsynced(reason)

    def _fold(self, fact: Fact) -> None:
        with self._quarantine.isolate(fact.kind, fact.key, stage=_STAGE, uid=fact.uid) as isolated:
            self._informers.fold([fact])
        if isolated.error is not None:
            self._informers.quarantined[StoreKey(fact.kind, fact.key)] = fact.uid
            self._metrics.unreadable.labels(fact.kind).inc()
        elif fact.op is Op.DELETE:
            self._quarantine.gone(fact.kind, fact.key)

    def _unsynced(self, reason: str) -> None:
        if self._synced:
            self._log.warning("state_not_synced", reason=reason)
        self._synced = False
        self._gate.set(ok=False, reason=reason)


class EventListener:
    """Follows one subject of EVENTS; a part of the service that does not count for readiness.

    It needs no consumer of EVENTS, because subscribers may use up the limit of consumers (ADR 45).
    """

    def __init__(self, bus: NatsBus, *, subject: str, log: Logger) -> None:
        self._bus = bus
        self._subject = subject
        self._log = log

    async def run(self) -> None:
        """Follow the events until cancelled."""
        async with aclosing(self._bus.listen(self._subject)) as payloads:
            async for payload in payloads:
                try:
                    data = decode(payload).data
                except EventsError as error:
                    self._log.warning("event_unreadable", reason=str(error))
                else:
                    self._receive(data)

    def _receive(self, data: Event) -> None:
        raise NotImplementedError


class AdmissionFeed(EventListener):
    """Passes admitted PodGroups to the informers."""

    name: Final = "admissions"

    def __init__(self, bus: NatsBus, informers: Informers, *, subject: str, log: Logger) -> None:
        super().__init__(bus, subject=subject, log=log)
        self._informers = informers

    @override
    def _receive(self, data: Event) -> None:
        if not isinstance(data, GangAdmitted):
            return
        version = whole(data.resource_version)
        if version is not None:
            self._informers.admitted(Identity(data.gang, data.uid, version))
