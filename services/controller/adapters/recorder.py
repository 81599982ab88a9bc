"""What the controller tells of Jobs, Queues and other objects as Kubernetes Events (J34, Q05)."""

from typing import Final

from services.controller.adapters.informers import Informers
from services.controller.adapters.store import ObjectRef
from services.controller.metrics import ControllerMetrics
from shared.api.batch import Job
from shared.api.bus import Command
from shared.api.kinds import COMMAND, JOB, KINDS, QUEUE, Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.kube.events import EventWriter, Note
from shared.runtime.clock import Clock
from shared.runtime.contain import REASON, Containment
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
        contain: Containment,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        super().__init__(
            kube,
            component=COMPONENT,
            instance=instance,
            clock=clock,
            results=metrics.events,
            contain=contain,
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

    def tell_ignored(self, command: Command, why: str) -> None:
        """Take one Event on a Command without effect (J05)."""
        message = f"Command {command.action} has no effect: {why}"
        self.tell_of(COMMAND, command.metadata, "CommandIgnored", message, warning=True)

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


class SetAsideEvents:
    """Tells on an object that it was set aside: takes the news of a `Containment`."""

    def __init__(self, informers: Informers, recorder: Recorder) -> None:
        self._informers = informers
        self._recorder = recorder

    def __call__(self, token: str, key: str, uid: str, message: str) -> None:
        """Tell of one key, unless it is none of an object or the object is gone."""
        kind = KINDS.get(token)
        about = self._informers.metadata_of(ObjectRef(token, key))
        if uid:
            namespace, name = split_key(key)
            about = ObjectMeta(namespace=namespace, name=name, uid=uid)
        if kind is not None and about is not None:
            self._recorder.tell_of(kind, about, REASON, message, warning=True)
