"""Carries out the effects of a look on the API server and folds each answer at once.

Writes are patches of own fields with the uid that was decided on; what is gone already is done. All
writers of a process share one bound on requests under way. Raises Retryable (try the look again
later), Conflict (somebody else wrote: look again) or Rejected (the API server will never take it).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from services.controller.adapters.keypair import key_pair
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.records import JobRecord
from services.controller.adapters.replica import Replica
from services.controller.adapters.together import all_of
from services.controller.adapters.touched import Touched
from services.controller.job import effects
from services.controller.job.facts import pod_view
from services.controller.job.podtemplate import owner_references
from services.controller.job.status import INVALID_SPEC
from services.controller.metrics import ControllerMetrics
from shared.api import keys, kinds
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.patch import Json
from shared.contracts.subjects import split_key
from shared.jobplugins.foreign import PluginFailed
from shared.jobplugins.interface import Companion
from shared.jobplugins.ssh import with_keys
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.faults import Faults

CREATORS: Final = 32
"""Pods of one task that are being made at once."""
TOLD: Final = 3
"""Refusals that one event quotes; the rest, often of the same words, is counted."""
TOO_LARGE: Final = (
    "spec.tasks: the job is larger than a message may be (1 MiB compressed): put scripts and data "
    "into ConfigMaps or images"
)


class _Headed(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Writer:
    """See the module; `touch` is told what deserves a look after each answer."""

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        recorder: Recorder,
        touch: Callable[[Touched], None],
        under_way: asyncio.Semaphore,
        faults: Faults,
        metrics: ControllerMetrics,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._recorder = recorder
        self._touch = touch
        self._under_way = under_way
        self._faults = faults
        self._metrics = metrics
        self._handlers: dict[type, Callable[[JobRecord, Any], Awaitable[None]]] = {
            effects.Record: self._record,
            effects.WriteStatus: self._write_status,
            effects.AmendJob: self._amend_job,
            effects.MarkPod: self._mark_pod,
            effects.DeletePod: self._delete_pod,
            effects.CreateGroup: self._create_group,
            effects.PatchGroup: self._patch_group,
            effects.DeleteGroup: self._delete_group,
            effects.DeleteCommand: self._delete_command,
            effects.EnsureCompanions: self._ensure_companions,
            effects.DropCompanions: self._drop_companions,
        }

    async def stage(self, record: JobRecord, stage: Iterable[effects.Effect]) -> None:
        """Carry out one stage: everything is tried, then the worst failure is raised."""
        effects_now = list(stage)
        if doomed := sum(1 for e in effects_now if isinstance(e, effects.DeletePod)):
            self._recorder.tell(record.job, "SuccessfulDelete", f"Deleting {doomed} pods")
        try:
            await all_of(list(self._jobs(record, effects_now)), width=CREATORS)
        finally:
            self._tell_refused(record)

    def _tell_refused(self, record: JobRecord) -> None:
        """Say which pods could not be made or deleted: one event for all of a stage (J34)."""
        for reason, doing in (("FailedCreate", "creating"), ("FailedDelete", "deleting")):
            if errors := sorted(record.refused.pop(reason, ())):
                more = f" and {len(errors) - TOLD} more" if len(errors) > TOLD else ""
                message = f"Error {doing} pods: {'; '.join(errors[:TOLD])}{more}"
                self._recorder.tell(record.job, reason, message, warning=True)

    def _jobs(
        self, record: JobRecord, stage: Iterable[effects.Effect]
    ) -> Iterator[Callable[[], Awaitable[None]]]:
        for effect in stage:
            if isinstance(effect, effects.CreatePods):
                self._announce_pods(record, effect)
                for index in effect.indexes:
                    yield lambda e=effect, i=index: self._create_pod(record, e, i)  # type: ignore[misc]
            else:
                carry_out = self._handlers[type(effect)]
                yield lambda e=effect, c=carry_out: c(record, e)  # type: ignore[misc]

    async def _record(self, record: JobRecord, effect: effects.Record) -> None:
        self._recorder.tell(
            record.job,
            effect.reason,
            effect.message,
            warning=effect.warning,
            occasion=effect.occasion,
        )

    async def _delete_command(self, record: JobRecord, effect: effects.DeleteCommand) -> None:
        await self._delete(record, kinds.COMMAND, effect.name, effect.uid)

    # Status

    async def _write_status(self, record: JobRecord, effect: effects.WriteStatus) -> None:
        try:
            await self._patch_job(record, {"status": effect.patch}, "status")
        except Rejected as error:
            doing = "update" if effect.was is not None else "initialize"
            message = f"Failed to {doing} job status, err: {error}"
            self._recorder.tell(record.job, "JobStatusError", message, warning=True)
            raise
        record.counts_wait_since = float("inf")

    async def _amend_job(self, record: JobRecord, effect: effects.AmendJob) -> None:
        try:
            await self._patch_job(record, effect.patch, "")
        except Rejected as error:
            reason = "PVCError" if "spec" in effect.patch else "JobStatusError"
            self._recorder.tell(
                record.job, reason, f"Failed to update job, err: {error}", warning=True
            )
            raise

    async def _patch_job(self, record: JobRecord, patch: Json, subresource: str) -> None:
        """Patch the version that was decided on; somebody else's write makes it a Conflict."""
        meta = record.job.metadata
        try:
            answer = await self._send(
                "patch",
                kinds.JOB,
                self._kube.patch(
                    kinds.JOB,
                    meta.namespace,
                    meta.name,
                    patch,
                    uid=record.uid,
                    resource_version=str(record.rv),
                    subresource=subresource,
                ),
            )
        except Gone:
            self._touch(self._replica.deleted(kinds.JOB, record.key, record.uid))
            raise
        except Conflict:
            fresh = await self._send(
                "get", kinds.JOB, self._kube.get(kinds.JOB, meta.namespace, meta.name)
            )
            self._fold(kinds.JOB, fresh)
            raise
        self._fold(kinds.JOB, answer)

    async def refuse_oversized(self, key: str, uid: str) -> None:
        """Say on a job that is too large for the bus that it cannot run."""
        namespace, name = split_key(key)
        patch = {
            "status": {"state": {"phase": "Pending", "reason": INVALID_SPEC, "message": TOO_LARGE}}
        }
        try:
            await self._send(
                "patch",
                kinds.JOB,
                self._kube.patch(kinds.JOB, namespace, name, patch, uid=uid, subresource="status"),
            )
        except Gone:
            return
        meta = ObjectMeta(name=name, namespace=namespace, uid=uid)
        self._recorder.tell(Job(metadata=meta), INVALID_SPEC, TOO_LARGE, warning=True)

    # Pods

    def _announce_pods(self, record: JobRecord, effect: effects.CreatePods) -> None:
        task = effect.forge.task.name
        self._recorder.tell(
            record.job,
            "SuccessfulCreate",
            f"Creating {len(effect.indexes)} pods of task {task} (version {effect.version})",
        )

    async def _create_pod(self, record: JobRecord, effect: effects.CreatePods, index: int) -> None:
        namespace = record.job.metadata.namespace
        try:
            body = _body(effect, index)
            answer = await self._send(
                "create", kinds.POD, self._kube.create(kinds.POD, namespace, body)
            )
        except AlreadyExists:
            name = f"{record.job.metadata.name}-{effect.forge.task.name}-{index}"
            await self._adopt(record, name)
        except Rejected as error:
            record.refused["FailedCreate"].append(str(error))
            raise
        else:
            self._fold(kinds.POD, answer)
            self._faults.point("controller.mid-create")

    async def _adopt(self, record: JobRecord, name: str) -> None:
        """Take a pod of that name when it is ours, say so when it is not (J24)."""
        answer = await self._send(
            "get", kinds.POD, self._kube.get(kinds.POD, record.job.metadata.namespace, name)
        )
        pod: Pod = kinds.decode(kinds.POD, answer)
        found = pod_view(pod)
        if found is not None and found[0] == record.uid:
            self._fold(kinds.POD, answer)
            return
        message = f"Pod {name} exists and belongs to somebody else: delete or rename it"
        record.refused["FailedCreate"].append(message)
        raise Rejected(message, field="metadata.name")

    async def _delete_pod(self, record: JobRecord, effect: effects.DeletePod) -> None:
        try:
            await self._delete(record, kinds.POD, effect.name, effect.uid)
        except Rejected as error:
            record.refused["FailedDelete"].append(str(error))
            raise

    async def _mark_pod(self, record: JobRecord, effect: effects.MarkPod) -> None:
        mark: Json = {"metadata": {"annotations": {keys.OUT_OF_SYNC: "true"}}}
        try:
            marked = await self._patch(record, kinds.POD, effect.name, mark, effect.uid)
        except Gone:
            self._folded_gone(kinds.POD, record, effect.name, effect.uid)
        else:
            self._fold(kinds.POD, marked)

    # PodGroup and companions

    async def _patch_group(self, record: JobRecord, effect: effects.PatchGroup) -> None:
        answer = await self._patch(record, kinds.PODGROUP, effect.name, effect.patch, effect.uid)
        self._fold(kinds.PODGROUP, answer)

    async def _delete_group(self, record: JobRecord, effect: effects.DeleteGroup) -> None:
        await self._delete(record, kinds.PODGROUP, effect.name, effect.uid)

    async def _create_group(self, record: JobRecord, effect: effects.CreateGroup) -> None:
        namespace, body = record.job.metadata.namespace, effect.body
        try:
            answer = await self._send(
                "create", kinds.PODGROUP, self._kube.create(kinds.PODGROUP, namespace, body)
            )
        except AlreadyExists as error:
            name = body["metadata"]["name"]
            answer = await self._send(
                "get", kinds.PODGROUP, self._kube.get(kinds.PODGROUP, namespace, name)
            )
            meta = msgspec.json.decode(answer, type=_Headed).metadata
            if meta.deletion_timestamp is not None:
                raise Retryable(f"PodGroup {name} is still being deleted") from error
            _must_be_ours(record, kinds.PODGROUP, meta)
        except Rejected as error:
            message = f"Failed to create PodGroup, err: {error}"
            self._recorder.tell(record.job, "PodGroupError", message, warning=True)
            raise
        self._fold(kinds.PODGROUP, answer)

    async def _ensure_companions(self, record: JobRecord, effect: effects.EnsureCompanions) -> None:
        for companion in effect.companions:
            try:
                await self._ensure(record, companion)
            except Rejected as error:
                reason, failed = (
                    ("PVCError", "Failed to create PVC")
                    if companion.kind is kinds.PVC
                    else ("PluginError", "Execute plugin when job add failed")
                )
                message = f"{failed}, err: {error}"
                self._recorder.tell(record.job, reason, message, warning=True)
                raise
        record.applied = effect.digest

    async def _drop_companions(self, record: JobRecord, effect: effects.DropCompanions) -> None:
        for companion in effect.companions:
            await self._drop_companion(record, companion)
        record.applied = 0

    async def _ensure(self, record: JobRecord, companion: Companion) -> None:
        """Create an object beside the pods, or bring the one there to what it should be."""
        kind, namespace = companion.kind, record.job.metadata.namespace
        if companion.needs_key_pair and await self._is_there(record, companion):
            return  # keys take long to make, and those there must stay
        content = companion.body
        if companion.needs_key_pair:
            content = with_keys(content, await asyncio.to_thread(key_pair))
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": companion.name,
                "namespace": namespace,
                "ownerReferences": owner_references(record.job),
            },
            **content,
        }
        try:
            await self._send("create", kind, self._kube.create(kind, namespace, body))
        except AlreadyExists:
            answer = await self._send("get", kind, self._kube.get(kind, namespace, companion.name))
        else:
            return
        meta = msgspec.json.decode(answer, type=_Headed).metadata
        _must_be_ours(record, kind, meta)
        if not (companion.keep or companion.once):
            await self._patch(record, kind, companion.name, companion.body, meta.uid)

    async def _is_there(self, record: JobRecord, companion: Companion) -> bool:
        """Whether the object is there and the job's. Raises Rejected when it is another's."""
        kind, namespace = companion.kind, record.job.metadata.namespace
        try:
            answer = await self._send("get", kind, self._kube.get(kind, namespace, companion.name))
        except Gone:
            return False
        _must_be_ours(record, kind, msgspec.json.decode(answer, type=_Headed).metadata)
        return True

    async def _drop_companion(self, record: JobRecord, companion: Companion) -> None:
        """Delete an object beside the pods; another's object of that name stays."""
        namespace = record.job.metadata.namespace
        try:
            answer = await self._send(
                "get", companion.kind, self._kube.get(companion.kind, namespace, companion.name)
            )
            meta = msgspec.json.decode(answer, type=_Headed).metadata
            if _is_ours(record, meta):
                await self._send(
                    "delete",
                    companion.kind,
                    self._kube.delete(companion.kind, namespace, companion.name, uid=meta.uid),
                )
        except Gone:
            return

    # Requests

    async def _patch(
        self, record: JobRecord, kind: Kind, name: str, patch: Json, uid: str
    ) -> bytes:
        namespace = record.job.metadata.namespace
        return await self._send(
            "patch", kind, self._kube.patch(kind, namespace, name, patch, uid=uid)
        )

    async def _delete(self, record: JobRecord, kind: Kind, name: str, uid: str) -> None:
        namespace = record.job.metadata.namespace
        try:
            answer = await self._send(
                "delete", kind, self._kube.delete(kind, namespace, name, uid=uid)
            )
        except Gone:
            self._folded_gone(kind, record, name, uid)
            return
        meta = msgspec.json.decode(answer, type=_Headed).metadata
        # An object with grace or finalizers lives on; the API server answers with the object.
        lives_on = meta.deletion_timestamp is not None and (
            meta.finalizers or meta.deletion_grace_period_seconds
        )
        if meta.uid == uid and lives_on:
            self._fold(kind, answer)
        else:
            self._folded_gone(kind, record, name, uid)

    def _folded_gone(self, kind: Kind, record: JobRecord, name: str, uid: str) -> None:
        key = f"{record.job.metadata.namespace}/{name}"
        self._touch(self._replica.deleted(kind, key, uid))

    async def _send(self, verb: str, kind: Kind, request: Awaitable[bytes]) -> bytes:
        async with self._under_way:
            answer = await request
        if verb != "get":
            self._metrics.writes.labels(verb, kind.token).inc()
        return answer

    def _fold(self, kind: Kind, answer: bytes) -> None:
        self._touch(self._replica.written(kind, answer))


def _body(effect: effects.CreatePods, index: int) -> bytes:
    try:
        return effect.forge.body(index)
    except PluginFailed as error:
        raise Rejected(str(error), field="spec.plugins") from error


def _is_ours(record: JobRecord, meta: ObjectMeta) -> bool:
    return any(owner.uid == record.uid for owner in meta.owner_references)


def _must_be_ours(record: JobRecord, kind: Kind, meta: ObjectMeta) -> None:
    if not _is_ours(record, meta):
        raise Rejected(
            f"{kind.kind} {meta.name} exists and belongs to somebody else: delete or rename it",
            field="metadata.name",
        )
