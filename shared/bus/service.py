"""What every service has on the bus, made in one place: a composition root shows what is its own.

`bus_of` makes the bus from the settings; `BusParts` makes the parts that services have alike, all
of one cluster and under one name. It lives only while a service is put together.
"""

from collections.abc import Collection, Sequence

from shared.bus.announcer import Announcer
from shared.bus.declarer import StreamDeclarer
from shared.bus.leader import Fence, Leadership
from shared.bus.lease import Lease
from shared.bus.members import Members
from shared.bus.nats import NatsBus, from_settings
from shared.bus.state import StateFollower
from shared.contracts.streams import Streams, StreamSpec
from shared.contracts.subjects import Subjects
from shared.runtime.backoff import Backoff
from shared.runtime.common import CommonSettings
from shared.runtime.service import Context


def bus_of(settings: CommonSettings, context: Context) -> NatsBus:
    """Return the bus of a service; its readiness gate `nats` says whether it is connected."""
    return from_settings(
        settings,
        service=context.service,
        instance=context.instance,
        clock=context.clock,
        log=context.log,
        on_status=context.readiness.gate("nats").set,
    )


class BusParts:
    """Makes the parts of one service that sit on the bus."""

    def __init__(self, context: Context, bus: NatsBus, *, streams: Streams, cluster: str) -> None:
        self._context = context
        self._bus = bus
        self._streams = streams
        self._cluster = cluster
        self._subjects = Subjects(cluster=cluster)

    def declarer(self, specs: Sequence[StreamSpec]) -> StreamDeclarer:
        """Return the part that declares the streams that the service needs."""
        context = self._context
        return StreamDeclarer(
            self._bus, specs, clock=context.clock, gate=context.readiness.gate("streams")
        )

    def members(self) -> Members:
        """Return the part that announces this process and knows the others."""
        context = self._context
        return Members(
            self._bus,
            stream=self._streams.lease.name,
            subjects=self._subjects,
            service=context.service,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
        )

    def announcer(self) -> Announcer:
        """Return the part that publishes scheduling events."""
        context = self._context
        return Announcer(
            self._bus.publisher(self._streams.events.name),
            cluster=self._cluster,
            service=context.service,
            instance=context.instance,
            clock=context.clock,
            backoff=Backoff(first_s=0.2, cap_s=5.0, rng=context.rng),
            metrics=context.metrics,
            log=context.log,
        )

    def state(self, kinds: Collection[str]) -> StateFollower:
        """Return what follows the facts of some kinds."""
        context = self._context
        return StateFollower(
            self._bus,
            stream=self._streams.state.name,
            subjects=self._subjects,
            kinds=kinds,
            clock=context.clock,
            log=context.log,
        )

    def lease(self, name: str) -> Lease:
        """Return a lease as this life of the process sees it."""
        context = self._context
        return Lease(
            self._bus,
            stream=self._streams.lease.name,
            subject=self._subjects.lease(name),
            holder=f"{context.instance}.{context.rng.randrange(16**8):08x}",
            clock=context.clock,
        )

    def leadership(self, stream: str, *, guard: str) -> Leadership:
        """Return the leadership of the service, and with it the right to publish to `stream`.

        `guard` names the stream among the subjects that leaders write.
        """
        context = self._context
        return Leadership(
            self._bus,
            self.lease(context.service),
            fences=[Fence(stream=stream, subject=self._subjects.leader(guard))],
            service=context.service,
            instance=context.instance,
            clock=context.clock,
            log=context.log,
        )
