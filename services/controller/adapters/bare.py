"""Gives bare pods of our schedulers a PodGroup, then names it on the pod (P01)."""

from collections.abc import Callable
from typing import Final

from services.controller.adapters.ownership import Ownership
from services.controller.adapters.replica import Replica, Touched
from services.controller.metrics import ControllerMetrics
from services.controller.podgroup.groups import GroupFor, group_for
from shared.api import keys, kinds
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Gone, Rejected
from shared.runtime.logs import Logger
from shared.runtime.mailbox import Mailbox


class BarePods:
    """The handler of the bare pods' mailbox; keys are pods."""

    name: Final = "bare-pods"

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        ownership: Ownership,
        mailbox: Mailbox[str],
        is_synced: Callable[[], bool],
        touch: Callable[[Touched], None],
        inherit: bool,
        workers: int,
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._ownership = ownership
        self._mailbox = mailbox
        self._is_synced = is_synced
        self._touch = touch
        self._inherit = inherit
        self._workers = workers
        self._metrics = metrics
        self._log = log
        ownership.on_change(lambda _: self.touch_all())

    async def run(self) -> None:
        """Serve bare pods for ever."""
        await self._mailbox.run(self.look, self._workers)

    def touch(self, touched: Touched) -> None:
        """Have pods looked at."""
        for key in touched.bare_pods:
            if self._ownership.owns(key):
                self._mailbox.poke_later(key, 0.0)

    def touch_all(self) -> None:
        """Have every bare pod that this replica owns looked at."""
        for key in self._replica.bare_pods:
            if self._ownership.owns(key):
                self._mailbox.poke_later(key, 0.0)

    async def look(self, key: str) -> None:
        """Give one pod its group."""
        pod = self._replica.bare_pods.get(key)
        if pod is None or not self._ownership.owns(key):
            return
        if not self._is_synced():
            return  # everything is looked at once it is
        wanted = group_for(pod, {}, inherit=self._inherit)
        namespace = pod.metadata.namespace
        try:
            await self._ensure(namespace, wanted)
            patch = {"metadata": {"annotations": {keys.GROUP_NAME: wanted.name}}}
            answer = await self._kube.patch(
                kinds.POD, namespace, pod.metadata.name, patch, uid=pod.metadata.uid
            )
        except Gone:
            return
        except Rejected as error:
            self._log.warning("group_refused", pod=key, group=wanted.name, reason=str(error))
            return
        self._metrics.writes.labels("patch", kinds.POD.token).inc()
        self._touch(self._replica.written(kinds.POD, answer))

    async def _ensure(self, namespace: str, wanted: GroupFor) -> None:
        if f"{namespace}/{wanted.name}" in self._replica.groups:
            return
        try:
            answer = await self._kube.create(kinds.PODGROUP, namespace, wanted.body)
        except AlreadyExists:
            return
        self._metrics.writes.labels("create", kinds.PODGROUP.token).inc()
        self._touch(self._replica.written(kinds.PODGROUP, answer))
