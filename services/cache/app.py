"""Composition root of the cache: everything is built here and nowhere else.

```
watcher per kind ──▶ ledger ──▶ publisher ──▶ STATE       (the publisher only while leading)
                                   ▲ read back at the beginning of a term
```
"""

from collections.abc import Callable, Sequence
from typing import Final

from services.cache.adapters.publisher import StatePublisher
from services.cache.adapters.standing import Standing
from services.cache.adapters.watcher import Watcher
from services.cache.fold.ledger import Ledger
from services.cache.kinds import rows
from services.cache.metrics import CacheMetrics
from services.cache.settings import CacheSettings
from shared.bus.leader import Leadership
from shared.bus.nats import NatsBus
from shared.bus.service import BusParts, bus_of
from shared.contracts.streams import Storage, Streams, streams
from shared.contracts.subjects import Subjects
from shared.kube.client import Kube
from shared.kube.service import kube_of
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "cache"
_CONNECTIONS: Final = 64
"""Each kind's watch holds one; more are needed for moments, when all are listed anew."""


async def build(settings: CacheSettings, context: Context) -> Sequence[Part]:
    """Return the parts of the cache."""
    kube = await kube_of(settings, context, max_connections=_CONNECTIONS)
    return compose(settings, context, kube=kube, bus=bus_of(settings, context))


def compose(
    settings: CacheSettings, context: Context, *, kube: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and a way to the API server that are there already."""
    return _Wiring(settings, context, kube, bus).parts()


class _Wiring:
    """Makes the parts; lives only during `build`."""

    def __init__(self, settings: CacheSettings, context: Context, kube: Kube, bus: NatsBus) -> None:
        self._context = context
        self._kube = kube
        self._bus = bus
        self._streams: Streams = streams(
            settings.cluster,
            state_storage=Storage(settings.state_storage),
            state_bytes=settings.state_bytes,
        )
        self._subjects = Subjects(cluster=settings.cluster)
        self._on_bus = BusParts(context, bus, streams=self._streams, cluster=settings.cluster)
        self._rows = rows(settings.scheduler_name)
        self._kinds = [row.kind.token for row in self._rows]
        self._metrics = CacheMetrics(context.metrics)

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        context = self._context
        ledger = Ledger(self._kinds)
        watchers: list[Watcher] = []

        def relist() -> None:
            for watcher in watchers:
                watcher.relist()

        publisher = self._publisher(ledger, relist)
        watchers += [
            Watcher(
                row,
                kube=self._kube,
                ledger=ledger,
                changed=publisher.changed,
                gate=context.readiness.gate(f"watch-{row.kind.token}"),
                metrics=self._metrics,
                rng=context.rng,
                log=context.log,
            )
            for row in self._rows
        ]
        return [
            self._bus,
            self._kube,
            self._on_bus.declarer((self._streams.state, self._streams.lease)),
            self._on_bus.members(),
            *watchers,
            _Leader(publisher, self._on_bus.leadership(self._streams.state.name, guard="state")),
            Standing(
                self._bus,
                stream=self._streams.state.name,
                subjects=self._subjects,
                kinds=self._kinds,
                leads=lambda: publisher.leads,
                complete=lambda: publisher.complete,
                clock=context.clock,
                gate=context.readiness.gate("state"),
            ),
        ]

    def _publisher(self, ledger: Ledger, relist: Callable[[], None]) -> StatePublisher:
        context = self._context
        return StatePublisher(
            self._bus,
            ledger,
            stream=self._streams.state.name,
            subjects=self._subjects,
            kinds=self._kinds,
            relist=relist,
            instance=context.instance,
            clock=context.clock,
            faults=context.faults,
            metrics=self._metrics,
            log=context.log,
        )


class _Leader:
    """Publishes whenever this replica leads (a part of the service)."""

    name: Final = "leader"

    def __init__(self, publisher: StatePublisher, leadership: Leadership) -> None:
        self._publisher = publisher
        self._leadership = leadership

    async def run(self) -> None:
        """Lead whenever possible, for ever."""
        await self._leadership.run(self._publisher.lead)
