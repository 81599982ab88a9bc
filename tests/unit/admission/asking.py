"""Requests to the rules of admission, made as short as a table needs them."""

from typing import Any

from services.admission.rules.catalogue import HOOKS
from services.admission.rules.fields import Schemas
from services.admission.rules.review import AdmissionRequest, Facts, Terms, Verdict
from shared.api.lenient import lenient
from shared.api.scheduling import Queue

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
    known = [lenient(queue, Queue) for queue in queues or [queue_named("default")]]
    facts = Facts(
        queues={queue.metadata.name: queue for queue in known},
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


def queue(name: str = "q", annotations: Json | None = None, **spec) -> Json:
    """Return a queue that is asked for."""
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": {"weight": 1, **spec}}


def queue_named(name: str, *, state: str = "Open", **more) -> Json:
    """Return a queue of a cluster."""
    return {**queue(name, **more), "status": {"state": state}}


def task(name: str = "w", replicas: int = 1, **extra: Any) -> Json:
    """Return a task of one container."""
    container = {"name": "main", "image": "busybox"}
    template = extra.pop("template", {"spec": {"containers": [container]}})
    return {"name": name, "replicas": replicas, "template": template, **extra}


def job(*tasks: Json, name: str = "j", **spec: Any) -> Json:
    """Return a job as a user writes it."""
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"tasks": list(tasks or [task()]), "queue": "default", **spec},
    }


def template(**spec: Any) -> Json:
    """Return a job whose only pod has this spec beside a good container."""
    pod = {"containers": [{"name": "main", "image": "busybox"}], **spec}
    return job(task(template={"spec": pod}))


def container(**fields: Any) -> Json:
    """Return a job whose only container has these fields."""
    return template(containers=[{"name": "main", "image": "busybox", **fields}])
