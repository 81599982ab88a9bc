"""Events of the bus as entries of the feed that the live page shows. Pure."""

from typing import Final

from pumice.events.types import (
    Event,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
    QueueStateChanged,
)
from services.visibility.answers.wording import ref_of
from shared.api.kinds import JOB, POD, QUEUE
from shared.api.visibility import ObjectRef, TimelineEntry

_NODES_MOST: Final = 5


def entry_of(event: Event, at: str) -> TimelineEntry | None:
    """Return what a person is told of an event, None for one of another kind."""
    match event:
        case JobPhaseChanged():
            change = f"{event.previous or 'new'} → {event.phase}"
            words = f"{change}: {event.message}" if event.message else change
            return _entry(at, "Phase", _ref(JOB.kind, event.job), words)
        case GangAdmitted():
            return _entry(at, "Admitted", ref_of(event.gang, event.job), f"to queue {event.queue}")
        case GangPlaced():
            words = f"{event.pods} pods on {_listed(event.nodes)}"
            return _entry(at, "Placed", ref_of(event.gang, event.job), words)
        case GangUnschedulable():
            words = f"{event.gate}: {event.message}"
            return _entry(at, "Waits", ref_of(event.gang, event.job), words)
        case PodBound():
            return _entry(at, "Bound", _ref(POD.kind, event.pod), f"to {event.node}")
        case PodEvicted():
            room = f" for {event.preemptor}" if event.preemptor else ""
            words = f"from {event.node} by {event.by}{room}"
            return _entry(at, "Evicted", _ref(POD.kind, event.pod), words)
        case QueueStateChanged():
            change = f"{event.previous or 'new'} → {event.state}"
            return _entry(at, "Phase", _ref(QUEUE.kind, event.queue), change)
        case _:
            return None


def _entry(at: str, what: str, about: ObjectRef, message: str) -> TimelineEntry:
    return TimelineEntry(at=at, what=what, about=about, message=message)


def _ref(kind: str, key: str) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef(kind=kind, namespace=namespace, name=name)


def _listed(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:_NODES_MOST])
    more = len(nodes) - _NODES_MOST
    return f"{shown} and {more} more nodes" if more > 0 else shown
