"""Queues, namespaces and owners for rules, read from the API server.

They are not read from the bus, because admission must work without NATS. One list of queues serves
all requests of a second. A refusal, and any review of a queue, uses a fresh list (`fresh=True`), so
that a queue created a moment ago is known. Annotations of a namespace are at most a second old
likewise: a thousand groups made at once ask for them once. The fields of pods and claims are those
of the API server's OpenAPI of the core group, which any account may read; an API server without it
has no fields checked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Final, Generic, TypeVar

import msgspec

from services.admission.rules.fields import CLAIM, TEMPLATE, Schema, Schemas
from services.admission.rules.review import SubmittedJob
from services.admission.rules.submissions import submission
from shared.api import kinds
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.scheduling import Queue
from shared.kube.client import Kube
from shared.kube.errors import Denied
from shared.kube.owners import OwnerReader
from shared.kube.wire import METADATA_ONLY
from shared.runtime.clock import Clock
from shared.runtime.errors import Gone, PumiceError, Retryable
from shared.runtime.logs import Logger

T = TypeVar("T")

_YOUNG_S: Final = 1.0
_NAMESPACES_MAX: Final = 1000
_SUBMITTED_YOUNG_S: Final = 10.0
"""All jobs of a cluster are a long list."""
_WRITTEN_S: Final = 3.0
"""So long after its admission a job is stored, or it never will be."""


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Recent(Generic[T]):
    """One read of the API server, shared by all reviews within a second or another time."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, clock: Clock, young_s: float = _YOUNG_S
    ) -> None:
        self._read = read
        self._clock = clock
        self._young_s = young_s
        self._found: tuple[float, T] | None = None
        """When the last read began, and its result."""
        self._failed_at = float("-inf")
        """When the last read was begun that failed."""
        self._failure = ""
        self._reading = asyncio.Lock()

    async def get(self, *, fresh: bool = False) -> T:
        """Return a result that is young enough; with `fresh`, one read after this call.

        Raises Retryable when the API server does not answer. All callers that wait for one read
        share its failure; otherwise the last of many callers would wait for many timeouts.
        """
        asked_at = self._clock.monotonic()
        oldest = asked_at if fresh else asked_at - self._young_s
        async with self._reading:
            if self._found is not None and self._found[0] >= oldest:
                return self._found[1]
            if self._failed_at >= asked_at:
                raise Retryable(self._failure)
            begun_at = self._clock.monotonic()
            try:
                found = await self._read()
            except Retryable as error:
                self._failed_at, self._failure = begun_at, str(error)
                raise
            self._found = (begun_at, found)
            return found


class Lookup:
    """Reads queues, namespaces and owners."""

    def __init__(self, kube: Kube, *, clock: Clock, log: Logger) -> None:
        self._kube = kube
        self._clock = clock
        self._log = log
        self._owners = OwnerReader(
            lambda path, accept: kube.request("GET", path, accept=accept), clock
        )
        self._queues = _Recent(self._list, clock=clock)
        self._submitted = _Recent(self._list_jobs, clock=clock, young_s=_SUBMITTED_YOUNG_S)
        self._admitted: dict[str, tuple[float, SubmittedJob]] = {}
        """Uid of a job that was admitted here → when, in the order of time."""
        self._annotations: dict[str, _Recent[Mapping[str, str]]] = {}
        """By namespace, in the order in which they were first asked for."""

    async def queues(self, *, fresh: bool = False) -> Mapping[str, Queue]:
        """Return all queues by name, at most a second old; those of now when `fresh`.

        Raises Retryable when the API server does not answer.
        """
        return await self._queues.get(fresh=fresh)

    async def _list(self) -> Mapping[str, Queue]:
        listing = await self._kube.list(kinds.QUEUE)
        return {queue.metadata.name: queue for queue in listing.items}

    async def annotations(self, namespace: str) -> Mapping[str, str]:
        """Return the annotations of a namespace, at most a second old; none when it is not there.

        Raises Retryable when the API server does not answer.
        """
        recent = self._annotations.get(namespace)
        if recent is None:
            recent = _Recent(partial(self._annotations_of, namespace), clock=self._clock)
            self._annotations[namespace] = recent
            if len(self._annotations) > _NAMESPACES_MAX:
                del self._annotations[next(iter(self._annotations))]
        try:
            return await recent.get()
        except Gone:
            return {}

    async def submitted(self, *, fresh: bool = False) -> Mapping[str, SubmittedJob]:
        """Return the jobs that have not ended, by uid: those of a list, and those admitted since.

        The list is up to ten seconds old, so that jobs which ended since may be among them; one of
        now when `fresh`. Raises Retryable when the API server does not answer.
        """
        begun_at, listed = await self._submitted.get(fresh=fresh)
        for uid in list(takewhile(lambda uid: self._is_written(uid, begun_at), self._admitted)):
            del self._admitted[uid]
        known = {**{uid: job for uid, (_, job) in self._admitted.items()}, **listed}
        return {uid: job for uid, job in known.items() if job is not None}

    def _is_written(self, uid: str, at: float) -> bool:
        """Return whether a job was admitted so early that a list begun at that time has it."""
        return self._admitted[uid][0] < at - _WRITTEN_S

    def admitted(self, uid: str, job: SubmittedJob) -> None:
        """Count a job that was just admitted, until a list has it."""
        self._admitted[uid] = (self._clock.monotonic(), job)

    async def _list_jobs(self) -> tuple[float, Mapping[str, SubmittedJob | None]]:
        begun_at = self._clock.monotonic()
        listing = await self._kube.list(kinds.JOB)
        return begun_at, {job.metadata.uid: submission(job) for job in listing.items}

    async def owner_annotations(self, owner: OwnerReference, namespace: str) -> Mapping[str, str]:
        """Return the annotations of an owner; none if it is gone or may not be read.

        Raises Retryable when the API server does not answer.
        """
        try:
            raw = await self._owners.read(
                owner.api_version, owner.kind, namespace, owner.name, accept=METADATA_ONLY
            )
        except Gone:
            return {}
        except Denied as error:
            self._log.warning("owner_not_readable", kind=owner.kind, reason=str(error))
            return {}
        if raw is None:
            return {}
        found = msgspec.json.decode(raw, type=_Named).metadata
        return found.annotations if found.uid == owner.uid else {}

    async def _annotations_of(self, namespace: str) -> Mapping[str, str]:
        raw = await self._kube.get(kinds.NAMESPACE, "", namespace)
        return msgspec.json.decode(raw, type=_Named).metadata.annotations


_PATH: Final = "/openapi/v3/api/v1"
_REFRESH_S: Final = 600.0
"""The schemas change when the API server is upgraded."""
_RETRY_S: Final = 30.0


class _Components(msgspec.Struct, frozen=True, kw_only=True):
    schemas: dict[str, Schema] = msgspec.field(default_factory=dict)


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    components: _Components = _Components()


class OpenApi:
    """A part of the service: `schemas` are those of the last good answer."""

    name: Final = "openapi"

    def __init__(self, kube: Kube, *, clock: Clock, log: Logger) -> None:
        self._kube = kube
        self._clock = clock
        self._log = log
        self._last_failure = ""
        self.schemas: Schemas = {}

    async def run(self) -> None:
        """Read it now and again, until cancelled."""
        while True:
            await self._clock.sleep(_REFRESH_S if await self._read() else _RETRY_S)

    async def _read(self) -> bool:
        try:
            body = await self._kube.request("GET", _PATH)
            found = msgspec.json.decode(body, type=_Document).components.schemas
        except (PumiceError, msgspec.DecodeError) as error:
            self._log_failure(str(error))
            return False
        if not {TEMPLATE, CLAIM} <= found.keys():
            self._log_failure(f"{_PATH} has no {TEMPLATE}")
            return False
        self.schemas, self._last_failure = found, ""
        return True

    def _log_failure(self, why: str) -> None:
        if why != self._last_failure:
            self._last_failure = why
            self._log.info("openapi_not_read", reason=why)
