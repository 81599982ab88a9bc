"""Jobs of Volcano that wait and have no PodGroup, such as one whose volume claim is missing.

Visibility knows a job by its PodGroup. The others are looked up here, by the client, with its
user's credentials (ADR 46), as `kubectl get vcjob` would.
"""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from shared.api.base import View
from shared.api.meta import ObjectMeta
from shared.api.visibility import ExpectedStart, ObjectRef, PendingJob
from shared.kube.wire import JSON, METADATA_ONLY, Request
from shared.runtime.errors import PumiceError

_T = TypeVar("_T")

# Not shared.api.kinds, whose import a command that prints a list cannot afford.
_JOBS: Final = "batch.volcano.sh/v1alpha1"
_GROUPS: Final = "scheduling.volcano.sh/v1beta1"
WITHOUT_GROUP: Final = "podgroup"
"""What these jobs wait for, in the place of a gate."""
_KEPT_S: Final = 10.0
"""A result counts for so long: with --watch the list is read again with every change."""
_LOOKUPS_S: Final = 5.0


class _Spec(View, frozen=True, kw_only=True):
    queue: str = ""


class _State(View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""


class _Status(View, frozen=True, kw_only=True):
    state: _State = _State()


class _Named(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class _Job(_Named, frozen=True, kw_only=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Jobs(View, frozen=True, kw_only=True):
    items: tuple[_Job, ...] = ()


class _Groups(View, frozen=True, kw_only=True):
    items: tuple[_Named, ...] = ()


class JobTransport(Protocol):
    """Requests to the API server with the user's credentials."""

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a response. Raises PumiceError."""


class JobsWithoutGroup:
    """Looks up the Jobs of one namespace, or of all, that wait for their PodGroup."""

    def __init__(self, transport: JobTransport, namespace: str) -> None:
        self._transport = transport
        self._namespace = namespace
        self._until_s = 0.0
        self._found: Sequence[PendingJob] = ()

    async def added_to(self, raw: bytes) -> bytes:
        """Return a list of pending jobs of visibility with these jobs behind them.

        None are added where the user may not list Jobs.
        """
        listed = msgspec.json.decode(raw)
        waiting = {_key(msgspec.convert(each, _Named).metadata) for each in listed["items"]}
        now_s = asyncio.get_running_loop().time()
        if self._until_s <= now_s:
            self._found = ()
            with contextlib.suppress(PumiceError, msgspec.MsgspecError, TimeoutError):
                async with asyncio.timeout(_LOOKUPS_S):
                    self._found = await self._look_up(waiting)
            self._until_s = now_s + _KEPT_S
        found = [
            msgspec.to_builtins(job) for job in self._found if _key(job.metadata) not in waiting
        ]
        return (
            msgspec.json.encode({**listed, "items": [*listed["items"], *found]}) if found else raw
        )

    async def _look_up(self, waiting: Collection[tuple[str, str]]) -> Sequence[PendingJob]:
        jobs = [
            job
            for job in (await self._list(_JOBS, "jobs", _Jobs)).items
            if job.status.state.phase in ("", "Pending")
            and job.metadata.deletion_timestamp is None
            and _key(job.metadata) not in waiting
        ]
        if not jobs:
            return ()
        from shared.api.scheduling import podgroup_of  # not needed for queries about one job

        groups = await self._list(_GROUPS, "podgroups", _Groups, accept=METADATA_ONLY)
        known = {_key(group.metadata) for group in groups.items}
        jobs.sort(key=lambda job: _key(job.metadata))
        return [
            _pending(job)
            for job in jobs
            if (job.metadata.namespace, podgroup_of(job.metadata.name, job.metadata.uid))
            not in known
        ]

    async def _list(self, root: str, plural: str, kind: type[_T], *, accept: str = JSON) -> _T:
        """Return a list from the API server's cache. Raises PumiceError and ValueError."""
        within = f"/namespaces/{self._namespace}" if self._namespace else ""
        request = Request(
            method="GET",
            path=f"/apis/{root}{within}/{plural}",
            query=[("resourceVersion", "0")],
            accept=accept,
        )
        return msgspec.json.decode(await self._transport.exchange(request), type=kind)


def _key(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name


def _pending(job: _Job) -> PendingJob:
    meta, state = job.metadata, job.status.state
    reported = ": ".join(filter(None, (state.reason, state.message)))
    words = f"no PodGroup yet: {reported or 'the controller has not handled it'}"
    return PendingJob(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            creation_timestamp=meta.creation_timestamp,
        ),
        owner=ObjectRef(
            api_version=_JOBS,
            kind="Job",
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        ),
        queue=job.spec.queue,
        gate=WITHOUT_GROUP,
        message=words,
        waiting_since=meta.creation_timestamp,
        expected_start=ExpectedStart(unknown=words),
    )
