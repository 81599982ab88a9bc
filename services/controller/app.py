"""Puts the controller together: the one place where its parts are made and wired."""

from collections.abc import Sequence
from typing import Final

from pumice.events.tls import TlsClient
from services.controller.adapters.budget_warnings import BudgetWarnings
from services.controller.adapters.feed import AdmissionFeed, InformerFeed
from services.controller.adapters.informers import Informers
from services.controller.adapters.ownership import OwnedPartitions, PartitionOwnership
from services.controller.adapters.reconciler import ControllerContext, Reconciler
from services.controller.adapters.recorder import (
    ControllerEvents,
    ControllerRecorder,
    QuarantineEvents,
)
from services.controller.adapters.store import Touched
from services.controller.adapters.write_queue import WriteQueue
from services.controller.adapters.writer import Writer
from services.controller.controllers import BUILT, CONTROLLERS, SHARDING, Controller, selected
from services.controller.metrics import ControllerMetrics
from services.controller.settings import ControllerSettings
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.service import BusComponents, bus_of
from shared.contracts.messages import CONTROL
from shared.contracts.streams import JOB_PARTITIONS, Streams, streams
from shared.contracts.subjects import Subjects
from shared.election.installation import InstallationLeadership
from shared.election.members import Members
from shared.election.partition_elector import PartitionElector
from shared.kube.client import Kube
from shared.kube.config import kube_of
from shared.kube.sources import own_namespace
from shared.runtime.backoff import Backoff
from shared.runtime.common import inert_flags
from shared.runtime.jobplugins import load_job_plugins
from shared.runtime.service import Context
from shared.runtime.supervise import Part
from shared.runtime.workqueue import WorkQueue

SERVICE: Final = "controller"
_EVENT_CONNECTIONS: Final = 8


async def build(
    settings: ControllerSettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of a controller; connections come up, and back, while they run."""
    selected(settings.controllers)  # an unknown name is rejected before any connection is opened
    load_job_plugins()
    connections = settings.requests_most + _EVENT_CONNECTIONS
    kube = await kube_of(settings, context, max_connections=connections)
    return compose(settings, context, kube=kube, bus=bus_of(settings, context, dial))


def compose(
    settings: ControllerSettings, context: Context, *, kube: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and a way to the API server that are there already."""
    if idle := inert_flags(settings):
        context.log.warning("flags_without_effect", flags=idle)
    ownership = PartitionOwnership(clock=context.clock)
    installation = InstallationLeadership(
        CONTROL,
        required=settings.leader_elect,
        clock=context.clock,
        gate=context.readiness.gate("leadership"),
        log=context.log,
    )
    guarded = kube.guarded(installation.check).guarded(ownership.check)
    return _ControllerBuilder(
        settings, context, guarded, bus, ownership=ownership, installation=installation
    ).parts()


class _ControllerBuilder:
    """Makes the parts; lives only during `build`."""

    def __init__(
        self,
        settings: ControllerSettings,
        context: Context,
        kube: Kube,
        bus: NatsBus,
        *,
        ownership: PartitionOwnership,
        installation: InstallationLeadership,
    ) -> None:
        self._settings = settings
        self._context = context
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._on_bus = BusComponents(context, bus, streams=self._streams, settings=settings)
        self._metrics = ControllerMetrics(context.metrics)
        chosen = selected(settings.controllers)
        self._informers = Informers(
            scheduler_names=settings.scheduler_name, loads=SHARDING in chosen
        )
        self._ownership = ownership
        self._installation = installation
        installation.on_change(self._in_charge)
        self._recorder = ControllerRecorder(kube, env=context, metrics=self._metrics)
        context.quarantine.on_quarantined(QuarantineEvents(self._informers, self._recorder))
        self._event_publisher = self._on_bus.event_publisher()
        self._feed = self._make_feed()
        manager = self._make_manager(kube)
        self._controllers = [self._make(row, manager) for row in CONTROLLERS if row.name in chosen]
        self._informers.on_change(self._enqueue)
        if absent := sorted(chosen - set(BUILT)):
            context.log.warning("controllers_absent", controllers=absent)

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        members = self._on_bus.members()
        return [
            self._bus,
            self._on_bus.leases,
            self._on_bus.check(self._streams.state, self._streams.lease, self._streams.events),
            members,
            self._owned_partitions(members),
            self._feed,
            AdmissionFeed(
                self._bus,
                self._informers,
                subject=Subjects(cluster=self._settings.cluster).admissions,
                log=self._context.log,
            ),
            BudgetWarnings(
                self._bus,
                self._informers,
                self._recorder,
                subject=Subjects(cluster=self._settings.cluster).budget_warnings,
                log=self._context.log,
            ),
            *self._controllers,
            self._recorder,
            self._event_publisher,
        ]

    def _enqueue(self, touched: Touched) -> None:
        for controller in self._controllers:
            controller.enqueue(touched)

    def _synced(self) -> None:
        for controller in self._controllers:
            controller.enqueue_all()

    def _in_charge(self) -> None:
        """Reconcile all keys that waited until this installation may act."""
        if self._may_act():
            self._synced()

    def _may_act(self) -> bool:
        return self._feed.synced and self._installation.held

    def _make_feed(self) -> InformerFeed:
        context = self._context
        return InformerFeed(
            self._on_bus.state(
                list(self._informers.by_kind), seal=Seal(self._settings.state_key.reveal())
            ),
            self._informers,
            on_marker=self._installation.observe,
            on_synced=self._synced,
            gate=context.readiness.gate("state"),
            env=context,
            metrics=self._metrics,
        )

    def _make_manager(self, kube: Kube) -> ControllerContext:
        context, settings = self._context, self._settings
        return ControllerContext(
            settings=settings,
            namespace=own_namespace(settings.namespace),
            kube=kube,
            informers=self._informers,
            writer=Writer(
                kube,
                self._informers,
                queue=WriteQueue(settings.requests_most),
                metrics=self._metrics,
            ),
            recorder=self._recorder,
            events=ControllerEvents(self._event_publisher),
            ownership=self._ownership,
            is_synced=self._may_act,
            env=context,
            metrics=self._metrics,
        )

    def _make(self, row: Controller, manager: ControllerContext) -> Reconciler:
        context = self._context
        kind, stage = row.quarantined_as
        queue: WorkQueue[str] = WorkQueue(
            row.queue,
            kind=kind,
            stage=stage,
            capacity=self._settings.jobs_most,
            backoff=Backoff(first_s=0.1, cap_s=10.0, rng=context.rng),
            env=context,
            metrics=context.work_queues,
        )
        made = row.reconciler(manager, queue, workers=row.workers(self._settings))
        for collector in made.collectors():
            context.metrics.registry.register(collector)
        return made

    def _owned_partitions(self, members: Members) -> OwnedPartitions:
        context = self._context
        leases = [self._on_bus.lease(f"{SERVICE}-p{number}") for number in range(JOB_PARTITIONS)]
        partitions = PartitionElector(
            self._on_bus.leases,
            leases,
            members=members,
            service=SERVICE,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
            on_lost=self._ownership.lose,
        )
        return OwnedPartitions(partitions, self._ownership)
