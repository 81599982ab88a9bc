"""Creates and updates the companion objects of a job: one request per changed object.

The record of a job has the companions that this process created or read, and their content. So the
first ones of a new job are created without a read, a change is one patch, and unchanged objects are
not sent. An object is read first only if another process created it. A sealed object is never read:
it is created. If an object of its name exists already, it is adopted. A new job waits before that,
because the garbage collector may still have to delete objects of a deleted job of the same name.
The requests of one job run concurrently. SSH keys are generated here, because job plugin ssh is
pure (JP3).
"""

import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.controller.adapters.recorder import ControllerRecorder
from services.controller.adapters.records import JobRecord, KnownCompanion
from services.controller.adapters.writer import Writer, apply
from services.controller.job import effects
from services.controller.job.podtemplate import owner_references
from services.controller.job.rejected_creates import quota_of
from shared.api import kinds
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.jobplugins.interface import Companion
from shared.jobplugins.ssh import KeyPair, with_keys
from shared.kube.decode import partial_object
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Gone, Rejected, Retryable

LEFTOVER_RETRIES: Final = 5
"""Number of passes over a new job (some seconds with back-off) in which a sealed object of its name
may belong to a deleted job.
"""
_WIDTH: Final = 8
"""Objects of one job that are written at once."""


class Companions:
    """Creates and deletes companions; methods raise the errors of `Writer`."""

    def __init__(self, writer: Writer, *, recorder: ControllerRecorder) -> None:
        self._writer = writer
        self._recorder = recorder

    async def ensure(self, record: JobRecord, effect: effects.EnsureCompanions) -> None:
        """Create missing companions and patch those that differ."""
        steps = self._steps(record, effect)
        await apply([partial(self._carry_out, record, step) for step in steps], width=_WIDTH)
        record.applied = effect.digest

    async def drop(self, record: JobRecord, effect: effects.DropCompanions) -> None:
        """Delete the job's companions, except sealed ones and objects of other owners."""
        open_ones = [companion for companion in effect.companions if not companion.sealed]
        steps = [partial(self._drop, record, companion) for companion in open_ones]
        await apply(steps, width=_WIDTH)
        record.applied = 0

    def _steps(
        self, record: JobRecord, effect: effects.EnsureCompanions
    ) -> list[tuple[Companion, Callable[[], Awaitable[None]]]]:
        """Return the write that each object needs, those that changed first."""
        changed: list[tuple[Companion, Callable[[], Awaitable[None]]]] = []
        others: list[tuple[Companion, Callable[[], Awaitable[None]]]] = []
        for companion in effect.companions:
            known = record.companions.get(_key(companion))
            if known is None:
                blindly = record.seen_from_start or companion.sealed
                make = self._create if blindly else self._ensure_unknown
                others.append((companion, partial(make, record, companion)))
            elif _is_left_as_is(companion) or known.digest == digest(companion):
                if effect.anew:  # it may have been deleted since: these objects are not watched
                    others.append((companion, self._restore(record, companion, known.uid)))
            else:
                changed.append((companion, partial(self._patch, record, companion, known.uid)))
        return [*changed, *others]

    def _restore(
        self, record: JobRecord, companion: Companion, uid: str
    ) -> Callable[[], Awaitable[None]]:
        """Return the write that creates an object again if it was deleted."""
        if companion.sealed:
            return partial(self._create, record, companion)
        return partial(self._patch, record, companion, uid)

    async def _carry_out(
        self, record: JobRecord, step: tuple[Companion, Callable[[], Awaitable[None]]]
    ) -> None:
        companion, carry_out = step
        try:
            await carry_out()
        except Rejected as error:
            if quota := quota_of(str(error)):
                record.rejected.over_quota(_described(companion), quota)
                raise
            reason, failed = (
                ("PVCError", "Failed to create PVC")
                if companion.kind is kinds.PVC
                else ("PluginError", "Execute plugin when job add failed")
            )
            self._recorder.event(record.job, reason, f"{failed}, err: {error}", warning=True)
            raise

    async def _create(self, record: JobRecord, companion: Companion) -> None:
        kind, namespace = companion.kind, record.job.metadata.namespace
        content = companion.body
        if companion.needs_key_pair:
            content = with_keys(content, key_pair())
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
            answer = await self._writer.create(kind, namespace, body)
        except AlreadyExists:
            if companion.sealed:
                self._adopt_unread(record, companion)
                return
            await self._adopt(record, companion, await self._read(record, companion))
        else:
            self._remember(record, companion, _read_meta(answer).uid)

    def _adopt_unread(self, record: JobRecord, companion: Companion) -> None:
        """Adopt an existing sealed object, or wait until it can only be the job's own.

        Raises Retryable while it may belong to a deleted job of the same name.
        """
        if record.seen_from_start and record.name_conflicts[companion.name] < LEFTOVER_RETRIES:
            record.name_conflicts[companion.name] += 1
            raise Retryable(f"{companion.kind.kind} {companion.name} is there already")
        self._remember(record, companion, "")

    async def _ensure_unknown(self, record: JobRecord, companion: Companion) -> None:
        """Create an object that is not in the record, or adopt the existing one."""
        try:
            found = await self._read(record, companion)
        except Gone:
            await self._create(record, companion)
        else:
            await self._adopt(record, companion, found)

    async def _adopt(self, record: JobRecord, companion: Companion, found: bytes) -> None:
        """Adopt an object that is there; it is patched if its content differs."""
        meta = _read_meta(found)
        must_be_ours(record, companion.kind, meta)
        if _is_left_as_is(companion) or _holds(msgspec.json.decode(found), companion.body):
            self._remember(record, companion, meta.uid)
        else:
            await self._patch(record, companion, meta.uid)

    async def _patch(self, record: JobRecord, companion: Companion, uid: str) -> None:
        """Patch the content; an unchanged object is patched to find out whether it exists."""
        body: dict[str, Any] = {} if _is_left_as_is(companion) else companion.body
        try:
            await self._writer.patch(companion.kind, _meta(record, companion, uid), body)
        except Gone:
            record.companions.pop(_key(companion), None)
            await self._create(record, companion)
        else:
            self._remember(record, companion, uid)

    async def _drop(self, record: JobRecord, companion: Companion) -> None:
        known = record.companions.get(_key(companion))
        uid = known.uid if known is not None else ""
        if not uid:
            with suppress(Gone):
                meta = _read_meta(await self._read(record, companion))
                uid = meta.uid if is_ours(record, meta) else ""
        if uid:
            await self._writer.delete(companion.kind, _meta(record, companion, uid))
        record.companions.pop(_key(companion), None)

    async def _read(self, record: JobRecord, companion: Companion) -> bytes:
        namespace = record.job.metadata.namespace
        return await self._writer.get(companion.kind, namespace, companion.name)

    def _remember(self, record: JobRecord, companion: Companion, uid: str) -> None:
        record.companions[_key(companion)] = KnownCompanion(uid=uid, digest=digest(companion))
        record.rejected.made(_described(companion))


def digest(companion: Companion) -> int:
    """Return a digest of the desired content of an object."""
    return zlib.crc32(msgspec.json.encode(companion.body))


def is_ours(record: JobRecord, meta: ObjectMeta) -> bool:
    """Tell whether an object belongs to a job."""
    return any(owner.uid == record.uid for owner in meta.owner_references)


def must_be_ours(record: JobRecord, kind: Kind, meta: ObjectMeta) -> None:
    """Raise Rejected when an object of a name that a job needs does not belong to the job.

    Raises Retryable while that of an earlier job of the same name is being deleted.
    """
    if is_ours(record, meta):
        return
    if is_leaving(record, meta):
        why = f"that of {former_owner(meta)} is still being deleted"
        record.rejected.name_in_use(f"{kind.kind} {meta.name}", why)
        raise Retryable(f"{kind.kind} {meta.name}: {why}")
    raise Rejected(
        f"{kind.kind} {meta.name} exists and does not belong to this Job: delete or rename it",
        field="metadata.name",
    )


def is_leaving(record: JobRecord, meta: ObjectMeta) -> bool:
    """Tell whether an object with a name that a job needs will be deleted without our action.

    It is being deleted, or is garbage of an earlier job of the same name.
    """
    owner = meta.controller
    earlier = (
        owner is not None
        and (owner.api_version, owner.kind) == (kinds.JOB.api_version, kinds.JOB.kind)
        and owner.name == record.job.metadata.name
    )
    return earlier or meta.deletion_timestamp is not None


def former_owner(meta: ObjectMeta) -> str:
    """Return the former owner of an object as words of a message."""
    owner = meta.controller
    return f"an earlier {owner.kind} {owner.name}" if owner is not None else "another owner"


def _key(companion: Companion) -> tuple[str, str]:
    return companion.kind.token, companion.name


def _described(companion: Companion) -> str:
    return f"{companion.kind.kind} {companion.name}"


def _is_left_as_is(companion: Companion) -> bool:
    """Tell whether an existing object is never patched, like keys and claims."""
    return companion.keep or companion.once or companion.needs_key_pair


def _meta(record: JobRecord, companion: Companion, uid: str) -> ObjectMeta:
    return ObjectMeta(name=companion.name, namespace=record.job.metadata.namespace, uid=uid)


def _read_meta(body: bytes) -> ObjectMeta:
    return partial_object(body).metadata


def _holds(found: object, desired: object) -> bool:
    """Return whether a merge patch with `desired` would change nothing."""
    if isinstance(found, dict) and isinstance(desired, dict):
        return all(key in found and _holds(found[key], value) for key, value in desired.items())
    return found == desired


def key_pair() -> KeyPair:
    """Return a new Ed25519 key pair, private key in OpenSSH's own format.

    It takes a tenth of a millisecond. An RSA pair, as Volcano's, takes 40 ms and more, in which no
    other thread of the process runs: a tenant with many jobs would hold up all others. ssh and sshd
    tell the kind of a key by what is in a file, so the file is still called `id_rsa`.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private=private.decode(), public=f"{public.decode()}\n")
