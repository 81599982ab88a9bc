"""Requests to `visibility.pumice.dev` through the API server, and refusals as one line with a hint.

All commands send their requests with it. `QueryError` has the exit code listed in docs/cli.md.
"""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from pumice.directory import default_directory
from pumice.local import state
from pumice.queries.jobs_without_group import JobsWithoutGroup
from pumice.queries.right_hints import right_hint
from pumice.queries.workloads import OwnerChains
from shared.api.base import View
from shared.api.visibility import API_VERSION, GROUP, Explanation, ObjectRef, Timeline
from shared.kube.errors import FORBIDDEN, UNAUTHORIZED, Busy, Expired, Refusal, Unreachable
from shared.kube.sources import KubeconfigSource, find_source, own_namespace
from shared.kube.transport import open_transport
from shared.kube.wire import Query, Request, Stream, Transport
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Gone, PumiceError, Rejected

_T = TypeVar("_T")

FAILED: Final = 1
WRONG_USAGE: Final = 2
NEGATIVE_RESULT: Final = 3
"""Exit code of a negative result: a job that would not start, or whose start is unknown."""
NOT_INSTALLED: Final = 4

_REQUEST_TIMEOUT_S: Final = 60.0
WATCH_S: Final = 300
"""Length of one watch."""
_ROOT: Final = f"/apis/{API_VERSION}"
_NOT_INSTALLED_HINT: Final = (
    "the service visibility of Pumice is not installed: docs/deployment.md says how"
)
_STRICT: Final = (("fieldValidation", "Strict"),)
"""As kubectl does: without it the server would ignore a misspelt field."""
_PENDING: Final = "pendingjobs"
_TIMELINES: Final = "timelines"
_OTHERS_MAX: Final = 5


class QueryError(Exception):
    """A query failed: one line for the user, and the exit code."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class ForbiddenError(QueryError):
    """The user lacks a right."""


class _UnknownJobError(QueryError):
    """No job has the name of a query."""


class ClusterTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the namespace that a command is about."""

    kubeconfig: str = ""
    context: str | None = None
    namespace: str = ""
    """Empty: that of the context, else `default`."""
    everywhere: bool = False
    local: bool = True
    """Whether a local cluster that runs goes before the environment: kubectl knows none."""


class WatchTarget(msgspec.Struct, frozen=True):
    """What to watch: a list of the API group, or one named object in it."""

    path: str
    name: str = ""
    queue: str = ""
    """Changes of jobs in other queues do not matter."""
    about: str = ""
    """Watch the stream `changes`; only entries about this job matter."""
    is_hint: bool = False
    """Whether the result is another object, so that an event only hints at a change of it."""


class QueryClient:
    """A connection to one API server, for one namespace or all of them."""

    def __init__(self, transport: Transport, *, namespace: str) -> None:
        self._transport = transport
        self._owners = OwnerChains(transport)
        self._without_group = JobsWithoutGroup(transport, namespace)
        self._keys: dict[str, tuple[str, str]] = {}
        """KIND/NAME of a workload → namespace and name of its job."""
        self.namespace = namespace
        """Empty for all namespaces."""

    @classmethod
    async def open(
        cls, target: ClusterTarget, environ: Mapping[str, str] = os.environ
    ) -> "QueryClient":
        """Find cluster and credentials; sends nothing. Raises QueryError."""
        if target.namespace:
            _segment(target.namespace, "namespace")
        running = _local() if target.local and not target.kubeconfig else ""
        file = target.kubeconfig or running or environ.get("KUBECONFIG")
        clock = SystemClock()
        try:
            source = find_source(file, context=target.context, clock=clock, environ=environ)
            transport = await open_transport(
                source, user_agent="pumice", request_timeout_s=_REQUEST_TIMEOUT_S, clock=clock
            )
        except PumiceError as error:
            code = WRONG_USAGE if isinstance(error, Rejected) else FAILED
            raise QueryError(str(error), code=code) from error
        usual = source.namespace if isinstance(source, KubeconfigSource) else own_namespace("")
        namespace = "" if target.everywhere else target.namespace or usual or "default"
        return cls(transport, namespace=namespace)

    @property
    def host(self) -> str:
        """Return the API server's address."""
        return self._transport.host

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    async def of_job(self, plural: str, name: str) -> bytes:
        """Return the result for one job. Raises QueryError, with a hint for a wrong name.

        What names no job may be the KIND/NAME of a workload that owns one.
        """
        try:
            return await self._of_key(plural, *self._key(name))
        except QueryError as error:
            key = await self._of_workload(name) if error.code != NOT_INSTALLED else None
            if key is None:
                is_unknown = isinstance(error, _UnknownJobError) or error.code == WRONG_USAGE
                if is_unknown and (near := await self._near_workloads(name)):
                    words = f"nothing is known of {name}; did you mean {' or '.join(near)}?"
                    raise QueryError(words) from error
                raise
        self._keys[name] = key
        return await self._of_key(plural, *key)

    async def _of_workload(self, name: str) -> tuple[str, str] | None:
        """Return namespace and name of the job of a workload; of several the first that waits."""
        namespace, kind, own = self._workload(name)
        if not all(map(_is_name, (namespace, kind, own))):
            return None
        jobs = await self._owned(namespace)
        found = await self._owners.owned_by(kind, own, [(ref, job) for job, ref in jobs.items()])
        if len(found) > 1:
            others = ", ".join(found[1 : _OTHERS_MAX + 1])
            more = " …" * (len(found) > _OTHERS_MAX + 1)
            sys.stderr.write(f"note: {name} has {len(found)} jobs: {found[0]}, {others}{more}\n")
        return (namespace, found[0]) if found else None

    async def _near_workloads(self, name: str) -> list[str]:
        """Return the KIND/NAME of workloads that have a similar one."""
        namespace, kind, own = self._workload(name)
        if not all(map(_is_name, (namespace, kind, own))):
            return []
        return await self._owners.near(kind, own, (await self._owned(namespace)).values())

    def _workload(self, name: str) -> tuple[str, str, str]:
        """Return namespace, kind and name of [NAMESPACE/]KIND/NAME."""
        *namespaces, kind, own = ["", *name.split("/")]
        return "/".join(filter(None, namespaces)) or self.namespace or "default", kind, own

    async def _owned(self, namespace: str) -> dict[str, ObjectRef]:
        """Return the controllers of the jobs of a namespace by name; those that wait first."""
        jobs: dict[str, ObjectRef] = {}
        for plural in (_PENDING, "runningjobs"):
            try:
                raw = await self._request("GET", collection(plural, namespace))
            except (QueryError, _Unknown):
                continue
            for item in msgspec.json.decode(raw, type=Items[_Owned]).items:
                jobs.setdefault(item.metadata.name, item.owner)
        return jobs

    async def _of_key(self, plural: str, namespace: str, name: str) -> bytes:
        try:
            path = f"{collection(plural, namespace)}/{quote(name)}"
            return await self._owners.shown(await self._request("GET", path))
        except _Unknown as unknown:
            lives = f"`pumice timeline {namespace}/{name}` tells its life"
            if plural == _PENDING and (words := await self._of_unstopped(namespace, name)):
                raise QueryError(f"{namespace}/{name} {words}; {lives}") from unknown
            if plural != _TIMELINES and (words := await self._last_phase(namespace, name)):
                raise QueryError(f"{namespace}/{name} {words}; {lives}") from unknown
            if plural == _PENDING and (group := await self._group_of_pod(namespace, name)):
                return await self._of_key(plural, namespace, group)
            hint = await self._near(namespace, name)
            raise _UnknownJobError(f"nothing is known of {namespace}/{name}{hint}") from unknown

    async def get(self, path: str, *, query: Query = ()) -> bytes:
        """Return the object or list at a path of the API group. Raises QueryError."""
        try:
            return await self._owners.shown(await self._request("GET", path, query=query))
        except _Unknown as unknown:
            raise QueryError(str(unknown)) from unknown

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return the objects of a list of another API group. Raises QueryError."""
        raw = await self.send(Request(method="GET", path=path))
        return msgspec.json.decode(raw, type=Items[dict[str, Any]]).items

    async def pending_in_queue(self, queue: str) -> bytes:
        """Return the jobs that wait in a queue. Raises QueryError, with a hint at a queue."""
        try:
            path = f"/queues/{_segment(queue, 'queue')}/pendingjobs"
            return await self._owners.shown(await self._request("GET", path))
        except _Unknown as unknown:
            trees = msgspec.json.decode(await self.get("/queuetrees"), type=Items[_Item]).items
            near = difflib.get_close_matches(queue, [tree.metadata.name for tree in trees], n=1)
            hint = f"did you mean {near[0]}?" if near else "see `pumice queue tree`"
            raise QueryError(f"there is no queue {queue}; {hint}") from unknown

    def pending_target(self, job: str = "", *, is_hint: bool = False) -> WatchTarget:
        """Return the watch target for the pending jobs of the namespace, of all, or for one job."""
        if job:
            namespace, name = self._key(job)
            return WatchTarget(collection("pendingjobs", namespace), name, is_hint=is_hint)
        return WatchTarget(collection("pendingjobs", self.namespace))

    def changes_of(self, job: str) -> WatchTarget:
        """Return the watch target for events of a job and its pods. Raises QueryError."""
        namespace, name = self._key(job)
        return WatchTarget(collection("changes", namespace), about=name, is_hint=True)

    async def pending(self) -> bytes:
        """Return the jobs that wait, those without a PodGroup among them. Raises QueryError."""
        raw = await self._without_group.added_to(await self.get(self.pending_target().path))
        if self.namespace and not msgspec.json.decode(raw, type=Items[_Item]).items:
            await self._check_namespace()
        return raw

    async def _check_namespace(self) -> None:
        """Refuse a namespace that is not there. Who may not see it learns nothing."""
        try:
            path = f"/api/v1/namespaces/{quote(self.namespace)}"
            await self._transport.exchange(Request(method="GET", path=path))
        except Gone as error:
            raise QueryError(f"there is no namespace {self.namespace}") from error
        except PumiceError:
            return

    async def watch(self, watched: WatchTarget, version: str) -> Stream | None:
        """Open a watch from a resourceVersion; None if the client has to list first.

        Raises QueryError where there is no watch, or none for this user.
        """
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_S)),
        ]
        if version:
            query.append(("resourceVersion", version))
        if watched.name:
            query.append(("fieldSelector", f"metadata.name={watched.name}"))
        try:
            path = f"{_ROOT}{watched.path}"
            return await self._transport.open(Request(method="GET", path=path, query=query))
        except (Expired, Unreachable):
            return None
        except PumiceError as error:
            raise QueryError(self._error_message(error)) from error

    async def create(self, plural: str, body: Mapping[str, Any]) -> bytes:
        """Create an object and return the reply. Raises QueryError, also for an unknown field."""
        return await self.create_in_cluster(collection(plural, self.namespace or "default"), body)

    async def create_in_cluster(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create an object at a path of the API group, as `create` does."""
        try:
            return await self._request("POST", path, query=_STRICT, body=body)
        except _Unknown as unknown:
            raise QueryError(str(unknown)) from unknown

    async def send(self, request: Request) -> bytes:
        """Send a request about another group. Raises QueryError."""
        try:
            return await self._transport.exchange(request)
        except PumiceError as error:
            raise QueryError(self._error_message(error)) from error

    async def is_served(self, plural: str) -> bool:
        """Return whether the group serves a resource (older ones lack some). Raises QueryError."""
        found = msgspec.json.decode(await self.get(""), type=_Resources)
        return any(resource.name == plural for resource in found.resources)

    def _key(self, job: str) -> tuple[str, str]:
        """Return namespace and name of a job as a person names it. Raises QueryError."""
        if job in self._keys:
            return self._keys[job]
        namespace, slash, name = job.rpartition("/")
        if not _is_name(name) or (slash and not _is_name(namespace)):
            words = f"{job!r} is no NAME, NAMESPACE/NAME or KIND/NAME of a job"
            raise QueryError(words, code=WRONG_USAGE)
        return namespace or self.namespace or "default", name

    async def _request(
        self, method: str, path: str, *, query: Query = (), body: Mapping[str, Any] | None = None
    ) -> bytes:
        """Send a request. Raises QueryError, and _Unknown for an object that is not there."""
        data = None if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=f"{_ROOT}{path}", query=query, body=data)
        try:
            return await self._transport.exchange(request)
        except Gone as error:
            if isinstance(error, Refusal) and GROUP in error.status.message:
                raise _Unknown(error.status.message) from error
            raise QueryError(
                f"{self._transport.host}: {_NOT_INSTALLED_HINT}", code=NOT_INSTALLED
            ) from error
        except PumiceError as error:
            is_forbidden = isinstance(error, Refusal) and error.status.code == FORBIDDEN
            kind = ForbiddenError if is_forbidden else QueryError
            raise kind(self._error_message(error)) from error

    def _error_message(self, error: PumiceError) -> str:
        """Return an error of the API server as one line with a hint."""
        if isinstance(error, Unreachable):
            return f"{error}; is the cluster up, and is it the one of this kubeconfig?"
        if not isinstance(error, Refusal):
            return str(error)
        code, message = error.status.code, error.status.message
        if code == UNAUTHORIZED:
            return f"{self._transport.host} does not accept these credentials: log in anew"
        if code == FORBIDDEN:
            return f"{message}; {right_hint(message)}"
        if isinstance(error, Busy):
            return f"visibility cannot answer now: {message}; try again in a moment"
        return message

    async def _of_unstopped(self, namespace: str, name: str) -> str:
        """Say of a job that no gate stops whether it waits, "" where none of the name is known."""
        found = await self._decoded("explanations", namespace, name, Explanation)
        if found is None or found.about.kind == "Pod":
            return ""
        states = {gate.state for gate in found.gates}
        if "Failed" in states or not found.phase:
            return ""
        if "NotReached" in states:
            return f"has no forecast yet: {found.next_event}"
        return f"does not wait, {found.next_event or f'its phase is {found.phase}'}"

    async def _group_of_pod(self, namespace: str, name: str) -> str:
        """Return the PodGroup of a pod of that name, "" where there is none."""
        found = await self._decoded("explanations", namespace, name, Explanation)
        return found.pod_group if found is not None and found.about.kind == "Pod" else ""

    async def _last_phase(self, namespace: str, name: str) -> str:
        """Return the last phase of a job that neither waits nor runs, "" if it has no timeline."""
        found = await self._decoded(_TIMELINES, namespace, name, Timeline)
        if found is None or not found.phase:
            return ""
        if found.gone:
            return f"is gone, it was deleted while {found.phase}"
        if found.phase == "Pending":
            said = [entry.message for entry in found.entries if entry.what == "Phase"]
            return f"has no PodGroup yet: {''.join(said[-1:]) or found.phase}"
        return f"does not wait, its phase is {found.phase}"

    async def _decoded(self, plural: str, namespace: str, name: str, kind: type[_T]) -> _T | None:
        """Return the result for one object, None where this user gets none."""
        try:
            raw = await self.get(f"{collection(plural, namespace)}/{quote(name)}")
        except QueryError:
            return None
        return msgspec.json.decode(raw, type=kind)

    async def _near(self, namespace: str, name: str) -> str:
        """Return a hint at a job of a similar name, "" without one."""
        try:
            raw = await self.get(collection("pendingjobs", namespace))
        except QueryError:
            return ""
        names = [item.metadata.name for item in msgspec.json.decode(raw, type=Items[_Item]).items]
        near = difflib.get_close_matches(name, names, n=1)
        return f"; did you mean {near[0]}?" if near else f"; see `pumice why -n {namespace}`"


def collection(plural: str, namespace: str = "") -> str:
    """Return the path of a list, of all namespaces without one. Raises QueryError."""
    return f"/namespaces/{_segment(namespace, 'namespace')}/{plural}" if namespace else f"/{plural}"


def _segment(name: str, kind: str) -> str:
    """Return a name as a part of a path. Raises QueryError for one that would be other parts."""
    if not _is_name(name):
        raise QueryError(f"{name!r} is no name of a {kind}", code=WRONG_USAGE)
    return quote(name)


def _is_name(name: str) -> bool:
    """Return whether an object may have a name, by the API server's rule for parts of paths."""
    return name not in ("", ".", "..") and not set(name) & set("/%")


class _Unknown(Exception):  # noqa: N818 - the caller makes an error of it
    """An object that is not there."""


class _Resource(msgspec.Struct, frozen=True):
    name: str


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Resource]


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Owned(_Item, frozen=True):
    owner: ObjectRef


def _local() -> str:
    """Return the kubeconfig of the local cluster, "" if none runs."""
    directory = default_directory()
    cluster = state.read(directory)
    return cluster.kubeconfig if cluster and state.is_locked(directory) else ""


class Items(View, Generic[_T], frozen=True, kw_only=True):
    """The objects of a list."""

    items: tuple[_T, ...] = ()
