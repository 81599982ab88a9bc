"""Scheduling events for programs and people: their types, their form on the wire, and a client.

    from pumice.events import GangPlaced, subscribe

    async for received in subscribe(types=[GangPlaced]):
        print(received.sequence, received.event.data.gang)

Events are CloudEvents 1.0 in JSON on a durable stream; every program that speaks NATS can read
them, and `docs/events/asyncapi.yaml` describes them. This package imports nothing of Pumice's
services, so that it works in a repository that has folders of those names.
"""

from pumice.events.client import Received, Since, Start, subscribe
from pumice.events.envelope import CloudEvent, Unknown, decode, encode, source, subject
from pumice.events.errors import (
    ClusterGone,
    EventsError,
    NotAllowed,
    PositionGone,
    Unreachable,
)
from pumice.events.server import Server, find
from pumice.events.types import (
    CATALOGUE,
    BudgetReached,
    ConfigurationRefused,
    Event,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    LeaderChanged,
    PodBound,
    PodEvicted,
    QueueStateChanged,
)

__all__ = [
    "CATALOGUE",
    "BudgetReached",
    "CloudEvent",
    "ClusterGone",
    "ConfigurationRefused",
    "Event",
    "EventsError",
    "GangAdmitted",
    "GangPlaced",
    "GangUnschedulable",
    "JobPhaseChanged",
    "LeaderChanged",
    "NotAllowed",
    "PodBound",
    "PodEvicted",
    "PositionGone",
    "QueueStateChanged",
    "Received",
    "Server",
    "Since",
    "Start",
    "Unknown",
    "Unreachable",
    "decode",
    "encode",
    "find",
    "source",
    "subject",
    "subscribe",
]
