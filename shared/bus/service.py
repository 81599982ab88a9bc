"""Parts that every service has on the bus, made in one place: composition roots show the rest.

`bus_of` makes the bus from the settings; `BusComponents` makes the parts that services have alike,
all of one cluster and under one name. It lives only while a service is put together.
"""

from collections.abc import Callable, Collection
from functools import partial

from pumice.events import LeaderChanged
from pumice.events.tls import TlsClient
from shared.bus.audit import Audit, AuditMetrics
from shared.bus.client import Dial
from shared.bus.declarer import StreamCheck
from shared.bus.event_publisher import EventPublisher
from shared.bus.nats import NatsBus, from_settings
from shared.bus.pace import Pace
from shared.bus.seal import Seal
from shared.bus.state import StateFollower
from shared.bus.storage_gate import StorageGate
from shared.contracts.streams import Streams, StreamSpec
from shared.contracts.subjects import Subjects
from shared.election.leader_elector import FencedStream, LeaderElector, LeadershipTerm
from shared.election.lease import Lease, LeaseTiming
from shared.election.members import Members
from shared.runtime.backoff import Backoff
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.service import Context


def bus_of(settings: CommonSettings, context: Context, dial: Dial = TlsClient) -> NatsBus:
    """Return the bus of a service; its readiness gate `nats` says whether it is connected."""
    requests = context.metrics.counter(
        "pumice_bus_api_requests",
        "Requests to the JetStream API, by operation",
        ["operation"],
    )
    return from_settings(
        settings,
        service=context.service,
        instance=context.instance,
        clock=context.clock,
        log=context.log,
        on_status=context.readiness.gate("nats").set,
        on_request=lambda operation: requests.labels(operation).inc(),
        on_refused=refused_readers(context),
        dial=dial,
    )


def refused_readers(context: Context) -> Callable[[str, str], None]:
    """Return what shows which streams have no room for a reader of this service.

    It is a metric and a note beside the gates: the service may be of use without that stream.
    """
    refused = context.metrics.gauge(
        "pumice_bus_refused", "1 while NATS has no room for a reader of the stream", ["stream"]
    )

    def note(stream: str, reason: str) -> None:
        refused.labels(stream).set(bool(reason))
        context.readiness.note(f"reader of {stream}", reason)

    return note


def timing_of(settings: CommonSettings) -> LeaseTiming:
    """Return the times of leases as the settings say. Raises Rejected when they contradict."""
    renew, stop, takeover = settings.lease_renew, settings.lease_stop, settings.lease_takeover
    if not renew < stop < takeover:
        raise Rejected(
            f"lease-renew {renew:g}s, lease-stop {stop:g}s and lease-takeover {takeover:g}s: "
            "each must be longer than the one before it",
            field="lease_takeover",
        )
    return LeaseTiming(renew_s=renew, stop_s=stop, takeover_s=takeover)


class BusComponents:
    """Makes the parts of one service that sit on the bus."""

    def __init__(
        self,
        context: Context,
        bus: NatsBus,
        *,
        streams: Streams,
        settings: CommonSettings,
    ) -> None:
        cluster = settings.cluster
        self._timing = timing_of(settings)
        self._audit_interval_s = settings.audit_interval
        self._audit_metrics = AuditMetrics(context.metrics)
        self._context = context
        self._bus = bus
        self._streams = streams
        self._cluster = cluster
        self._subjects = Subjects(cluster=cluster)
        self._holder = f"{context.instance}.{context.rng.randrange(16**8):08x}"
        self.leases = bus.second_connection(
            "leases",
            presence=self._subjects.presence(context.service, self._holder),
            on_status=context.readiness.gate("nats-leases").set,
        )
        """A connection for leases and members alone, that bulk work cannot hold up: a part."""

    def check(self, *specs: StreamSpec) -> StreamCheck:
        """Return the part that checks that the streams the service needs are there."""
        context = self._context
        return StreamCheck(
            self._bus, specs, clock=context.clock, gate=context.readiness.gate("streams")
        )

    def members(self) -> Members:
        """Return the part that announces this process and knows the others."""
        context = self._context
        return Members(
            self.leases,
            context,
            subjects=self._subjects,
            storage=StorageGate(
                gate=context.readiness.gate("storage"),
                gauge=context.metrics.gauge(
                    "pumice_bus_stores", "1; 0 while NATS stores nothing: a full disk"
                ),
                log=context.log,
            ),
        )

    def event_publisher(self) -> EventPublisher:
        """Return the part that publishes scheduling events."""
        context = self._context
        return EventPublisher(
            self._bus.publisher(self._streams.events.name),
            cluster=self._cluster,
            service=context.service,
            instance=context.instance,
            clock=context.clock,
            backoff=Backoff(first_s=0.2, cap_s=5.0, rng=context.rng),
            metrics=context.metrics,
            log=context.log,
        )

    def state(
        self, kinds: Collection[str], *, seal: Seal | None = None, pace: Pace | None = None
    ) -> StateFollower:
        """Return what follows the facts of some kinds; `seal` opens those that are sealed."""
        context = self._context
        return StateFollower(
            self._bus,
            subjects=self._subjects,
            kinds=kinds,
            clock=context.clock,
            log=context.log,
            seal=seal,
            pace=pace,
            audit=self.audit(kinds) if kinds else None,
        )

    def audit(self, kinds: Collection[str]) -> Audit:
        """Return what compares what a service holds of some kinds with STATE."""
        context = self._context
        return Audit(
            kinds,
            interval_s=self._audit_interval_s,
            clock=context.clock,
            metrics=self._audit_metrics,
            log=context.log,
        )

    def lease(self, name: str) -> Lease:
        """Return a lease as this life of the process sees it."""
        context = self._context
        return Lease(
            self.leases,
            stream=self._streams.lease.name,
            subject=self._subjects.lease(name),
            holder=self._holder,
            clock=context.clock,
            timing=self._timing,
            presence=partial(self._subjects.presence, context.service),
        )

    def leader_elector(
        self, stream: str, *, guard: str, event_publisher: EventPublisher, role: str = ""
    ) -> LeaderElector:
        """Return the elector of the service's leader, who alone may publish to `stream`.

        `guard` names the stream among the subjects that leaders write. Replicas of a `role` have a
        leader of their own. A change of the leader is announced.
        """
        context = self._context
        name = role or context.service

        def changed(term: LeadershipTerm | None) -> None:
            if term is None or term.previous == context.instance:
                return
            event = LeaderChanged(
                service=name,
                instance=context.instance,
                previous=term.previous,
                term=term.number,
            )
            event_publisher.publish(event, f"leader/{name}/{term.number}")

        return LeaderElector(
            self.leases,
            self.lease(name),
            fenced=[
                FencedStream(
                    stream=stream,
                    subject=self._subjects.leader(guard, role),
                    rollup=stream == self._streams.command.name,
                )
            ],
            service=context.service,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
            on_change=changed,
        )
