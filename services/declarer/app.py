"""Puts the declarer together: the one place where its parts are made and wired."""

from collections.abc import Sequence
from typing import Final

from services.declarer.settings import DeclarerSettings
from shared.bus.declarer import Declarer
from shared.bus.nats import NatsBus
from shared.bus.service import bus_of
from shared.contracts.streams import (
    Storage,
    copied,
    durable_consumers,
    streams,
    with_copies_of_events,
)
from shared.runtime.service import Context
from shared.runtime.supervise import Part

SERVICE: Final = "declarer"


async def build(settings: DeclarerSettings, context: Context) -> Sequence[Part]:
    """Return the parts of a declarer; the connection comes up, and back, while they run."""
    return compose(settings, context, bus=bus_of(settings, context))


def compose(settings: DeclarerSettings, context: Context, *, bus: NatsBus) -> Sequence[Part]:
    """Return the parts on a bus that is there already."""
    declared = streams(
        settings.cluster,
        state_storage=Storage(settings.state_storage),
        state_bytes=settings.state_bytes,
    )
    specs = with_copies_of_events(declared, settings.cluster, settings.event_namespaces)
    replicas = settings.stream_replicas
    of_state = {declared.state.name: settings.state_replicas or replicas}
    declarer = Declarer(
        bus,
        copied(specs, replicas, exceptions=of_state),
        durable_consumers(settings.cluster),
        clock=context.clock,
        gate=context.readiness.gate("streams"),
    )
    return [bus, declarer]
