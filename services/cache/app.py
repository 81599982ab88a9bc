"""Composition root of the cache: everything is built here and nowhere else.

```
watcher per kind ──▶ queue ──▶ publisher ──▶ STATE       (the publisher only while leading)
                                   ▲           │
                                published ◀────┘         (only while standing by)
```
"""

from collections.abc import Callable, Sequence
from typing import Final

from pumice.events.tls import TlsClient
from services.cache.adapters.published import PublishedFacts
from services.cache.adapters.publisher import LeaderDuties, StatePublisher
from services.cache.adapters.state_gate import StateGate
from services.cache.adapters.stream_audit import StreamAudit
from services.cache.adapters.watcher import Watcher
from services.cache.fold.publish_queue import PublishQueue
from services.cache.kinds import rows
from services.cache.metrics import CacheMetrics
from services.cache.settings import CacheSettings, lease_times
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.service import BusComponents, bus_of
from shared.contracts.messages import CONTROL, SCHEDULING
from shared.contracts.streams import Streams, streams
from shared.contracts.subjects import Subjects
from shared.election.installation_elector import ClusterLeaseElector, InstallationElector
from shared.election.leader_elector import LeaderElector
from shared.kube.client import Kube
from shared.kube.config import kube_of
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "cache"
_LEASE_CONNECTIONS: Final = 2
_CONNECTIONS: Final = 64
"""Each kind's watch holds one; more are needed for moments, when all are listed again."""


async def build(
    settings: CacheSettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of the cache."""
    kube = await kube_of(settings, context, max_connections=_CONNECTIONS)
    leases = await kube_of(settings, context, max_connections=_LEASE_CONNECTIONS)
    return compose(settings, context, kube=kube, leases=leases, bus=bus_of(settings, context, dial))


def compose(
    settings: CacheSettings, context: Context, *, kube: Kube, leases: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and two ways to the API server that are there already.

    `leases` is for Leases alone, so that no list holds up a renewal.
    """
    return _CacheBuilder(settings, context, kube, leases, bus).parts()


class _CacheBuilder:
    """Makes the parts; lives only during `build`."""

    def __init__(
        self, settings: CacheSettings, context: Context, kube: Kube, leases: Kube, bus: NatsBus
    ) -> None:
        self._settings = settings
        self._context = context
        self._leases = leases
        self._kube = kube
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._subjects = Subjects(cluster=settings.cluster)
        self._seal = Seal(settings.state_key.reveal())
        if not settings.state_key.reveal():
            context.log.warning(
                "jobs_travel_unsealed", hint="give cache and controller a state key"
            )
        self._on_bus = BusComponents(context, bus, streams=self._streams, settings=settings)
        self._rows = rows(settings.scheduler_name, mindcluster=settings.mindcluster_npus)
        self._kinds = [row.kind.token for row in self._rows]
        self._metrics = CacheMetrics(context.metrics)

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        context = self._context
        queue = PublishQueue(self._kinds)
        watchers: list[Watcher] = []

        def revalidate() -> None:
            for watcher in watchers:
                watcher.revalidate()

        leases = self._cluster_leases()
        published = self._published()
        publisher = self._publisher(queue, published, revalidate, leases)
        watchers += self._watchers(queue, publisher)
        event_publisher = self._on_bus.event_publisher()
        return [
            self._bus,
            self._on_bus.leases,
            self._kube,
            self._on_bus.check(self._streams.state, self._streams.lease, self._streams.events),
            self._on_bus.members(),
            *watchers,
            published,
            *([leases] if self._settings.leader_elect else []),
            _Leader(
                publisher,
                self._on_bus.leader_elector(
                    self._streams.state.name, guard="state", event_publisher=event_publisher
                ),
                leases,
                self._on_bus.leases,
            ),
            event_publisher,
            StateGate(
                self._bus,
                stream=self._streams.state.name,
                subjects=self._subjects,
                leads=lambda: publisher.leads,
                complete=lambda: publisher.complete,
                clock=context.clock,
                gate=context.readiness.gate("state"),
            ),
        ]

    def _watchers(self, queue: PublishQueue, publisher: StatePublisher) -> list[Watcher]:
        return [
            Watcher(
                row,
                self._context,
                kube=self._kube,
                queue=queue,
                changed=publisher.changed,
                metrics=self._metrics,
            )
            for row in self._rows
        ]

    def _cluster_leases(self) -> InstallationElector:
        context, settings = self._context, self._settings
        times = lease_times(settings)
        names = {
            SCHEDULING: settings.leader_elect_resource_name,
            CONTROL: settings.leader_elect_controller_resource_name,
        }
        namespace = settings.lock_object_namespace or settings.leader_elect_resource_namespace
        electors = {
            role: ClusterLeaseElector(
                self._leases,
                namespace=namespace,
                name=name,
                times=times,
                instance=context.instance,
                installation=settings.installation,
                clock=context.clock,
                log=context.log,
            )
            for role, name in names.items()
            if settings.leader_elect
        }
        return InstallationElector(
            electors,
            self._leases,
            self._on_bus.leases,
            stream=self._streams.lease.name,
            subjects=self._subjects,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
        )

    def _published(self) -> PublishedFacts:
        context = self._context
        return PublishedFacts(
            self._bus,
            stream=self._streams.state.name,
            subjects=self._subjects,
            kinds=tuple(self._kinds),
            instance=context.instance,
            seal=self._seal,
            clock=context.clock,
            log=context.log,
        )

    def _publisher(
        self,
        queue: PublishQueue,
        published: PublishedFacts,
        revalidate: Callable[[], None],
        leases: InstallationElector,
    ) -> StatePublisher:
        return StatePublisher(
            self._bus,
            queue,
            self._context,
            subjects=self._subjects,
            duties=LeaderDuties(
                published=published,
                revalidate=revalidate,
                leases=leases,
                audit=StreamAudit(
                    lambda: self._on_bus.state(self._kinds, seal=self._seal),
                    self._on_bus.audit(self._kinds),
                    clock=self._context.clock,
                ),
            ),
            seal=self._seal,
            metrics=self._metrics,
        )


class _Leader:
    """Publishes whenever this replica leads (a part of the service)."""

    name: Final = "leader"

    def __init__(
        self,
        publisher: StatePublisher,
        elector: LeaderElector,
        leases: InstallationElector,
        bus: NatsBus,
    ) -> None:
        self._publisher = publisher
        self._elector = elector
        self._cluster_leases = leases
        self._bus = bus

    async def run(self) -> None:
        """Lead whenever possible until cancelled; at the end release the cluster's Leases."""
        with self._bus.final_messages():
            try:
                await self._elector.run(self._publisher.lead)
            finally:
                await self._cluster_leases.end()
