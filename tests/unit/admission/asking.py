"""Requests to the rules of admission, made as short as a table needs them."""

from typing import Any

from services.admission.rules.catalogue import HOOKS
from services.admission.rules.fields import Schemas
from services.admission.rules.review import AdmissionRequest, ReviewFacts, Terms, Verdict
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from tests.support.world import queue

Json = dict[str, Any]


def ask(
    path: str,
    obj: Json | None = None,
    *,
    operation: str = "CREATE",
    old: Json | None = None,
    name: str = "",
    resource: str = "",
    queues: list[Json] | None = None,
    namespace: dict[str, str] | None = None,
    schemas: Schemas | None = None,
    **terms: Any,
) -> Verdict:
    """Return what a hook says; `queues` stand in the cluster, `namespace` has these annotations."""
    known = [lenient(each, Queue) for each in queues or [queue_named("default")]]
    facts = ReviewFacts(
        queues={each.metadata.name: each for each in known},
        namespace_annotations=namespace or {},
        schemas=schemas or {},
    )
    stated = obj or {}
    metadata = stated.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    request = AdmissionRequest(
        operation=operation,
        resource=resource,
        name=name or about.get("name", ""),
        namespace=about.get("namespace", ""),
        object=stated,
        old=old or {},
    )
    verdict = HOOKS[path].review(request, facts, Terms(**terms))
    for problem in verdict.problems:
        twice = problem.path and problem.path in problem.reason
        assert not twice, f"the path stands in the fault once more: {problem}"
        assert "spec.task[" not in problem.reason, f"there is no such field: {problem}"
    return verdict


def paths(verdict: Verdict) -> list[str]:
    """Return the fields that a refusal names."""
    return [problem.path for problem in verdict.problems]


def new_queue(name: str = "q", **more) -> Json:
    """Return a queue that is asked for."""
    return queue(name, **{"weight": 1, **more})


def queue_named(name: str, *, state: str = "Open", **more) -> Json:
    """Return a queue of a cluster."""
    return {**new_queue(name, **more), "status": {"state": state}}


def task(name: str = "w", replicas: int = 1, **extra: Any) -> Json:
    """Return a task of one container."""
    container = {"name": "main", "image": "busybox"}
    template = extra.pop("template", {"spec": {"containers": [container]}})
    return {"name": name, "replicas": replicas, "template": template, **extra}


def sparse_job(*tasks: Json, name: str = "j", **spec: Any) -> Json:
    """Return a job of one task, unless others are told, that leaves out what it may."""
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"tasks": list(tasks or [task()]), "queue": "default", **spec},
    }


def template(**spec: Any) -> Json:
    """Return a job whose only pod has this spec beside a good container."""
    pod = {"containers": [{"name": "main", "image": "busybox"}], **spec}
    return sparse_job(task(template={"spec": pod}))


def container(**fields: Any) -> Json:
    """Return a job whose only container has these fields."""
    return template(containers=[{"name": "main", "image": "busybox", **fields}])
