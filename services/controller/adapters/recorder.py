"""What the controller tells of Jobs, Queues and other objects as Kubernetes Events (J34, Q05)."""

from typing import Final

from services.controller.metrics import ControllerMetrics
from shared.api.batch import Job
from shared.api.kinds import JOB, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.kube.client import Kube
from shared.kube.events import EventWriter, Note
from shared.runtime.clock import Clock
from shared.runtime.logs import Logger

COMPONENT: Final = "vc-controller-manager"


class Recorder(EventWriter):
    """Takes what there is to tell and writes it in the background; a part of the service."""

    def __init__(
        self,
        kube: Kube,
        *,
        instance: str,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        super().__init__(
            kube,
            component=COMPONENT,
            instance=instance,
            clock=clock,
            results=metrics.events,
            log=log,
        )

    def tell(
        self, job: Job, reason: str, message: str, *, warning: bool = False, occasion: str = ""
    ) -> None:
        """Take one Event on a job; never waits."""
        self.tell_of(JOB, job.metadata, reason, message, warning=warning, occasion=occasion)

    def tell_queue(
        self, queue: Queue, reason: str, message: str, *, occasion: str, warning: bool = False
    ) -> None:
        """Take one Event on a queue (Q05); `occasion` is the uid of the order behind it."""
        self.tell_of(QUEUE, queue.metadata, reason, message, warning=warning, occasion=occasion)

    def tell_of(
        self,
        kind: Kind,
        about: ObjectMeta,
        reason: str,
        message: str,
        *,
        occasion: str = "",
        warning: bool = False,
    ) -> None:
        """Take one Event on an object of any kind; `occasion` as in Note."""
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
