"""Puts the controller together: the one place where its parts are made and wired."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from services.controller.adapters.announcer import ControllerEvents
from services.controller.adapters.bare import BarePods
from services.controller.adapters.collector import Collector
from services.controller.adapters.cronjobs import CronJobs
from services.controller.adapters.feed import Feed
from services.controller.adapters.flows import JobFlows, JobTemplates
from services.controller.adapters.jobs import JobWorker
from services.controller.adapters.keeper import Frame
from services.controller.adapters.network import NetworkKeeper
from services.controller.adapters.objects import Objects
from services.controller.adapters.ownership import PARTITIONS, Ownership
from services.controller.adapters.queues import QueueKeeper
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.replica import KINDS, Replica
from services.controller.adapters.shares import Shares
from services.controller.adapters.strays import Strays
from services.controller.adapters.touched import Touched
from services.controller.adapters.writer import Writer
from services.controller.metrics import ControllerMetrics
from services.controller.selection import (
    CRON_JOB,
    GARBAGE,
    HYPERNODE,
    JOB,
    JOB_FLOW,
    JOB_TEMPLATE,
    POD_GROUP,
    QUEUE,
    selected,
)
from services.controller.settings import ControllerSettings
from shared.api import kinds
from shared.bus.members import Members
from shared.bus.nats import NatsBus
from shared.bus.partitions import Partitions
from shared.bus.service import BusParts, bus_of
from shared.contracts.streams import Streams, streams
from shared.kube.client import Kube
from shared.kube.service import kube_of
from shared.runtime.backoff import Backoff
from shared.runtime.inherited import idle_flags
from shared.runtime.jobplugins import load_job_plugins
from shared.runtime.mailbox import Mailbox
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "controller"
_EVENT_CONNECTIONS: Final = 8
_FLOW_WORKERS: Final = 2


async def build(settings: ControllerSettings, context: Context) -> Sequence[Part]:
    """Return the parts of a controller; connections come up, and back, while they run."""
    selected(settings.controllers)  # a wrong name is refused before anything is opened
    load_job_plugins()
    connections = settings.requests_most + _EVENT_CONNECTIONS
    kube = await kube_of(settings, context, max_connections=connections)
    return compose(settings, context, kube=kube, bus=bus_of(settings, context))


def compose(
    settings: ControllerSettings, context: Context, *, kube: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and a way to the API server that are there already."""
    if idle := idle_flags(settings):
        context.log.warning("flags_without_effect", flags=idle)
    return _Wiring(settings, context, kube, bus, selected(settings.controllers)).parts()


class _Controller(Part, Protocol):
    """One of the controllers that `--controllers` chooses among (M03)."""

    def touch(self, touched: Touched) -> None:
        """Have what some facts touched looked at."""
        ...

    def touch_all(self) -> None:
        """Have everything looked at."""
        ...


class _Wiring:
    """Makes the parts; lives only during `build`."""

    def __init__(
        self,
        settings: ControllerSettings,
        context: Context,
        kube: Kube,
        bus: NatsBus,
        chosen: frozenset[str],
    ) -> None:
        self._settings = settings
        self._context = context
        self._kube = kube
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._on_bus = BusParts(context, bus, streams=self._streams, cluster=settings.cluster)
        self._metrics = ControllerMetrics(context.metrics)
        self._replica = Replica(scheduler_names=settings.scheduler_name)
        self._ownership = Ownership(clock=context.clock)
        self._recorder = Recorder(
            kube,
            instance=context.instance,
            clock=context.clock,
            metrics=self._metrics,
            log=context.log,
        )
        self._announcer = self._on_bus.announcer()
        self._events = ControllerEvents(self._announcer)
        self._feed = self._make_feed()
        makers: dict[str, Callable[[], _Controller]] = {
            JOB: self._make_jobs,
            POD_GROUP: self._make_bare,
            QUEUE: self._make_queues,
            GARBAGE: self._make_collector,
            CRON_JOB: self._make_cron,
            JOB_FLOW: self._make_flows,
            JOB_TEMPLATE: self._make_templates,
            HYPERNODE: self._make_network,
        }
        self._controllers = [make() for name, make in makers.items() if name in chosen]
        if absent := sorted(chosen - makers.keys()):
            context.log.warning("controllers_absent", controllers=absent)

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        members = self._on_bus.members()
        return [
            self._bus,
            self._on_bus.declarer((self._streams.lease, self._streams.events)),
            members,
            self._shares(members),
            self._feed,
            *self._controllers,
            self._recorder,
            self._announcer,
        ]

    def _touch(self, touched: Touched) -> None:
        """Tell every worker what deserves a look."""
        if not touched:
            return
        for controller in self._controllers:
            controller.touch(touched)

    def _synced(self) -> None:
        for controller in self._controllers:
            controller.touch_all()

    def _is_synced(self) -> bool:
        return self._feed.synced

    def _mailbox(self, name: str) -> Mailbox[str]:
        context = self._context
        return Mailbox(
            name,
            capacity=self._settings.jobs_most,
            clock=context.clock,
            backoff=Backoff(first_s=0.1, cap_s=10.0, rng=context.rng),
            log=context.log,
            metrics=context.mailboxes,
        )

    def _make_feed(self) -> Feed:
        context = self._context
        return Feed(
            self._on_bus.state([kind.token for kind in KINDS]),
            self._replica,
            touch=self._touch,
            on_synced=self._synced,
            gate=context.readiness.gate("state"),
            metrics=self._metrics,
            log=context.log,
        )

    def _make_jobs(self) -> JobWorker:
        context, settings = self._context, self._settings
        writer = Writer(
            self._kube,
            self._replica,
            recorder=self._recorder,
            touch=self._touch,
            under_way=asyncio.Semaphore(settings.requests_most),
            faults=context.faults,
            metrics=self._metrics,
        )
        strays = Strays(self._objects(), self._replica, log=context.log)
        return JobWorker(
            replica=self._replica,
            ownership=self._ownership,
            writer=writer,
            strays=strays,
            mailbox=self._mailbox("jobs"),
            recorder=self._recorder,
            events=self._events,
            is_synced=self._is_synced,
            max_refusals=settings.max_requeue_num,
            workers=settings.worker_threads,
            clock=context.clock,
            faults=context.faults,
            metrics=self._metrics,
            log=context.log,
        )

    def _make_bare(self) -> BarePods:
        context, settings = self._context, self._settings
        return BarePods(
            self._frame("bare-pods", settings.worker_threads_for_podgroup),
            self._objects(),
            self._replica,
            recorder=self._recorder,
            inherit=settings.inherit_owner_annotations,
            log=context.log,
        )

    def _make_queues(self) -> QueueKeeper:
        context = self._context
        keeper = QueueKeeper(
            self._kube,
            self._replica,
            ownership=self._ownership,
            is_synced=self._is_synced,
            touch=self._touch,
            events=self._events,
            recorder=self._recorder,
            clock=context.clock,
            faults=context.faults,
            metrics=self._metrics,
            log=context.log,
        )
        context.metrics.registry.register(keeper.counts())
        return keeper

    def _make_collector(self) -> Collector:
        context = self._context
        return Collector(
            self._frame("finished-jobs", self._settings.worker_threads_for_gc),
            self._kube,
            self._replica,
            clock=context.clock,
            metrics=self._metrics,
            log=context.log,
        )

    def _make_cron(self) -> CronJobs:
        context = self._context
        return CronJobs(
            self._frame(kinds.CRONJOB.token, self._settings.worker_threads_for_cronjob),
            self._objects(),
            self._replica,
            recorder=self._recorder,
            clock=context.clock,
            faults=context.faults,
            metrics=self._metrics,
            log=context.log,
        )

    def _make_flows(self) -> JobFlows:
        return JobFlows(
            self._frame(kinds.JOBFLOW.token, _FLOW_WORKERS),
            self._objects(),
            self._replica,
            recorder=self._recorder,
            faults=self._context.faults,
            metrics=self._metrics,
            log=self._context.log,
        )

    def _make_templates(self) -> JobTemplates:
        frame = self._frame(kinds.JOBTEMPLATE.token, _FLOW_WORKERS)
        return JobTemplates(frame, self._objects(), self._replica)

    def _make_network(self) -> NetworkKeeper:
        context = self._context
        return NetworkKeeper(
            self._kube,
            self._objects(),
            self._replica,
            config_map=self._settings.topology_config_map,
            ownership=self._ownership,
            is_synced=self._is_synced,
            recorder=self._recorder,
            clock=context.clock,
            log=context.log,
        )

    def _frame(self, mailbox: str, workers: int) -> Frame:
        return Frame(
            ownership=self._ownership,
            mailbox=self._mailbox(mailbox),
            is_synced=self._is_synced,
            workers=workers,
            log=self._context.log,
        )

    def _objects(self) -> Objects:
        return Objects(self._kube, self._replica, touch=self._touch, metrics=self._metrics)

    def _shares(self, members: Members) -> Shares:
        context = self._context
        leases = [self._on_bus.lease(f"{SERVICE}-p{number}") for number in range(PARTITIONS)]
        partitions = Partitions(
            self._bus,
            leases,
            stream=self._streams.lease.name,
            members=members,
            service=SERVICE,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
        )
        return Shares(partitions, self._ownership)
