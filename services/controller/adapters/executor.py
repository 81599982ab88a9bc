"""Carries out the effects of a pass over a Job.

Third step of the flow "Job event → pods created". Patches contain our own fields only and the uid
of the object that was decided on. Deleting a deleted object succeeds. Methods raise `Retryable`
(try again later), `Conflict` (another client wrote: decide again) or `Rejected` (the API server
will never accept it).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from services.controller.adapters.companions import (
    Companions,
    former_owner,
    is_leaving,
    must_be_ours,
)
from services.controller.adapters.recorder import ControllerRecorder
from services.controller.adapters.records import JobRecord
from services.controller.adapters.write_queue import WriteRank
from services.controller.adapters.writer import Writer, apply
from services.controller.job import effects
from services.controller.job.facts import pod_view
from services.controller.job.rejected_creates import quota_of
from services.controller.job.status import INVALID_SPEC
from shared.api import keys, kinds
from shared.api.base import Json
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.contracts.subjects import split_key
from shared.jobplugins.foreign import PluginFailed
from shared.kube.decode import partial_object
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Gone, Rejected, Retryable
from shared.runtime.faults import Faults

Named = (
    effects.MarkPod
    | effects.DeletePod
    | effects.PatchGroup
    | effects.DeleteGroup
    | effects.DeleteCommand
)
"""Effects on one object of the job's namespace, by name and uid."""
CREATORS: Final = 32
"""Pods of one task that are created concurrently."""
ERRORS_SHOWN: Final = 3
"""Errors that one event quotes; the others, often equal, are counted."""
TOO_LARGE: Final = (
    "spec.tasks: the job is larger than a message may be (1 MiB compressed): put scripts and data "
    "into ConfigMaps or images"
)


class EffectExecutor:
    """Carries out effects; raises the errors of `Writer`."""

    def __init__(self, writer: Writer, *, recorder: ControllerRecorder, faults: Faults) -> None:
        self._writer = writer
        self._recorder = recorder
        self._faults = faults
        self._companions = Companions(writer, recorder=recorder)
        self._handlers: dict[type, Callable[[JobRecord, Any], Awaitable[None]]] = {
            effects.RecordEvent: self._record,
            effects.WriteJobStatus: self._write_status,
            effects.AmendJob: self._amend_job,
            effects.MarkPod: self._mark_pod,
            effects.DeletePod: self._delete_pod,
            effects.CreateGroup: self._create_group,
            effects.PatchGroup: self._patch_group,
            effects.DeleteGroup: self._delete_group,
            effects.DeleteCommand: self._delete_command,
            effects.EnsureCompanions: self._companions.ensure,
            effects.DropCompanions: self._companions.drop,
        }

    async def stage(self, record: JobRecord, stage: Iterable[effects.Effect]) -> None:
        """Carry out all effects of one stage, then raise the worst error if there was one."""
        effects_now = list(stage)
        record.rejected.stopped_tasks.clear()
        if deleted := sum(1 for e in effects_now if isinstance(e, effects.DeletePod)):
            self._recorder.event(record.job, "SuccessfulDelete", f"Deleting {deleted} pods")
        try:
            await apply(list(self._calls(record, effects_now)), width=CREATORS)
        finally:
            self._record_refusals(record)

    def _record_refusals(self, record: JobRecord) -> None:
        """Record one Event for the pods of a stage that could not be created or deleted (J34)."""
        for reason, doing in (("FailedCreate", "creating"), ("FailedDelete", "deleting")):
            if errors := sorted(record.refused.pop(reason, ())):
                rest = len(errors) - ERRORS_SHOWN
                more = f" and {rest} more" if rest > 0 else ""
                message = f"Error {doing} pods: {'; '.join(errors[:ERRORS_SHOWN])}{more}"
                self._recorder.event(record.job, reason, message, warning=True)

    def _calls(
        self, record: JobRecord, stage: Iterable[effects.Effect]
    ) -> Iterator[Callable[[], Awaitable[None]]]:
        ranks = self._writer.queue.ranks(record.job.metadata.namespace)
        for effect in stage:
            if isinstance(effect, effects.CreatePods):
                self._announce_pods(record, effect)
                for index in effect.indexes:
                    rank = ranks.next()
                    yield lambda e=effect, i=index, r=rank: self._create_pod(record, e, i, r)  # type: ignore[misc]
            else:
                carry_out = self._handlers[type(effect)]
                yield lambda e=effect, c=carry_out: c(record, e)  # type: ignore[misc]

    async def _record(self, record: JobRecord, effect: effects.RecordEvent) -> None:
        self._recorder.event(
            record.job,
            effect.reason,
            effect.message,
            warning=effect.warning,
            occasion=effect.occasion,
        )

    async def _delete_command(self, record: JobRecord, effect: effects.DeleteCommand) -> None:
        await self._delete(record, kinds.COMMAND, effect)

    # Status

    async def _write_status(self, record: JobRecord, effect: effects.WriteJobStatus) -> None:
        try:
            await self._patch_job(record, {"status": effect.patch}, "status")
        except Rejected as error:
            doing = "update" if effect.was is not None else "initialize"
            message = f"Failed to {doing} job status, err: {error}"
            self._recorder.event(record.job, "JobStatusError", message, warning=True)
            raise

    async def _amend_job(self, record: JobRecord, effect: effects.AmendJob) -> None:
        try:
            await self._patch_job(record, effect.patch, "")
        except Rejected as error:
            reason = "PVCError" if "spec" in effect.patch else "JobStatusError"
            self._recorder.event(
                record.job, reason, f"Failed to update job, err: {error}", warning=True
            )
            raise

    async def _patch_job(self, record: JobRecord, patch: Json, subresource: str) -> None:
        """Patch the version that was decided on; a write of others makes it a Conflict."""
        await self._writer.patch(
            kinds.JOB,
            record.job.metadata,
            patch,
            version=str(record.rv),
            subresource=subresource,
        )

    async def refuse_oversized(self, key: str, uid: str) -> None:
        """Record on a job that is too large for the bus that it cannot run."""
        namespace, name = split_key(key)
        meta = ObjectMeta(name=name, namespace=namespace, uid=uid)
        state = {"phase": "Pending", "reason": INVALID_SPEC, "message": TOO_LARGE}
        try:
            await self._writer.patch(
                kinds.JOB, meta, {"status": {"state": state}}, subresource="status"
            )
        except Gone:
            return
        self._recorder.event(Job(metadata=meta), INVALID_SPEC, TOO_LARGE, warning=True)

    # Pods

    def _announce_pods(self, record: JobRecord, effect: effects.CreatePods) -> None:
        task = effect.builder.task.name
        self._recorder.event(
            record.job,
            "SuccessfulCreate",
            f"Creating {len(effect.indexes)} pods of task {task} (version {effect.version})",
        )

    async def _create_pod(
        self, record: JobRecord, effect: effects.CreatePods, index: int, rank: WriteRank
    ) -> None:
        namespace, task = record.job.metadata.namespace, effect.builder.task.name
        name = f"{record.job.metadata.name}-{task}-{index}"
        if (quota := record.rejected.stopped_tasks.get(task)) is not None:
            record.rejected.over_quota(name, quota)  # its pods are equal
            return
        try:
            body = _body(effect, index)
            await self._writer.create(kinds.POD, namespace, body, rank=rank)
        except AlreadyExists:
            await self._adopt(record, name)
        except Rejected as error:
            quota = quota_of(str(error))
            if not quota:
                record.refused["FailedCreate"].append(str(error))
                raise
            record.rejected.over_quota(name, quota)
            record.rejected.stopped_tasks[task] = quota
        else:
            record.rejected.made(name)
            self._faults.point("controller.mid-create")

    async def _adopt(self, record: JobRecord, name: str) -> None:
        """Adopt a pod of that name if the job owns it; else report it (J24)."""
        body = await self._writer.get(kinds.POD, record.job.metadata.namespace, name)
        pod: Pod = kinds.decode(kinds.POD, body)
        found = pod_view(pod)
        if found is not None and found[0] == record.uid:
            record.rejected.made(name)
            return
        if is_leaving(record, pod.metadata):
            record.rejected.name_in_use(
                name, f"Pod {name} of {former_owner(pod.metadata)} still stops"
            )
            return
        message = f"Pod {name} exists and does not belong to this Job: delete or rename it"
        record.refused["FailedCreate"].append(message)
        raise Rejected(message, field="metadata.name")

    async def _delete_pod(self, record: JobRecord, effect: effects.DeletePod) -> None:
        try:
            await self._delete(record, kinds.POD, effect)
        except Rejected as error:
            record.refused["FailedDelete"].append(str(error))
            raise

    async def _mark_pod(self, record: JobRecord, effect: effects.MarkPod) -> None:
        mark: Json = {"metadata": {"annotations": {keys.OUT_OF_SYNC: "true"}}}
        with suppress(Gone):
            await self._writer.patch(kinds.POD, _meta(record, effect), mark)

    # PodGroup and companions

    async def _patch_group(self, record: JobRecord, effect: effects.PatchGroup) -> None:
        await self._writer.patch(kinds.PODGROUP, _meta(record, effect), effect.patch)

    async def _delete_group(self, record: JobRecord, effect: effects.DeleteGroup) -> None:
        await self._delete(record, kinds.PODGROUP, effect)

    async def _create_group(self, record: JobRecord, effect: effects.CreateGroup) -> None:
        namespace, body = record.job.metadata.namespace, effect.body
        name = body["metadata"]["name"]
        try:
            await self._writer.create(kinds.PODGROUP, namespace, body)
        except AlreadyExists as error:
            answer = await self._writer.get(kinds.PODGROUP, namespace, name)
            meta = partial_object(answer).metadata
            if meta.deletion_timestamp is not None:
                raise Retryable(f"PodGroup {name} is still being deleted") from error
            must_be_ours(record, kinds.PODGROUP, meta)
        except Rejected as error:
            if quota := quota_of(str(error)):
                record.rejected.over_quota(f"PodGroup {name}", quota)
                raise
            message = f"Failed to create PodGroup, err: {error}"
            self._recorder.event(record.job, "PodGroupError", message, warning=True)
            raise
        record.rejected.made(f"PodGroup {name}")

    async def _delete(self, record: JobRecord, kind: Kind, effect: Named) -> None:
        await self._writer.delete(kind, _meta(record, effect), lingers=True)


def _meta(record: JobRecord, effect: Named) -> ObjectMeta:
    """Return the identity of an object of the job's namespace."""
    return ObjectMeta(name=effect.name, namespace=record.job.metadata.namespace, uid=effect.uid)


def _body(effect: effects.CreatePods, index: int) -> bytes:
    try:
        return effect.builder.body(index)
    except PluginFailed as error:
        raise Rejected(str(error), field="spec.plugins") from error
