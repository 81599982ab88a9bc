"""Input and answer of a rule; values only.

A rule is a function of one request, of the facts that its hook needs, and of the settings
(`Terms`). It does no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec

from services.admission.rules.fields import Schemas
from services.admission.rules.groups import ResourceGroup, SubmitLimit
from shared.api.base import Json, View
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from shared.jobs.limits import LimitHolder
from shared.jobs.problems import Problem, texts, unreadable

T = TypeVar("T", bound=View)

Patch = tuple[Json, ...]
"""A JSON patch (RFC 6902)."""


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an AdmissionRequest that rules read."""

    operation: str
    resource: str = ""
    """Plural of the object's kind; empty when the request does not say."""
    name: str = ""
    namespace: str = ""
    requester: str = ""
    """Name of the user or service account that sent the request."""
    object: Json = msgspec.field(default_factory=dict)
    """Empty for a deletion."""
    old: Json = msgspec.field(default_factory=dict)
    """The object before the change; empty for a creation."""
    too_deep: bool = False
    """Whether `object` is nested so deeply that only the upper part of it was read."""


class SubmittedJob(NamedTuple):
    """Queue, user and namespace of a Job."""

    queue: str
    holder: LimitHolder


class ReviewFacts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Facts about the cluster; a hook names those that it needs."""

    queues: Mapping[str, Queue] = msgspec.field(default_factory=dict)
    schemas: Schemas = msgspec.field(default_factory=dict)
    """Schemas of pods and claims from the API server; empty if unknown."""
    namespace_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    owner_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Annotations of the object's controlling owner."""
    submitted: Mapping[str, SubmittedJob] = msgspec.field(default_factory=dict)
    """Jobs that have not finished, by uid."""

    def children(self, name: str) -> list[Queue]:
        """Return the queues whose parent is `name`, in order of their names."""
        return sorted(self._below.get(name, ()), key=lambda queue: queue.metadata.name)

    @cached_property
    def _below(self) -> Mapping[str, list[Queue]]:
        below: dict[str, list[Queue]] = {}
        for queue in self.queues.values():
            below.setdefault(queue.spec.parent, []).append(queue)
        return below


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that rules depend on (W02)."""

    scheduler_names: Sequence[str] = ("volcano",)
    max_queue_depth: int = 5
    check_allocated_pods: bool = True
    """Whether the deletion of a queue with allocated pods is rejected."""
    protect_root: bool = True
    """Whether the resources of the root queue may not be changed."""
    resource_groups: Sequence[ResourceGroup] = ()
    trusted_requesters: Sequence[str] = ()
    """Requesters that may state another user than themselves."""
    user_sources: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Requester → annotation of the owner that names the user of what the requester creates."""
    submit_limits: Sequence[SubmitLimit] = ()
    queue_gates: bool = False
    """Whether pods that ask for the gate of their queue get it (W31)."""
    refuse_unknown_fields: bool = False
    """Whether an unknown field of a template is an error, not a warning."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request."""

    allowed: bool = True
    message: str = ""
    problems: Sequence[Problem] = ()
    """The problems in the message, by field."""
    patch: Patch = ()
    hints: Sequence[str] = ()
    """Fields of an admitted object that have no effect; its author is warned."""


ALLOWED = Verdict()

_CAUSES_MAX: Final = 20

Rule = Callable[[AdmissionRequest, ReviewFacts, Terms], Verdict]


def refused(problems: Iterable[Problem], *, separator: str = "; ", end: str = "") -> Verdict:
    """Return a refusal that names each problem by its field; without problems an admission."""
    found = tuple(problems)
    if not found:
        return ALLOWED
    message = separator.join(f"{words}{end}" for words in texts(found))
    return Verdict(allowed=False, message=message, problems=found[:_CAUSES_MAX])


def denied(message: str, path: str = "") -> Verdict:
    """Return a refusal with exactly this message; `path` is the field."""
    return Verdict(allowed=False, message=message, problems=(Problem(path, message),))


def mutated(patch: Iterable[Json]) -> Verdict:
    """Return an admission with these changes."""
    return Verdict(patch=tuple(patch))


def annotated_with(stated: Json, key: str, value: str) -> Json:
    """Return the operation that gives an object an annotation."""
    metadata = stated.get("metadata")
    if not isinstance(metadata, dict):
        return {"op": "add", "path": "/metadata", "value": {"annotations": {key: value}}}
    if not isinstance(metadata.get("annotations"), dict):
        return {"op": "add", "path": "/metadata/annotations", "value": {key: value}}
    return {"op": "add", "path": annotation_path(key), "value": value}


def annotation_path(key: str) -> str:
    """Return the path of an annotation in a JSON patch."""
    return f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"


def unexpected(request: AdmissionRequest, *known: str) -> Verdict | None:
    """Return a refusal of an operation that a hook does not handle."""
    if request.operation in known:
        return None
    return denied(f"unsupported operation {request.operation}: expected {' or '.join(known)}")


def read(request: AdmissionRequest, view: type[T], *operations: str) -> T | Verdict:
    """Return the object as its rules see it; else a refusal of the operation or the unreadable."""
    if wrong := unexpected(request, *operations):
        return wrong
    try:
        return lenient(request.object, view)
    except msgspec.ValidationError as error:
        return refused([unreadable(error)])
