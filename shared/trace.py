"""The history of one job as a tree of spans, from events on the bus and from its objects. Pure.

`pumice trace` prints it, and visibility lists it as a `Timeline`: both share this one fold.

Events have exact times. The times of objects are whole seconds: one is moved, by less than a
second, to the earliest moment that the events leave possible, and its span says that it is not
exact.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pumice.events import (
    CloudEvent,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
)
from shared.api.batch import ENDED
from shared.model.numbers import plural

_ENTRY: Final = "enqueue"
"""The gate before a gang is admitted."""
_SECOND: Final = 1.0
_ANNOUNCED_LATE_S: Final = 0.5


class PodTimes(Struct, frozen=True, kw_only=True):
    """A pod as its object shows it; times are Unix seconds, None for what has not happened."""

    key: str
    uid: str
    made_s: float | None = None
    running_s: float | None = None
    ended_s: float | None = None
    phase: str = ""


class Objects(Struct, frozen=True, kw_only=True):
    """A job's objects at the API server; empty where there are none, or they were not read."""

    uid: str = ""
    posted_s: float | None = None
    queue: str = ""
    phase: str = ""
    phase_s: float | None = None
    group_made_s: float | None = None
    waits_since_s: float | None = None
    why: str = ""
    """Why its PodGroup waits now; empty when it does not wait."""
    pods: tuple[PodTimes, ...] = ()


NOTHING: Final = Objects()
"""For a job without objects, or whose objects were not read."""


class Span(Struct, frozen=True, kw_only=True):
    """A part of a job's life; a moment when it ends as it begins."""

    name: str
    start: float
    """Unix seconds."""
    end: float | None = None
    """None: it has not ended."""
    detail: str = ""
    about: str = ""
    """Key of the object that it is about, where that is not the job."""
    exact: bool = True
    """False: a time of an object with whole seconds is its start or its end."""
    spans: tuple["Span", ...] = ()

    @property
    def is_moment(self) -> bool:
        """Return whether it has no duration."""
        return self.end == self.start


class JobSpan(Span, frozen=True, kw_only=True):
    """The root of the tree: the job itself."""

    phase: str = ""
    """Last phase; empty when neither an event nor an object has it."""
    queue: str = ""


_S = TypeVar("_S", bound=Span)


def cut_off(span: JobSpan) -> JobSpan:
    """Return the tree of a job that was deleted before its end: all open spans end."""
    at = _last(span)
    return replace(
        _ended(span, at), detail=f"deleted while {span.detail}" if span.detail else "deleted"
    )


def _last(span: Span) -> float:
    return max([span.start, span.end or span.start, *map(_last, span.spans)])


def _ended(span: _S, at: float) -> _S:
    spans = tuple(_ended(each, at) for each in span.spans)
    if span.end is not None:
        return replace(span, spans=spans)
    return replace(span, end=at, exact=False, spans=spans)


class JobHistory(Struct):
    """The events of one job, by type."""

    phases: list[tuple[float, JobPhaseChanged]]
    admitted: list[tuple[float, GangAdmitted]]
    placed: list[tuple[float, GangPlaced]]
    waits: list[tuple[float, GangUnschedulable]]
    bound: dict[str, tuple[float, PodBound]]
    evicted: dict[str, tuple[float, PodEvicted]]

    @property
    def first_s(self) -> float | None:
        """Return when the first of them happened."""
        return min((at for at in self._times()), default=None)

    @property
    def admitted_s(self) -> float | None:
        """Return when the gang was first admitted."""
        return self.admitted[0][0] if self.admitted else None

    def _times(self) -> Iterator[float]:
        for each in (self.phases, self.admitted, self.placed, self.waits):
            yield from (at for at, _ in each)
        for one in (self.bound, self.evicted):
            yield from (at for at, _ in one.values())


def trace(job: str, events: Sequence[CloudEvent], objects: Objects = NOTHING) -> JobSpan | None:
    """Return the tree of the last job of this key, None when nothing is known of one."""
    history = _history_of(job, events, objects.uid)
    start = _posted(objects.posted_s, history.first_s)
    if start is None:
        return None
    end = _end(history, objects)
    parts = [
        *_admission(history, objects, start, end),
        *_phases(history, objects),
        *_placements(history),
        *_waits(history, objects, end),
    ]
    phase = history.phases[-1][1].phase if history.phases else objects.phase
    queue = _queue(history) or objects.queue
    detail = ", ".join(filter(None, (phase, f"queue {queue}" if queue else "")))
    return JobSpan(
        name="job",
        about=job,
        detail=detail,
        phase=phase,
        queue=queue,
        start=start,
        end=None if end is None else max(end, start),
        exact=False,
        spans=(*_in_time(parts), *_in_time(_pods(history, objects, start, end))),
    )


def _in_time(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, span.name, span.about))


def _history_of(job: str, events: Sequence[CloudEvent], uid: str) -> JobHistory:
    """Return the events of the job with `uid`, or of the last of that name when it is not known."""
    uid = uid or _last_uid(job, events)
    gang = f"{job}-{uid}" if uid else ""
    history = JobHistory([], [], [], [], {}, {})
    for event in sorted(events, key=lambda each: each.time):
        at = event.time.timestamp()
        match event.data:
            case JobPhaseChanged() as data if data.job == job and data.uid in (uid, ""):
                history.phases.append((at, data))
            case GangAdmitted() as data if _is_of(job, gang, data):
                history.admitted.append((at, data))
            case GangPlaced() as data if _is_of(job, gang, data):
                history.placed.append((at, data))
            case GangUnschedulable() as data if _is_of(job, gang, data):
                history.waits.append((at, data))
            case PodBound() as data if _is_of(job, gang, data):
                history.bound.setdefault(data.uid, (at, data))
            case PodEvicted() as data if _is_of(job, gang, data):
                history.evicted.setdefault(data.uid, (at, data))
            case _:
                pass
    return history


def _last_uid(job: str, events: Iterable[CloudEvent]) -> str:
    found = [(each.time, each.data) for each in events if isinstance(each.data, JobPhaseChanged)]
    own = [(time, data.uid) for time, data in found if data.job == job]
    return max(own)[1] if own else ""


def _is_of(
    job: str, gang: str, data: GangAdmitted | GangPlaced | GangUnschedulable | PodBound | PodEvicted
) -> bool:
    """Return whether an event is of the job with this uid, which its PodGroup's name contains."""
    return data.job == job and (not gang or not data.gang or data.gang == gang)


def _posted(posted_s: float | None, first_s: float | None) -> float | None:
    """Return when the job was posted, at the latest: it was seen at once, or in another second."""
    if posted_s is None:
        return first_s
    latest = posted_s + _SECOND
    return latest if first_s is None else max(posted_s, min(first_s, latest))


def _end(history: JobHistory, objects: Objects) -> float | None:
    """Return when the job came to a phase in which it stays, None while it is in another."""
    if history.phases:
        at, last = history.phases[-1]
        return at if last.phase in ENDED else None
    return objects.phase_s if objects.phase in ENDED else None


def _queue(history: JobHistory) -> str:
    known = [data.queue for _, data in history.phases]
    known += [data.queue for _, data in history.admitted]
    known += [data.queue for _, data in history.waits]
    return next((queue for queue in known if queue), "")


def _admission(
    history: JobHistory, objects: Objects, start: float, end: float | None
) -> Iterator[Span]:
    if objects.group_made_s is not None:
        made = _at_least(objects.group_made_s, start)
        yield Span(name="PodGroup made", start=made, end=made, exact=False)
    admitted = history.admitted_s
    if admitted is None and (history.placed or end is not None):
        return  # it was admitted, and the event is no longer kept
    queue = history.admitted[0][1].queue if history.admitted else objects.queue
    yield Span(
        name="waits for its queue",
        start=start,
        end=None if admitted is None else max(admitted, start),
        detail=f"admitted to queue {queue}" if history.admitted else "not admitted yet",
        exact=False,
        spans=tuple(_waits_at_the_gate(history, end if admitted is None else admitted)),
    )


def _waits_at_the_gate(history: JobHistory, until: float | None) -> Iterator[Span]:
    """Yield the waits that were announced while the gang was not admitted."""
    admitted = history.admitted_s
    yield from _in_turn(
        [(at, why) for at, why in history.waits if not _is_later(at, why, admitted)], (), until
    )


def _waits(history: JobHistory, objects: Objects, end: float | None) -> Iterator[Span]:
    """Yield the waits of an admitted gang, each until it was placed, and the present one."""
    admitted = history.admitted_s
    later = [(at, why) for at, why in history.waits if _is_later(at, why, admitted)]
    moments = sorted(at for at, _ in history.placed)
    yield from _in_turn(later, moments, end)
    is_announced = bool(history.waits) and (not moments or moments[-1] < history.waits[-1][0])
    if objects.waits_since_s is not None and not is_announced and end is None:
        yield Span(name="waits", start=objects.waits_since_s, detail=objects.why, exact=False)


def _in_turn(
    waits: Sequence[tuple[float, GangUnschedulable]],
    moments: Sequence[float],
    until: float | None,
) -> Iterator[Span]:
    """Yield a span per wait: until the next one, the next of `moments`, or else `until`."""
    for index, (at, why) in enumerate(waits):
        bounds = [moment for moment in moments if moment >= at]
        bounds += [moment for moment, _ in waits[index + 1 : index + 2]]
        end = min(bounds) if bounds else until
        yield Span(name="waits", start=at, end=end, detail=f"{why.gate}: {why.message}")


def _is_later(at: float, why: GangUnschedulable, admitted: float | None) -> bool:
    return why.gate != _ENTRY if admitted is None else at >= admitted


def _phases(history: JobHistory, objects: Objects) -> Iterator[Span]:
    for at, data in history.phases:
        is_said = data.message.startswith(data.reason)
        why = data.message if is_said else f"{data.reason}: {data.message}".removesuffix(": ")
        yield Span(name=f"phase {data.phase}", start=at, end=at, detail=why)
    if not history.phases and objects.phase and objects.phase_s is not None:
        at = objects.phase_s
        yield Span(name=f"phase {objects.phase}", start=at, end=at, exact=False)


def _placements(history: JobHistory) -> Iterator[Span]:
    for at, data in history.placed:
        detail = f"{plural(data.pods, 'pod')} on {plural(len(data.nodes), 'node')}"
        yield Span(name="placed", start=at, end=at, detail=detail)


def _pods(history: JobHistory, objects: Objects, start: float, end: float | None) -> Iterator[Span]:
    pods = {pod.uid: pod for pod in objects.pods}
    for uid, (_, bound) in history.bound.items():
        pods.setdefault(uid, PodTimes(key=bound.pod, uid=uid))
    for uid, (_, evicted) in history.evicted.items():
        pods.setdefault(uid, PodTimes(key=evicted.pod, uid=uid))
    for pod in sorted(pods.values(), key=lambda each: (each.key, each.uid)):
        span = _pod(pod, history, start, end)
        if span is not None:
            yield span


def _pod(
    pod: PodTimes, history: JobHistory, job_start: float, job_end: float | None
) -> Span | None:
    """Return the span of a pod: from its creation, or else from what is first known of it."""
    bound = history.bound.get(pod.uid)
    evicted = history.evicted.get(pod.uid)
    bound_s = bound[0] if bound else None
    placed_s = _placed(history, bound)
    earliest = job_start if history.admitted_s is None else max(history.admitted_s, job_start)
    made_s = None if pod.made_s is None else _at_least(pod.made_s, earliest)
    start = next((at for at in (made_s, placed_s, bound_s) if at is not None), None)
    if start is None:
        start = evicted[0] if evicted else None
    if start is None:
        return None
    running_s = None if pod.running_s is None else _at_least(pod.running_s, bound_s or start)
    ended_s = None if pod.ended_s is None else _at_least(pod.ended_s, running_s or start)
    end = next((at for at in (ended_s, evicted[0] if evicted else None) if at is not None), job_end)
    stages = (
        ("waits for a node", made_s, placed_s or bound_s, ""),
        ("is bound", placed_s, bound_s, bound[1].node if bound else ""),
        ("starts", bound_s, running_s, ""),
        ("runs", running_s, end, pod.phase),
    )
    return Span(
        name="pod",
        about=pod.key,
        start=start,
        end=None if end is None else max(end, start),
        detail="evicted" if evicted else pod.phase,
        exact=made_s is None and ended_s is None,
        spans=(*_stages(stages, end), *_eviction(evicted)),
    )


def _stages(
    stages: Iterable[tuple[str, float | None, float | None, str]], limit: float | None
) -> Iterator[Span]:
    """Yield the stages that have begun; one that has no end is the last, and ends with the pod."""
    for name, begun, ended, detail in stages:
        if begun is None:
            continue
        end = limit if ended is None else ended
        end = None if end is None else max(end, begun)
        yield Span(name=name, start=begun, end=end, detail=detail, exact=name == "is bound")
        if ended is None:
            return


def _eviction(evicted: tuple[float, PodEvicted] | None) -> Iterator[Span]:
    if evicted is not None:
        at, data = evicted
        yield Span(name=f"evicted by {data.by}", start=at, end=at, detail=data.reason)


def _placed(history: JobHistory, bound: tuple[float, PodBound] | None) -> float | None:
    """Return when the placement was published that a binding carries out.

    The scheduler reports a placement after publishing it; the binder's event may come first.
    """
    if bound is None:
        return None
    bound_s, data = bound
    latest = bound_s + _ANNOUNCED_LATE_S
    moments = [at for at, each in history.placed if at <= latest and data.node in each.nodes]
    return min(max(moments), bound_s) if moments else None


def _at_least(whole_s: float, bound: float) -> float:
    """Return the earliest moment of a whole second that is not before `bound`.

    One that lies wholly before it stays: clocks differ, or the bound is of another life.
    """
    return bound if whole_s <= bound < whole_s + _SECOND else whole_s
