"""How long a job is expected to run, as its objects say it: an annotation, then the pods' deadline.

The scheduler reads it to reserve room, and forecasts read it before they look at history. Where
neither is stated, nothing is known here. Times count from the start of a pod.
"""

import enum
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from shared.api import keys
from shared.api.batch import Job, TaskSpec
from shared.api.core import Pod
from shared.model import durations

_KEPT: Final = 1024
_GENERATED: Final = re.compile(r"\d+|[bcdfghjklmnpqrstvwxz2456789]{5,10}|(?=.*\d)[0-9a-f]{6,}")
"""A part of a name that is numbered, drawn by Kubernetes, or hexadecimal."""

_OF_QUOTAS: Final = ("requests.", "limits.", "count/")


class Basis(enum.StrEnum):
    """Where an expected duration comes from, the surest first."""

    ANNOTATION = "annotation"
    DEADLINE = "deadline"
    HISTORY = "history"
    OTHERS = "others"
    DEFAULT = "default"


class Expected(NamedTuple):
    """A duration that objects state."""

    seconds: float
    basis: Basis


@lru_cache(_KEPT)
def parse(text: str) -> float | None:
    """Return the seconds of `90`, `5400.5` or `1h30m`; None for a text that is none of these."""
    found_s = durations.setting(text)
    return found_s if found_s is not None and 0 < found_s < math.inf else None


@lru_cache(_KEPT)
def _stated(annotation: str, deadline_s: int | None) -> Expected | None:
    found_s = parse(annotation)
    if found_s is not None:
        return Expected(found_s, Basis.ANNOTATION)
    return Expected(float(deadline_s), Basis.DEADLINE) if deadline_s else None


def of_pod(pod: Pod) -> Expected | None:
    """Return what a pod says: its annotation, else `activeDeadlineSeconds`."""
    annotation = pod.metadata.annotations.get(keys.EXPECTED_DURATION, "")
    return _stated(annotation, pod.spec.active_deadline_seconds)


def of_gang(
    annotations: Mapping[str, str],
    pods: Iterable[Expected | None] = (),
    *,
    limit_s: float | None = None,
) -> Expected | None:
    """Return what a gang says: the annotation of its PodGroup or Job, else the longest of its pods.

    An annotation of any pod comes before all deadlines. A deadline of some of the pods only bounds
    nothing: the gang lasts as long as the others. `limit_s` is the wall time of the job
    (`wall_time`), in seconds: a deadline of all pods.
    """
    found = _of_gang(annotations, pods)
    if limit_s is None or (found is not None and found.seconds <= limit_s):
        return found
    return Expected(limit_s, Basis.DEADLINE)


def _of_gang(annotations: Mapping[str, str], pods: Iterable[Expected | None]) -> Expected | None:
    found_s = parse(annotations.get(keys.EXPECTED_DURATION, ""))
    if found_s is not None:
        return Expected(found_s, Basis.ANNOTATION)
    estimates = list(pods)
    if annotated := [e for e in estimates if e is not None and e.basis is Basis.ANNOTATION]:
        return max(annotated)
    limits = [e for e in estimates if e is not None]
    return max(limits) if limits and len(limits) == len(estimates) else None


class _Metadata(msgspec.Struct, frozen=True):
    annotations: Mapping[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    active_deadline_seconds: int | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


_TEMPLATE: Final = msgspec.json.Decoder(_Template)


def of_job(job: Job) -> Expected | None:
    """Return what a Job says: its annotations, else what the templates of its pods say."""
    tasks = (task for task in job.spec.tasks if task.replicas)
    stated = job.metadata.annotations
    limit_s = parse(stated.get(keys.MAX_RUNTIME, ""))
    return of_gang(stated, (_of_template(task) for task in tasks), limit_s=limit_s)


def _of_template(task: TaskSpec) -> Expected | None:
    """Return what a pod template says; a field of another form says nothing."""
    try:
        template = _TEMPLATE.decode(task.template)
    except msgspec.ValidationError:
        return None
    annotations = (template.metadata or _Metadata()).annotations or {}
    limit_s = (template.spec or _Spec()).active_deadline_seconds or 0
    return _stated(annotations.get(keys.EXPECTED_DURATION, ""), limit_s if limit_s > 0 else None)


def size_of(minimum: Mapping[str, int]) -> str:
    """Return the name that a job shares with others that need about as much.

    `minimum` is minResources of its PodGroup in thousandths; each amount counts by the next power
    of two. What quotas alone count (`requests.cpu`, `count/pods`) says the same again.
    """
    listed = (
        f"{name}<{(amount - 1).bit_length()}"
        for name, amount in sorted(minimum.items())
        if amount > 0 and not name.startswith(_OF_QUOTAS)
    )
    return " ".join(listed)


def template_of(key: str, annotations: Mapping[str, str]) -> str:
    """Return the name that a job shares with others that were made alike.

    Of a job of a flow it is its JobTemplate; of any other its own key without the parts at the end
    that are generated, so that jobs of a CronJob, and those that users number, share one.
    """
    if template := annotations.get(keys.CREATED_BY_TEMPLATE):
        return template
    namespace, _, name = key.rpartition("/")
    parts = name.split("-")
    while len(parts) > 1 and _GENERATED.fullmatch(parts[-1]):
        parts.pop()
    return f"{namespace}/{'-'.join(parts)}"
