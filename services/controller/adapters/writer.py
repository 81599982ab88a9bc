"""Sends all writes of the controllers: bounded, counted, and folded into the informers' stores.

Last step of the flow "Job event → pods created". All controllers of a process share one limit on
concurrent requests. The response to a write is in the stores before the call returns, so the next
reconciliation sees it. An object that was deleted is removed from the stores, and one that another
client has written is read again.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from services.controller.adapters.informers import Informers
from services.controller.adapters.write_queue import FIRST, WriteQueue, WriteRank
from services.controller.metrics import ControllerMetrics
from shared.api import kinds
from shared.api.batch import Job
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.patch import merge_patch
from shared.kube.client import Kube, Propagation
from shared.kube.decode import partial_object
from shared.kube.errors import Refusal
from shared.runtime.errors import Conflict, Gone, PumiceError, Rejected, Retryable
from shared.runtime.tasks import TaskGroup

_NAMESPACE_ENDS: Final = "NamespaceTerminating"


class Writer:
    """Sends requests; methods raise `Retryable`, `Conflict`, `Gone` and `Rejected` like `Kube`."""

    def __init__(
        self, kube: Kube, informers: Informers, *, queue: WriteQueue, metrics: ControllerMetrics
    ) -> None:
        self._kube = kube
        self._informers = informers
        self.queue = queue
        self._metrics = metrics

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        """Return an object (JSON), read from the API server."""
        with self._informers.request():
            async with self.queue.slot():
                reply = await self._kube.get(kind, namespace, name)
            self._fold(kind, reply)
        return reply

    async def get_job(self, namespace: str, name: str) -> Job | None:
        """Return a job, read from the API server; None if it does not exist."""
        try:
            found: Job = kinds.decode(kinds.JOB, await self.get(kinds.JOB, namespace, name))
        except Gone:
            return None
        return found

    async def create(
        self, kind: Kind, namespace: str, body: dict[str, Any] | bytes, *, rank: WriteRank = FIRST
    ) -> bytes:
        """Create an object and return it (JSON). Raises `AlreadyExists` if the name is in use."""
        request = self._kube.create(kind, namespace, body)
        with self._informers.request():
            reply = await self._send("create", kind, request, rank)
            self._fold(kind, reply)
        return reply

    async def create_job(self, job: Job) -> Job:
        """Create a job and return it. Raises `AlreadyExists` if the name is in use."""
        body = kinds.encode(kinds.JOB, job)
        made: Job = kinds.decode(
            kinds.JOB, await self.create(kinds.JOB, job.metadata.namespace, body)
        )
        return made

    async def patch(
        self,
        kind: Kind,
        meta: ObjectMeta,
        patch: dict[str, Any],
        *,
        version: str = "",
        subresource: str = "",
    ) -> None:
        """Patch an object; with `version` only if it has that resourceVersion.

        Raises Conflict if others wrote meanwhile; their version is in the stores then.
        """
        namespace, name = meta.namespace, meta.name
        request = self._kube.patch(
            kind,
            namespace,
            name,
            patch,
            uid=meta.uid,
            resource_version=version,
            subresource=subresource,
        )
        try:
            with self._informers.request():
                try:
                    reply = await self._send("patch", kind, request)
                except Gone:
                    self._fold_gone(kind, meta)
                    raise
                self._fold(kind, reply)
        except Conflict:
            if version:
                await self.get(kind, namespace, name)
            raise

    async def patch_status(
        self, kind: Kind, meta: ObjectMeta, before: object, after: object
    ) -> None:
        """Patch the status of the version that was decided on; errors as of `patch`."""
        patch = {"status": merge_patch(before, after)}
        await self.patch(kind, meta, patch, version=meta.resource_version, subresource="status")

    async def delete(
        self,
        kind: Kind,
        meta: ObjectMeta,
        *,
        propagation: Propagation | None = None,
        lingers: bool = False,
    ) -> None:
        """Delete an object; a deleted one is no error.

        With `lingers` an object with a grace period or finalizers stays in the stores.
        """
        request = self._kube.delete(
            kind, meta.namespace, meta.name, uid=meta.uid, propagation=propagation
        )
        with self._informers.request():
            try:
                reply = await self._send("delete", kind, request)
            except Gone:
                self._fold_gone(kind, meta)
                return
            left = partial_object(reply).metadata if lingers else ObjectMeta()
            lives_on = left.deletion_timestamp is not None and (
                left.finalizers or left.deletion_grace_period_seconds
            )
            if lives_on and left.uid == meta.uid:
                self._fold(kind, reply)
            else:
                self._fold_gone(kind, meta)

    async def _send(
        self, verb: str, kind: Kind, request: Awaitable[bytes], rank: WriteRank = FIRST
    ) -> bytes:
        async with self.queue.slot(rank):
            reply = await request
        self._metrics.writes.labels(verb, kind.token).inc()
        return reply

    def _fold(self, kind: Kind, reply: bytes) -> None:
        if kind.token in self._informers.by_kind:
            self._informers.written(kind, reply)

    def _fold_gone(self, kind: Kind, meta: ObjectMeta) -> None:
        if kind.token in self._informers.by_kind:
            self._informers.deleted(kind, meta.key, meta.uid)


async def apply(writes: Sequence[Callable[[], Awaitable[None]]], *, width: int) -> None:
    """Carry out `writes`, `width` at a time; then raise the worst failure, if there was any.

    All writes are tried in spite of failures, except that an unreachable server ends them. A single
    write is carried out at once, so that concurrent ones do not overtake it.
    """
    if len(writes) == 1:
        await writes[0]()
        return
    failures: list[PumiceError] = []
    rest = iter(writes)

    async def work() -> None:
        for write in rest:
            try:
                await write()
            except PumiceError as error:
                failures.append(error)
                if isinstance(error, Retryable):
                    return

    async with TaskGroup() as group:
        for number in range(min(width, len(writes))):
            group.create_task(work(), name=f"write-{number}")
    for severity in (Retryable, Conflict, PumiceError):
        for failure in failures:
            if isinstance(failure, severity):
                raise failure


def namespace_ends(error: Rejected) -> bool:
    """Tell whether a create was refused because the namespace is being deleted."""
    causes = error.status.causes if isinstance(error, Refusal) else ()
    return any(cause.reason == _NAMESPACE_ENDS for cause in causes)
