"""Timelines of jobs: the tree of `shared.trace` as ordered entries. Pure.

The tree is made from events, which have exact times, and from what the mirror knows of the job's
group and pods, with times in whole seconds.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pumice.events import CloudEvent, JobPhaseChanged, PodEvicted
from services.scheduler.engine.jobs.records import Job
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.live import without_hidden_preemptor
from services.visibility.queries.wording import controller_of
from shared.api import time as times
from shared.api.batch import ENDED
from shared.api.kinds import JOB, POD, PODGROUP
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroupConditionType, uid_of_job
from shared.api.visibility import ObjectRef, Timeline, TimelineEntry
from shared.trace import Objects, PodTimes, Span, trace

PODS_MAX: Final = 100
"""Most pods in one timeline."""
_WITH_A_GROUP: Final = frozenset({"Pending", "Running"})
"""Phases in which a Job has a PodGroup (J27)."""
_GROUP_MADE_S: Final = 5.0
"""Longest time from the event of a new Job to the fact of its PodGroup."""
_AT_THE_GATE: Final = "waits for its queue"
_OF_A_POD: Final = {"waits for a node": "Waits", "is bound": "Bound", "runs": "Running"}


class KnownJob(Objects, frozen=True, kw_only=True):
    """A job as the mirror has it now."""

    is_job: bool = True
    """Whether a Job of Volcano made the group, or none did."""
    group: str = ""
    """Key of the PodGroup."""
    owner: ObjectRef | None = None
    """What controls the PodGroup."""


def known_job(mirror: ClusterMirror, namespace: str, name: str) -> KnownJob:
    """Return what there is of a Job, or else of a PodGroup, of that name."""
    key = f"{namespace}/{name}"
    made = mirror.group_of(key)
    if made is not None:
        return _known(made, is_job=True)
    group = mirror.state.jobs.get(key)
    if group is not None and group.has_group and not group.owner_job:
        return _known(group, is_job=False)
    return KnownJob()


def _known(job: Job, *, is_job: bool) -> KnownJob:
    conditions = {condition.type: condition for condition in job.conditions}
    wait = conditions.get(PodGroupConditionType.UNSCHEDULABLE.value)
    waits = wait is not None and wait.status == "True" and not job.is_ready
    stamp = job.last_seen.stamps.get(wait) if wait is not None and waits else None
    return KnownJob(
        is_job=is_job,
        group=job.key,
        owner=controller_of(job),
        uid=_uid(job) if is_job else "",
        posted_s=times.read(job.created or None),
        queue=job.queue,
        group_made_s=times.read(job.created or None),
        waits_since_s=times.read(stamp.time) if stamp else None,
        why=wait.message if wait is not None and waits else "",
        pods=tuple(
            PodTimes(
                key=task.key,
                uid=task.uid,
                made_s=times.read(task.created or None),
                running_s=task.started if task.started != float("inf") else None,
                phase=task.fact_status.label,
            )
            for task in job.tasks.values()
        ),
    )


def _uid(job: Job) -> str:
    """Return the uid of a group's Job."""
    return uid_of_job(job.name, job.owner_job.partition("/")[2])


def timeline(
    namespace: str, name: str, events: Sequence[CloudEvent], known: KnownJob, now_s: float
) -> Timeline | None:
    """Return the life of a job, there or gone; None when nothing is known of one."""
    key = f"{namespace}/{name}"
    own = [_redacted(event) for event in events if is_about(event, key, known)]
    root = trace(key if known.is_job else "", own, known)
    if root is None:
        return None
    about = ObjectRef(
        kind=JOB.kind if known.is_job else PODGROUP.kind, namespace=namespace, name=name
    )
    pods = [span for span in root.spans if span.name == "pod"]
    entries = [*_of_job(root, about), *(e for pod in pods[:PODS_MAX] for e in _of_pod(pod))]
    gone = _is_gone(root.phase, own, known, now_s)
    if gone:
        entries = [replace(each, goes_on=False) for each in entries]
    return Timeline(
        metadata=ObjectMeta(name=name, namespace=namespace),
        owner=known.owner,
        queue=root.queue,
        phase=root.phase,
        gone=gone,
        entries=tuple(sorted(entries, key=lambda each: (each.at, _RANKS.index(each.what)))),
        hidden_pods=max(0, len(pods) - PODS_MAX),
    )


def _is_gone(phase: str, events: Sequence[CloudEvent], known: KnownJob, now_s: float) -> bool:
    """Return whether the job was deleted before its end: then it has no PodGroup.

    A job in another phase may be there without a group, and so may one whose phase has a reason,
    such as a claim that is missing. One that is new has its group in a moment.
    """
    last_s = max((event.time.timestamp() for event in events), default=now_s)
    phases = [event.data for event in events if isinstance(event.data, JobPhaseChanged)]
    if phase == "Pending" and phases and phases[-1].reason:
        return False
    return not known.group and phase in _WITH_A_GROUP and now_s - last_s > _GROUP_MADE_S


def is_about(event: CloudEvent, key: str, known: KnownJob) -> bool:
    """Return whether an event belongs to the job of a key."""
    if known.is_job:
        return event.data.about_job == key
    return not event.data.about_job and getattr(event.data, "gang", "") == known.group


def _redacted(event: CloudEvent) -> CloudEvent:
    if isinstance(event.data, PodEvicted):
        return replace(event, data=without_hidden_preemptor(event.data))
    return event


_RANKS: Final = (
    "Created", "Admitted", "Waits", "Placed", "Bound", "Running", "Evicted", "Phase", "Ended",
)  # fmt: skip
"""Order of what happened at one moment."""


def _of_job(root: Span, about: ObjectRef) -> Iterator[TimelineEntry]:
    yield _entry(root, "Created", about, ends=root.start, message="")
    for span in root.spans:
        if span.name == _AT_THE_GATE:
            yield from _admission(span, about)
        elif span.name == "waits":
            yield _entry(span, "Waits", about)
        elif span.name == "placed":
            yield _entry(span, "Placed", about)
        elif span.name.startswith("phase "):
            yield from _phase(span, about)


def _admission(span: Span, about: ObjectRef) -> Iterator[TimelineEntry]:
    reasons = [each.detail for each in span.spans]
    yield _entry(span, "Waits", about, message=reasons[-1] if reasons else span.name)
    if span.end is not None:
        yield _moment(span.end, "Admitted", about, span.detail)


def _phase(span: Span, about: ObjectRef) -> Iterator[TimelineEntry]:
    phase = span.name.removeprefix("phase ")
    message = f"{phase}: {span.detail}" if span.detail else phase
    yield _entry(span, "Ended" if phase in ENDED else "Phase", about, message=message)


def _of_pod(pod: Span) -> Iterator[TimelineEntry]:
    namespace, _, name = pod.about.partition("/")
    about = ObjectRef(kind=POD.kind, namespace=namespace, name=name)
    for span in pod.spans:
        what = _OF_A_POD.get(span.name)
        if what is not None:
            yield _entry(span, what, about, message=span.detail or span.name)
        elif span.name.startswith("evicted"):
            yield _entry(span, "Evicted", about, message=f"{span.name}: {span.detail}")


def _entry(
    span: Span,
    what: str,
    about: ObjectRef,
    *,
    ends: float | None = None,
    message: str | None = None,
) -> TimelineEntry:
    end = span.end if ends is None else ends
    lasted = None if end is None or end == span.start else round(end - span.start, 3)
    return TimelineEntry(
        at=times.format_micro(span.start),
        seconds=lasted,
        goes_on=what == "Waits" and end is None,
        approximate=not span.exact,
        what=what,
        about=about,
        message=span.detail if message is None else message,
    )


def _moment(at: float, what: str, about: ObjectRef, message: str) -> TimelineEntry:
    return TimelineEntry(at=times.format_micro(at), what=what, about=about, message=message)
