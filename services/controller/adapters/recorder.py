"""Kubernetes Events of Jobs, Queues and other objects (J34, Q05), and subscribers' events.

Subscribers get phases of jobs and states of queues. The id of a job's event says which entry
into which phase it is: one that is announced again, by a repeated reconciliation or by the
successor of a process that died before it could announce it, is stored once.
"""

from typing import Final

from pumice.events import JobPhaseChanged, QueueStateChanged
from services.controller.adapters.informers import Informers
from services.controller.adapters.store import StoreKey
from services.controller.metrics import ControllerMetrics
from shared.api import time
from shared.api.batch import Command, Job, JobPhase, JobStatus
from shared.api.kinds import COMMAND, JOB, KINDS, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, Queue, QueueState
from shared.bus.event_publisher import EventPublisher
from shared.contracts.subjects import split_key
from shared.jobs.expected_durations import of_job, template_of
from shared.kube.client import Kube
from shared.kube.events import EventWriter, Note
from shared.runtime.env import Env
from shared.runtime.quarantine import REASON

COMPONENT: Final = "vc-controller-manager"


class ControllerRecorder(EventWriter):
    """Records Kubernetes Events and writes them in the background; a part of the service."""

    def __init__(self, kube: Kube, *, env: Env, metrics: ControllerMetrics) -> None:
        super().__init__(kube, component=COMPONENT, env=env, results=metrics.events)

    def event(
        self, job: Job, reason: str, message: str, *, warning: bool = False, occasion: str = ""
    ) -> None:
        """Record an Event on a job; never waits."""
        self.object_event(JOB, job.metadata, reason, message, warning=warning, occasion=occasion)

    def queue_event(
        self, queue: Queue, reason: str, message: str, *, occasion: str, warning: bool = False
    ) -> None:
        """Record an Event on a queue (Q05); `occasion` is the uid of the Command behind it."""
        self.object_event(
            QUEUE, queue.metadata, reason, message, warning=warning, occasion=occasion
        )

    def ignored_command_event(self, command: Command, why: str) -> None:
        """Record an Event on a Command without effect (J05)."""
        message = f"Command {command.action} has no effect: {why}"
        self.object_event(COMMAND, command.metadata, "CommandIgnored", message, warning=True)

    def object_event(
        self,
        kind: Kind,
        about: ObjectMeta,
        reason: str,
        message: str,
        *,
        occasion: str = "",
        warning: bool = False,
    ) -> None:
        """Record an Event on an object of any kind; `occasion` as in Note."""
        note = Note(
            kind=kind,
            namespace=about.namespace,
            about=about.name,
            uid=about.uid,
            reason=reason,
            message=message,
            warning=warning,
            occasion=occasion,
        )
        self.take(note)


class QuarantineEvents:
    """Records an Event on each object that was quarantined; a `Quarantine` calls it."""

    def __init__(self, informers: Informers, recorder: ControllerRecorder) -> None:
        self._informers = informers
        self._recorder = recorder

    def __call__(self, token: str, key: str, uid: str, message: str) -> None:
        """Record the Event, unless the key is not that of an object or the object is gone."""
        kind = KINDS.get(token)
        about = self._informers.metadata_of(StoreKey(token, key))
        if uid:
            namespace, name = split_key(key)
            about = ObjectMeta(namespace=namespace, name=name, uid=uid)
        if kind is not None and about is not None:
            self._recorder.object_event(kind, about, REASON, message, warning=True)


_RECENT_S: Final = 100.0
"""Seconds for which an event is remembered; the stream drops duplicates for two minutes."""


class ControllerEvents:
    """Turns what the controller has written into events."""

    def __init__(self, event_publisher: EventPublisher) -> None:
        self._event_publisher = event_publisher

    def phase(self, job: Job, *, was: str, status: JobStatus, group: PodGroup | None) -> None:
        """Announce that a job, which may have its PodGroup, has entered a phase."""
        state = status.state
        phase = state.phase.value if state.phase is not None else ""
        has_run = was == JobPhase.RUNNING and phase != was
        stated = of_job(job) if has_run else None
        event = JobPhaseChanged(
            job=job.metadata.key,
            uid=job.metadata.uid,
            phase=phase,
            previous=was,
            queue=job.spec.queue,
            reason=state.reason,
            message=state.message,
            version=status.version,
            retry_count=status.retry_count,
            template=template_of(job.metadata.key, job.metadata.annotations),
            min_resources=_needed(group),
            seconds_running=_seconds_running(status) if has_run else 0.0,
            seconds_stated=0.0 if stated is None else stated.seconds,
            stated_by="" if stated is None else stated.basis.value,
        )
        entry = f"{phase}-{status.retry_count}-{state.last_transition_time}"
        self._event_publisher.publish(event, f"{job.metadata.uid}/{entry}")

    def announce_if_fresh(self, job: Job, group: PodGroup | None, *, now: float) -> None:
        """Announce the present phase of a job that came from another process, if it is fresh."""
        since = time.read(job.status.state.last_transition_time)
        if since is None or now - since > _RECENT_S:
            return
        before = job.status.conditions[-2].status if len(job.status.conditions) > 1 else ""
        self.phase(job, was=before, status=job.status, group=group)

    def queue(self, queue: Queue, *, was: QueueState | None, state: QueueState) -> None:
        """Announce the new state of a queue; `queue` is the object as it was written."""
        meta = queue.metadata
        event = QueueStateChanged(
            queue=meta.name, uid=meta.uid, state=state.value, previous=was.value if was else ""
        )
        entry = f"{state}-{meta.resource_version}" if was else f"{state}-first"
        self._event_publisher.publish(event, f"{meta.uid}/{entry}")


def _needed(group: PodGroup | None) -> dict[str, str]:
    """Return what a gang needs before it may enter its queue, every amount as a text."""
    needed = None if group is None else group.spec.min_resources
    return {name: str(amount) for name, amount in (needed or {}).items()}


def _seconds_running(status: JobStatus) -> float:
    """Return for how long a job was in the phase Running that it has left, in whole seconds."""
    begun = [c.last_transition_time for c in status.conditions if c.status == JobPhase.RUNNING]
    since, until = (
        time.read(begun[-1]) if begun else None,
        time.read(status.state.last_transition_time),
    )
    return 0.0 if since is None or until is None else max(0.0, until - since)
