"""Puts the binder together: the one place where its parts are made and wired."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from services.binder.adapters.announcer import PodEvents
from services.binder.adapters.cluster import Cluster
from services.binder.adapters.commands import Commands, Hands
from services.binder.adapters.desired import DesiredStatuses
from services.binder.adapters.execute import Executor
from services.binder.adapters.hold import Holder
from services.binder.adapters.outcomes import Finished, Outcomes
from services.binder.adapters.recorder import Recorder
from services.binder.adapters.statuses import Statuses
from services.binder.adapters.throttle import Throttle
from services.binder.adapters.volumes import Volumes
from services.binder.adapters.watch import ApiServerProbe, Backlogs
from services.binder.intents.pace import Pace, PaceLimits
from services.binder.intents.retry import Ladder
from services.binder.metrics import BinderMetrics
from services.binder.settings import BinderSettings
from shared.bus.nats import NatsBus
from shared.bus.port import Puller
from shared.bus.service import BusParts, bus_of
from shared.contracts.streams import (
    ConsumerSpec,
    Streams,
    StreamSpec,
    command_consumer,
    desired_consumer,
    streams,
)
from shared.contracts.subjects import Subjects
from shared.kube.client import Kube
from shared.kube.service import kube_of
from shared.runtime.backoff import Backoff
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "binder"

_BATCH: Final = 4
"""Deliveries taken unasked: few, so that a busy binder leaves work to an idle one."""
_EVENT_CONNECTIONS: Final = 8
"""Connections to the API server beyond those for intents and statuses."""


async def build(settings: BinderSettings, context: Context) -> Sequence[Part]:
    """Return the parts of a binder; connections come up, and back, while they run."""
    connections = settings.requests_most + settings.statuses_active + _EVENT_CONNECTIONS
    kube = await kube_of(settings, context, max_connections=connections)
    return compose(settings, context, kube=kube, bus=bus_of(settings, context))


def compose(
    settings: BinderSettings, context: Context, *, kube: Kube, bus: NatsBus
) -> Sequence[Part]:
    """Return the parts on a bus and a way to the API server that are there already."""
    return _Wiring(settings, context, kube, bus).parts()


class _Wiring:
    """Makes the parts; lives only during `build`."""

    def __init__(
        self, settings: BinderSettings, context: Context, kube: Kube, bus: NatsBus
    ) -> None:
        self._settings = settings
        self._context = context
        self._kube = kube
        self._bus = bus
        self._streams: Streams = streams(settings.cluster)
        self._subjects = Subjects(cluster=settings.cluster)
        self._metrics = BinderMetrics(context.metrics)
        limits = PaceLimits(
            start=min(settings.requests_start, settings.requests_most),
            most=settings.requests_most,
            slow_s=settings.slow_answer,
        )
        self._throttle = Throttle(
            Pace(limits), per_node=settings.requests_per_node, metrics=self._metrics
        )
        self._recorder = Recorder(
            kube,
            component=settings.event_component,
            instance=context.instance,
            throttle=self._throttle,
            clock=context.clock,
            metrics=self._metrics,
            log=context.log,
        )
        self._on_bus = BusParts(context, bus, streams=self._streams, cluster=settings.cluster)
        self._announcer = self._on_bus.announcer()

    def parts(self) -> Sequence[Part]:
        """Return everything that has to run."""
        context, pull = self._context, self._bus.pull
        partitions = range(self._settings.partitions)
        cluster = self._settings.cluster
        commands = {p: pull(command_consumer(cluster, p), batch=_BATCH) for p in partitions}
        desired = {p: pull(desired_consumer(cluster, p), batch=_BATCH) for p in partitions}
        return [
            self._bus,
            self._on_bus.declarer(self._needed_streams()),
            self._on_bus.members(),
            ApiServerProbe(
                self._kube,
                clock=context.clock,
                gate=context.readiness.gate("api-server"),
                log=context.log,
            ),
            self._recorder,
            self._announcer,
            *self._commands(commands),
            *self._desired(desired),
            Backlogs(
                {("command", p): puller for p, puller in commands.items()}
                | {("desired", p): puller for p, puller in desired.items()},
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

    def _commands(self, pullers: Mapping[int, Puller]) -> Sequence[Part]:
        context, settings = self._context, self._settings
        finished = Finished(
            self._bus,
            stream=self._streams.outcome.name,
            subjects=[self._subjects.outcome(p) for p in pullers],
            clock=context.clock,
            gate=context.readiness.gate("outcomes"),
            log=context.log,
        )
        outcomes = Outcomes(
            self._bus.publisher(self._streams.outcome.name),
            subjects=self._subjects,
            clock=context.clock,
            backoff=Backoff(first_s=0.1, cap_s=2.0, rng=context.rng),
            log=context.log,
        )
        hands = Hands(
            held=asyncio.Semaphore(settings.intents_held),
            active=asyncio.Semaphore(settings.intents_active),
        )
        executor = self._executor()
        return [finished] + [
            Commands(
                puller,
                partition=partition,
                stream=self._streams.command.name,
                executor=executor,
                outcomes=outcomes,
                finished=finished,
                hands=hands,
                holder=self._holder(command_consumer(settings.cluster, partition)),
                clock=context.clock,
                faults=context.faults,
                metrics=self._metrics,
                gate=context.readiness.gate(f"commands-{partition}"),
                instance=context.instance,
                log=context.log,
            )
            for partition, puller in pullers.items()
        ]

    def _holder(self, consumer: ConsumerSpec) -> Holder:
        return Holder(
            ack_wait_s=consumer.ack_wait_s, clock=self._context.clock, log=self._context.log
        )

    def _executor(self) -> Executor:
        context = self._context
        cluster = Cluster(
            self._kube, throttle=self._throttle, clock=context.clock, metrics=self._metrics
        )
        return Executor(
            cluster,
            told=(self._recorder, PodEvents(self._announcer)),
            clock=context.clock,
            faults=context.faults,
            metrics=self._metrics,
            instance=context.instance,
            ladder=Ladder(attempts=self._settings.attempts),
            volumes=Volumes(
                self._kube,
                cluster,
                throttle=self._throttle,
                clock=context.clock,
                timeout_s=self._settings.volume_bind_timeout,
            ),
        )

    def _desired(self, pullers: Mapping[int, Puller]) -> Sequence[Part]:
        context = self._context
        statuses = Statuses(self._kube, recorder=self._recorder, clock=context.clock)
        hands = asyncio.Semaphore(self._settings.statuses_active)
        return [
            DesiredStatuses(
                puller,
                partition=partition,
                stream=self._streams.desired.name,
                bus=self._bus,
                statuses=statuses,
                holder=self._holder(desired_consumer(self._settings.cluster, partition)),
                hands=hands,
                backoff=Backoff(first_s=0.2, cap_s=10.0, rng=context.rng),
                metrics=self._metrics,
                gate=context.readiness.gate(f"desired-{partition}"),
                log=context.log,
            )
            for partition, puller in pullers.items()
        ]
