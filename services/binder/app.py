"""Puts the binder together: the one place where its parts are made and wired."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from pumice.events.tls import TlsClient
from services.binder.adapters.cluster import ApiServerClient
from services.binder.adapters.commands import Commands, IntentSlots
from services.binder.adapters.deliveries import AckExtender, PartitionSource
from services.binder.adapters.desired import DesiredStatuses
from services.binder.adapters.devices import DeviceBinder, DeviceTimeouts
from services.binder.adapters.execute import IntentExecutor
from services.binder.adapters.notices import EvictionNotices
from services.binder.adapters.outcomes import FinishedIntents, Outcomes
from services.binder.adapters.recorder import BinderRecorder, PodEvents
from services.binder.adapters.statuses import Statuses
from services.binder.adapters.throttle import ConcurrencyLimiter, LimiterSettings, Throttle
from services.binder.adapters.volumes import VolumeBinder
from services.binder.adapters.watch import ApiServerProbe, Backlogs, Markers
from services.binder.intents.steps import RetryDelays
from services.binder.metrics import BinderMetrics
from services.binder.settings import BinderSettings
from shared.bus.client import Dial
from shared.bus.nats import NatsBus
from shared.bus.service import BusComponents, bus_of
from shared.contracts.messages import SCHEDULING
from shared.contracts.streams import (
    ConsumerSpec,
    Streams,
    StreamSpec,
    command_consumer,
    desired_consumer,
    streams,
)
from shared.contracts.subjects import SINGLE_PODS, Subjects
from shared.election.installation import InstallationLeadership
from shared.kube.client import Kube
from shared.kube.config import kube_of
from shared.model.delayed_status import ExpiringStatuses
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "binder"

_BATCH: Final = 4
"""Deliveries taken unasked: few, so that a busy binder leaves work to an idle one."""
_SHOWN_S: Final = 60.0
"""How long a key is shown that does not fail again: the binder does not watch for deletions."""
_EVENT_CONNECTIONS: Final = 8
"""Connections to the API server beyond those for intents and statuses."""


async def build(
    settings: BinderSettings, context: Context, dial: Dial = TlsClient
) -> Sequence[Part]:
    """Return the parts of a binder; connections come up, and back, while they run."""
    connections = settings.requests_most + settings.statuses_active + _EVENT_CONNECTIONS
    kube = await kube_of(settings, context, max_connections=connections)
    return compose(settings, context, kube=kube, bus=bus_of(settings, context, dial))


def compose(
    settings: BinderSettings, context: Context, *, kube: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and a way to the API server that are there already."""
    return _BinderBuilder(settings, context, kube, bus).parts()


class _BinderBuilder:
    """Makes the parts; lives only during `build`."""

    def __init__(
        self, settings: BinderSettings, context: Context, kube: Kube, bus: NatsBus
    ) -> None:
        self._settings = settings
        self._context = context = context.forgetting(_SHOWN_S)
        self._installation = InstallationLeadership(
            SCHEDULING, required=settings.leader_elect, clock=context.clock, log=context.log
        )
        self._kube = kube
        self._writing = kube.guarded(self._installation.check)
        """For all that scheduling decides; what has happened is recorded in any case."""
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._subjects = Subjects(cluster=settings.cluster)
        self._metrics = BinderMetrics(context.metrics)
        limits = LimiterSettings(
            start=min(settings.requests_start, settings.requests_most),
            most=settings.requests_most,
            slow_s=settings.slow_answer,
        )
        self._throttle = Throttle(
            ConcurrencyLimiter(limits), per_node=settings.requests_per_node, metrics=self._metrics
        )
        self._recorder = BinderRecorder(
            kube,
            component=settings.event_component,
            throttle=self._throttle,
            env=context,
            metrics=self._metrics,
        )
        context.quarantine.on_quarantined(self._recorder.quarantined)
        self._on_bus = BusComponents(context, bus, streams=self._streams, settings=settings)
        self._event_publisher = self._on_bus.event_publisher()

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        context = self._context
        partitions = range(self._settings.partitions)
        cluster = self._settings.cluster
        leaders = [self._subjects.leader("command", role) for role in ("", SINGLE_PODS)]
        commands = [
            self._source("commands", command_consumer(cluster, p), p, leaders) for p in partitions
        ]
        finished = self._finished(partitions)
        desired = [self._source("desired", desired_consumer(cluster, p), p) for p in partitions]
        return [
            self._bus,
            self._on_bus.leases,
            self._on_bus.check(*self._needed_streams()),
            self._on_bus.members(),
            ApiServerProbe(
                self._kube,
                clock=context.clock,
                gate=context.readiness.gate("api-server"),
                log=context.log,
            ),
            Markers(self._on_bus.state([]), self._installation),
            self._recorder,
            self._event_publisher,
            finished,
            *self._commands(commands, finished),
            *self._desired(desired, finished),
            Backlogs(
                {("command", source.partition): source.puller for source in commands}
                | {("desired", source.partition): source.puller for source in desired},
                clock=context.clock,
                metrics=self._metrics,
            ),
        ]

    def _needed_streams(self) -> Sequence[StreamSpec]:
        all_streams = self._streams
        return (
            all_streams.command,
            all_streams.desired,
            all_streams.outcome,
            all_streams.events,
            all_streams.lease,
        )

    def _finished(self, partitions: Sequence[int]) -> FinishedIntents:
        context = self._context
        return FinishedIntents(
            self._bus,
            stream=self._streams.outcome.name,
            subjects=[self._subjects.outcome(p) for p in partitions],
            env=context,
            gate=context.readiness.gate("outcomes"),
        )

    def _commands(
        self, sources: Sequence[PartitionSource], finished: FinishedIntents
    ) -> Sequence[Part]:
        context, settings = self._context, self._settings
        outcomes = Outcomes(
            self._bus.publisher(self._streams.outcome.name),
            subjects=self._subjects,
            env=context,
        )
        slots = IntentSlots(
            received=asyncio.Semaphore(settings.intents_received),
            executing=asyncio.Semaphore(settings.intents_active),
        )
        executor = self._executor(finished)
        return [
            Commands(
                source,
                executor=executor,
                outcomes=outcomes,
                finished=finished,
                installation=self._installation,
                slots=slots,
                env=context,
                metrics=self._metrics,
            )
            for source in sources
        ]

    def _source(
        self, name: str, consumer: ConsumerSpec, partition: int, leaders: Collection[str] = ()
    ) -> PartitionSource:
        return PartitionSource(
            puller=self._bus.pull(consumer, batch=_BATCH),
            partition=partition,
            stream=consumer.stream,
            bus=self._bus,
            acks=AckExtender(ack_wait_s=consumer.ack_wait_s, env=self._context),
            gate=self._context.readiness.gate(f"{name}-{partition}"),
            leaders=leaders,
        )

    def _executor(self, finished: FinishedIntents) -> IntentExecutor:
        context = self._context
        cluster = ApiServerClient(
            self._writing,
            throttle=self._throttle,
            scheduler_names=self._settings.scheduler_name,
            clock=context.clock,
            metrics=self._metrics,
        )
        return IntentExecutor(
            cluster,
            listeners=(self._recorder, PodEvents(self._event_publisher), finished),
            env=context,
            metrics=self._metrics,
            delays=RetryDelays(attempts=self._settings.attempts),
            volumes=VolumeBinder(
                self._writing,
                cluster,
                throttle=self._throttle,
                env=context,
                timeout_s=self._settings.volume_bind_timeout,
            ),
            devices=DeviceBinder(
                self._writing,
                cluster,
                throttle=self._throttle,
                env=context,
                times=DeviceTimeouts(
                    write_s=self._settings.volume_bind_timeout,
                    prepare_s=self._settings.device_bind_timeout,
                ),
                waits=self._recorder.waits,
            ),
            notices=EvictionNotices(cluster, env=context, most_s=self._settings.eviction_grace_max),
        )

    def _desired(
        self, sources: Sequence[PartitionSource], finished: FinishedIntents
    ) -> Sequence[Part]:
        context = self._context
        statuses = Statuses(self._writing, recorder=self._recorder, clock=context.clock)
        slots = asyncio.Semaphore(self._settings.statuses_active)
        delayed = ExpiringStatuses()
        return [
            DesiredStatuses(
                source,
                statuses=statuses,
                ended=finished,
                installation=self._installation,
                slots=slots,
                delayed=delayed,
                env=context,
                metrics=self._metrics,
            )
            for source in sources
        ]
