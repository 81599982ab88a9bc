"""Reads and writes that the keepers of bare pods, CronJobs, flows, templates and the network share.

Each answer is folded into the replica at once. What the API server refuses for good is a value,
because the keepers say it in an event; trouble (Retryable, Conflict) is raised and the look begins
again.
"""

from collections.abc import Callable
from typing import Any, Final

from services.controller.adapters.replica import Replica
from services.controller.adapters.touched import Touched
from services.controller.metrics import ControllerMetrics
from shared.api import kinds
from shared.api.batch import Job
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.patch import merge_patch
from shared.kube.client import Kube, Propagation
from shared.kube.errors import AlreadyExists, Refusal
from shared.runtime.errors import Conflict, Gone, Rejected

_NAMESPACE_ENDS: Final = "NamespaceTerminating"


class Taken(Exception):  # noqa: N818 - a fact, not an error: the name is in use
    """An object of that name is there already."""


class Objects:
    """See the module; `touch` is told what deserves a look after each answer."""

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        touch: Callable[[Touched], None],
        metrics: ControllerMetrics,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._touch = touch
        self._metrics = metrics

    async def read_job(self, namespace: str, name: str) -> Job | None:
        """Return a job as the API server has it, None when there is none."""
        try:
            answer = await self._kube.get(kinds.JOB, namespace, name)
        except Gone:
            return None
        self._touch(self._replica.written(kinds.JOB, answer))
        found: Job = kinds.decode(kinds.JOB, answer)
        return found

    async def create_job(self, job: Job) -> Job:
        """Create a job; Taken when the name is in use, Rejected when it cannot be."""
        body = kinds.encode(kinds.JOB, job)
        answer = await self.create(kinds.JOB, job.metadata.namespace, body)
        made: Job = kinds.decode(kinds.JOB, answer)
        return made

    async def delete_job(self, job: Job) -> None:
        """Delete a job and what hangs on it; one that is gone is deleted."""
        await self.delete(kinds.JOB, job.metadata, propagation="Background")

    async def write_status(
        self, kind: Kind, meta: ObjectMeta, before: object, after: object
    ) -> None:
        """Patch the status of the version that was decided on.

        Raises Conflict when somebody else wrote meanwhile; what they wrote has been read then.
        """
        patch = {"status": merge_patch(before, after)}
        try:
            answer = await self._kube.patch(
                kind,
                meta.namespace,
                meta.name,
                patch,
                uid=meta.uid,
                resource_version=meta.resource_version,
                subresource="status",
            )
        except Gone:
            self._touch(self._replica.deleted(kind, meta.key, meta.uid))
            raise
        except Conflict:
            fresh = await self._kube.get(kind, meta.namespace, meta.name)
            self._touch(self._replica.written(kind, fresh))
            raise
        self._metrics.writes.labels("patch", kind.token).inc()
        self._touch(self._replica.written(kind, answer))

    async def create(self, kind: Kind, namespace: str, body: dict[str, Any] | bytes) -> bytes:
        """Create an object and return it; Taken when the name is in use."""
        try:
            answer = await self._kube.create(kind, namespace, body)
        except AlreadyExists as error:
            raise Taken from error
        self._metrics.writes.labels("create", kind.token).inc()
        self._touch(self._replica.written(kind, answer))
        return answer

    async def patch(self, kind: Kind, meta: ObjectMeta, patch: dict[str, Any]) -> None:
        """Patch an object."""
        answer = await self._kube.patch(kind, meta.namespace, meta.name, patch, uid=meta.uid)
        self._metrics.writes.labels("patch", kind.token).inc()
        self._touch(self._replica.written(kind, answer))

    async def delete(
        self, kind: Kind, meta: ObjectMeta, *, propagation: Propagation | None = None
    ) -> None:
        """Delete an object; one that is gone is deleted."""
        try:
            await self._kube.delete(
                kind, meta.namespace, meta.name, uid=meta.uid, propagation=propagation
            )
        except Gone:
            pass
        else:
            self._metrics.writes.labels("delete", kind.token).inc()
        self._touch(self._replica.deleted(kind, meta.key, meta.uid))


def namespace_ends(error: Rejected) -> bool:
    """Tell whether a create was refused because the namespace is being deleted."""
    causes = error.status.causes if isinstance(error, Refusal) else ()
    return any(cause.reason == _NAMESPACE_ENDS for cause in causes)
