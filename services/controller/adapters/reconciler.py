"""Base of all controllers: a work queue of keys, and `reconcile`, which handles one key.

A key is added when something that it depends on has changed. `reconcile` reads the present state
and does what is missing, wherever this replica owns the key. Most controllers reconcile the objects
of one kind (`KindReconciler`); where objects depend on each other and are few, one key stands for
all of them (`SingletonReconciler`). `services.controller.controllers` lists the controllers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec
from prometheus_client.registry import Collector
from typing_extensions import override

from services.controller.adapters.informers import Informers
from services.controller.adapters.ownership import PartitionOwnership
from services.controller.adapters.recorder import ControllerEvents, ControllerRecorder
from services.controller.adapters.store import Touched
from services.controller.adapters.writer import Writer
from services.controller.metrics import ControllerMetrics
from services.controller.settings import ControllerSettings
from shared.api.kinds import Kind
from shared.kube.client import Kube
from shared.runtime.env import Env
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.workqueue import WorkQueue


class ControllerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies that all controllers of a process share."""

    settings: ControllerSettings
    namespace: str
    """The namespace that Pumice runs in."""
    kube: Kube
    """For reads that `writer` does not offer."""
    informers: Informers
    writer: Writer
    recorder: ControllerRecorder
    events: ControllerEvents
    ownership: PartitionOwnership
    is_synced: Callable[[], bool]
    env: Env
    metrics: ControllerMetrics


class Reconciler(ABC):
    """A controller: a part of the service that handles the keys of its work queue."""

    name: str

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        """Reconcile `workers` keys of `queue` at a time."""
        self._manager = manager
        self._informers = manager.informers
        self._writer = manager.writer
        self._recorder = manager.recorder
        self._ownership = manager.ownership
        self._clock = manager.env.clock
        self._metrics = manager.metrics
        self._log = manager.env.log
        self.queue: Final = queue
        self._workers = workers
        manager.ownership.on_change(self._partition_changed)

    @abstractmethod
    async def reconcile(self, key: str) -> None:
        """Handle one key. Raises an error of `shared.runtime.errors` to be called again."""

    @abstractmethod
    def keys(self) -> Iterable[str]:
        """Return all keys, also those that other replicas own."""

    @abstractmethod
    def enqueue(self, touched: Touched) -> None:
        """Queue the keys that a change concerns."""

    def partition_key(self, key: str) -> str:
        """Return the text whose hash selects the partition of a key; for jobs the key itself."""
        return key

    async def run(self) -> None:
        """Serve the work queue until cancelled."""
        await self.queue.run(self.process, self._workers)

    def enqueue_all(self) -> None:
        """Queue all keys that this replica owns, at the first sync."""
        for key in self.keys():
            self.add(key)

    def add(self, key: str, after_s: float = 0.0) -> None:
        """Queue a key after some seconds, if this replica owns it."""
        if self._ownership.owns(self.partition_key(key)):
            self.queue.add_after(key, after_s)

    async def process(self, key: str) -> None:
        """Reconcile one key, if it is owned and known. Raises Retryable to be called again."""
        at = self.partition_key(key)
        if not self._ownership.owns(at) or not self._manager.is_synced():
            return  # every key is added once it is owned, and once the stores are whole
        with self._ownership.reconciling(at):
            try:
                await self.reconcile(key)
            except Gone:
                return  # the fact of its deletion adds the key again
            except Conflict as error:
                self._log.info("object_changed_meanwhile", controller=self.name, key=key)
                raise Retryable(str(error)) from error
            except Rejected as error:
                self._log.warning(
                    "object_refused", controller=self.name, key=key, reason=str(error)
                )
                raise Retryable(str(error)) from error

    def collectors(self) -> Iterable[Collector]:
        """Return the metrics that are computed at each scrape."""
        return ()

    def released(self, key: str) -> None:  # noqa: B027 - most controllers remember nothing
        """Drop the state that only the owner of a key may keep."""

    def _partition_changed(self, partition: int) -> None:
        for key in self.keys():
            at = self.partition_key(key)
            if self._ownership.partition(at) != partition:
                continue
            if self._ownership.owns(at):
                self.add(key)
            else:
                self.released(key)


class KindReconciler(Reconciler):
    """Reconciles the objects of one kind, each when it, or a job of it, has changed."""

    kind: ClassVar[Kind]

    @override
    def keys(self) -> Iterable[str]:
        return self._informers.by_kind[self.kind.token]

    @override
    def enqueue(self, touched: Touched) -> None:
        for key in touched.of(self.kind):
            self.add(key)

    @override
    def partition_key(self, key: str) -> str:
        """Return the key with its kind before it: objects of several kinds have the same key."""
        return f"{self.kind.token}/{key}"


class SingletonReconciler(Reconciler):
    """Reconciles all objects of some kinds under one key, so that one replica does."""

    watched: ClassVar[Sequence[Kind]]
    debounce_s: ClassVar[float] = 0.0
    """Seconds from a change to the reconciliation that it leads to."""
    every_s: ClassVar[float]
    """Seconds between two reconciliations where nothing changes."""

    @override
    def keys(self) -> Iterable[str]:
        return (self.name,)

    @override
    def enqueue(self, touched: Touched) -> None:
        if any(touched.of(kind) for kind in self.watched):
            self.enqueue_all()

    @override
    def enqueue_all(self) -> None:
        self.add(self.name, self.debounce_s)

    @override
    async def reconcile(self, key: str) -> None:
        self.add(key, self.every_s)
        await self.reconcile_all()

    @abstractmethod
    async def reconcile_all(self) -> None:
        """Handle all objects. Raises an error of `shared.runtime.errors` to be called again."""
