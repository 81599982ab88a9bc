"""Jobs: defaults (W10 to W13), validation of new ones (W20 to W25) and of updates (W26).

The rules themselves are in `shared.jobs`, where the controller finds them too.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from services.admission.rules.fields import unknown_fields
from services.admission.rules.review import (
    ALLOWED,
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    annotated_with,
    mutated,
    read,
    refused,
    unexpected,
)
from services.admission.rules.submissions import submission_problems
from shared.api import keys
from shared.api.base import Json
from shared.api.batch import DEFAULT_MAX_RETRY, Job
from shared.api.lenient import lenient
from shared.api.scheduling import DEFAULT_QUEUE
from shared.jobplugins.catalogue import plugins_of
from shared.jobs import wall_time
from shared.jobs.defaults import defaulted
from shared.jobs.problems import Problem
from shared.jobs.rules import (
    job_problems,
    name_problems,
    plugin_problems,
    queue_problems,
    scale_problems,
    update_problems,
)
from shared.jobs.templates import term_problems

_UNKNOWN_FIELDS_MAX: Final = 20
_HOST_NETWORK_DNS: Final = "ClusterFirstWithHostNet"
_CREATE, _UPDATE = "CREATE", "UPDATE"


def mutate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Fill in what is missing (W10 to W13).

    A job that cannot be read is left to the schema, which refuses it after the mutating hooks and
    names the field.
    """
    if wrong := unexpected(request, _CREATE):
        return wrong
    try:
        job = lenient(request.object, Job)
        if not isinstance(request.object.get("spec"), dict):
            return ALLOWED
    except msgspec.ValidationError:
        return ALLOWED
    full = defaulted(job, scheduler_name=terms.scheduler_names[0])
    annotations = job.metadata.annotations
    limit = ""
    if keys.MAX_RUNTIME not in annotations:  # one that is stated is refused if it is too large
        limit = wall_time.limit_by_queue(annotations, _annotations_of(full.spec.queue, facts))
    annotated = [annotated_with(request.object, keys.MAX_RUNTIME, limit)] if limit else []
    return mutated([*_patch(request.object["spec"], job, full), *annotated])


def _annotations_of(queue: str, facts: ReviewFacts) -> Mapping[str, str]:
    found = facts.queues.get(queue)
    return found.metadata.annotations if found is not None else {}


def _patch(spec: Json, job: Job, full: Job) -> Iterator[Json]:
    if not spec.get("queue"):
        yield {"op": "add", "path": "/spec/queue", "value": DEFAULT_QUEUE}
    if not spec.get("schedulerName"):
        yield {"op": "add", "path": "/spec/schedulerName", "value": full.spec.scheduler_name}
    if not spec.get("maxRetry"):
        yield {"op": "add", "path": "/spec/maxRetry", "value": DEFAULT_MAX_RETRY}
    tasks = [
        _task(given, named.name, named.min_available, named.max_retry)
        for given, named in zip(spec.get("tasks") or (), full.spec.tasks, strict=True)
    ]
    if tasks != (spec.get("tasks") or []):
        yield {"op": "replace", "path": "/spec/tasks", "value": tasks}
    if not spec.get("minAvailable"):
        least = sum(task.min_available or 0 for task in full.spec.tasks)
        yield {"op": "add", "path": "/spec/minAvailable", "value": least}
    if "plugins" in spec and spec["plugins"] is not None:
        given = {name: list(words) for name, words in job.spec.plugins.items()}
        implied = {name: list(words) for name, words in full.spec.plugins.items()}
        yield {"op": "replace", "path": "/spec/plugins", "value": {**implied, **given}}


def _task(stated: Json, name: str, least: int | None, retries: int) -> Json:
    """Return a task with its defaults; all other fields are unchanged."""
    task = dict(stated)
    if not task.get("name"):
        task["name"] = name
    if task.get("minAvailable") is None:
        task["minAvailable"] = least
    if not task.get("maxRetry"):
        task["maxRetry"] = retries
    template = task.get("template")
    if isinstance(template, dict):
        pod = template.get("spec")
        if isinstance(pod, dict) and pod.get("hostNetwork") and not pod.get("dnsPolicy"):
            task["template"] = {**template, "spec": {**pod, "dnsPolicy": _HOST_NETWORK_DNS}}
    return task


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a job that could never run, and changes that are not supported."""
    job = read(request, Job, _CREATE, _UPDATE)
    if isinstance(job, Verdict):
        return job
    if request.operation == _UPDATE:
        return _update(request, job, facts, terms)
    unknown = _unknown(request.object, facts)
    faults = _unknown_field_problems(unknown) if terms.refuse_unknown_fields else ()
    ours = job.spec.scheduler_name in terms.scheduler_names
    warnings = term_problems(job) if ours else ()
    queue = job.spec.queue or DEFAULT_QUEUE
    limits = wall_time.job_problems(job.metadata.annotations, _annotations_of(queue, facts), queue)
    beyond = submission_problems(job, facts, terms)
    if found := [*job_problems(job), *_queue(job, facts), *warnings, *faults, *limits, *beyond]:
        return refused(found, separator=" ", end=";")
    hints = [h for _, plugin, words in plugins_of(job) for h in plugin.hints(words)]
    return Verdict(hints=[*hints, *_warnings(unknown)])


def _update(request: AdmissionRequest, job: Job, facts: ReviewFacts, terms: Terms) -> Verdict:
    """W26: few fields may change, and the numbers must still go together.

    What a new version leaves out counts as its default: a file that is applied again does not state
    what admission had filled in (Volcano refuses that). A write of status, labels or finalizers is
    never rejected because of a spec that was stored before a rule existed. More replicas make
    longer names, which is rejected here because the pods could not be created.
    """
    if limits := [] if request.requester in terms.trusted_requesters else _new_limit(request, job):
        return refused(limits)
    if _spec(request.old) == _spec(request.object) or job.metadata.deletion_timestamp is not None:
        return ALLOWED
    try:
        old = lenient(request.old, Job)
    except (
        msgspec.ValidationError
    ):  # there is nothing to compare with, so it is validated like a new one
        return refused(job_problems(job))
    before, after = _filled(request.old, old, terms), _filled(request.object, job, terms)
    longer = {*name_problems(job), *plugin_problems(job)}
    longer -= {*name_problems(old), *plugin_problems(old)}
    slips = set(_unknown(request.old, facts))
    new = [path for path in _unknown(request.object, facts) if path not in slips]
    faults = _unknown_field_problems(new) if terms.refuse_unknown_fields else ()
    found = [
        *scale_problems(job), *sorted(longer, key=str), *update_problems(before, after), *faults,
    ]  # fmt: skip
    return refused(found) if found else Verdict(hints=_warnings(new))


def _new_limit(request: AdmissionRequest, job: Job) -> list[Problem]:
    """Return what is wrong with a changed limit: reservations rely on the one that was stated."""
    try:
        before = lenient(request.old, Job).metadata.annotations
    except msgspec.ValidationError:
        return []
    return list(wall_time.change_problems(before, job.metadata.annotations))


def _unknown(stated: Json, facts: ReviewFacts) -> list[str]:
    """Return the paths of the first fields that Kubernetes does not know."""
    return list(islice(unknown_fields(_spec(stated), facts.schemas), _UNKNOWN_FIELDS_MAX))


def _unknown_field_problems(unknown: Iterable[str]) -> list[Problem]:
    return [Problem(path, "Kubernetes knows no such field") for path in unknown]


def _warnings(unknown: Iterable[str]) -> list[str]:
    """Return warnings in the form of the API server's own."""
    return [f'unknown field "{path}"' for path in unknown]


def _filled(stated: Json, job: Job, terms: Terms) -> Json:
    """Return the spec of a job with its defaults."""
    spec = _spec(stated)
    full = defaulted(job, scheduler_name=terms.scheduler_names[0])
    changes = {op["path"].rpartition("/")[2]: op["value"] for op in _patch(spec, job, full)}
    return {**spec, **changes}


def _spec(stated: Mapping[str, Any]) -> Json:
    spec = stated.get("spec")
    return spec if isinstance(spec, dict) else {}


def _queue(job: Job, facts: ReviewFacts) -> Iterator[Problem]:
    """Check the queue (W24); the default one may still be missing: the controller makes it."""
    name = job.spec.queue or DEFAULT_QUEUE
    queue = facts.queues.get(name)
    if queue is None and name == DEFAULT_QUEUE:
        return iter(())
    return queue_problems(
        name,
        queue.status.state if queue is not None else None,
        exists=queue is not None,
        children=len(facts.children(name)),
    )
