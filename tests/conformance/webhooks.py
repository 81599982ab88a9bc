"""Kind `webhook`: an object that is admitted, refused with words, or changed by a patch."""

import re
from collections.abc import Callable
from typing import Any

from services.admission.rules import cronjobs, queuetree
from services.admission.rules.catalogue import HOOKS
from services.admission.rules.groups import ResourceGroup, Selects
from services.admission.rules.review import AdmissionRequest, ReviewFacts, Terms, Verdict, refused
from shared.api.batch import Job
from shared.api.cron import CronJob
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from shared.jobs.flows import in_circles, in_order
from shared.jobs.problems import Problem
from shared.jobs.rules import job_problems, needs_of, queue_problems
from tests.conformance.report import Mismatch, Unsupported, expect

Case = dict[str, Any]


def run_webhook(case: Case) -> None:
    """Run a case of kind `webhook`; raises `Mismatch` or `Unsupported`."""
    function = case.get("function", "")
    if function in _NARROW:
        _NARROW[function](case)
        return
    hook = HOOKS.get(f"/{case['webhook']}")
    if hook is None:
        raise Unsupported(case["webhook"])
    _compare(case, hook.review(_request(case), _facts(case), _terms(case)))


def _request(case: Case) -> AdmissionRequest:
    stated = case.get("object") or {}
    if stated:
        stated = {"spec": {}, **stated}  # an object of Go has one, recorded or not
    metadata = stated.get("metadata") or {}
    return AdmissionRequest(
        operation=case.get("operation", "CREATE"),
        resource=case.get("resource", ""),
        name=case.get("name", metadata.get("name", "")),
        namespace=metadata.get("namespace", ""),
        requester=case.get("requester", ""),
        object=stated,
        old=case.get("oldObject") or {},
    )


def _facts(case: Case) -> ReviewFacts:
    existing = case.get("existing") or {}
    queues = [lenient(queue, Queue) for queue in existing.get("queues") or ()]
    return ReviewFacts(
        queues={queue.metadata.name: queue for queue in queues},
        namespace_annotations=existing.get("namespaceAnnotations") or {},
    )


def _terms(case: Case) -> Terms:
    config = case.get("config") or {}
    return Terms(
        scheduler_names=config.get("schedulerNames") or ("volcano",),
        max_queue_depth=config.get("maxQueueDepth", 5),
        check_allocated_pods=config.get("enableQueueAllocatedPodsCheck", False),
        protect_root=config.get("enableRootQueueProtection", True),
        queue_gates=bool(config.get("queueGates")),
        resource_groups=[_group(stated) for stated in config.get("resourceGroups") or ()],
    )


def _group(stated: dict[str, Any]) -> ResourceGroup:
    """Return a group as the corpus writes it: with the names of Go's fields."""
    selects = stated.get("Object") or {}
    return ResourceGroup(
        resource_group=stated.get("ResourceGroup", ""),
        object=Selects(key=selects.get("Key", ""), value=tuple(selects.get("Value") or ())),
        scheduler_name=stated.get("SchedulerName", ""),
        tolerations=tuple(stated.get("Tolerations") or ()),
        labels=stated.get("Labels") or {},
        affinity=stated.get("Affinity", ""),
    )


def _compare(case: Case, verdict: Verdict) -> None:
    wanted = {**(case.get("actual") or {}), **(case.get("expect") or {})}
    if "allowed" in wanted and verdict.allowed != wanted["allowed"]:
        raise Mismatch(f"allowed {verdict.allowed} ({verdict.message}), recorded {wanted}")
    _compare_message(case, verdict)
    if case["webhook"].endswith("mutate"):
        _compare_patch(case, verdict)


def _compare_message(case: Case, verdict: Verdict) -> None:
    """Where a whole message is recorded, ours may only add the path of the field before it.

    Paths are the object's own in ours, where Volcano writes `spec.task[0]` and `requests[cpu]`.
    """
    stated = case.get("expect") or {}
    wanted = [_with_own_paths(text) for text in stated.get("messageContains") or ()]
    missing = [text for text in wanted if text not in verdict.message]
    if missing:
        raise Mismatch(f"message {verdict.message!r} lacks {missing}")
    exact = stated.get("message")
    bare = "; ".join(problem.reason for problem in verdict.problems)
    if exact and exact not in {verdict.message, bare}:
        raise Mismatch(f"message {verdict.message!r}, recorded {exact!r}")


def _with_own_paths(text: str) -> str:
    """Return Volcano's text with the paths of fields as a user finds them in the object."""
    path, colon, rest = text.partition(": ")
    if not path.startswith("spec.task["):
        return text
    path = path.replace("spec.task[", "spec.tasks[")
    return re.sub(r"\b(requests|limits)\[([^]]+)\]", r"\1.\2", path) + colon + rest


def _compare_patch(case: Case, verdict: Verdict) -> None:
    expected, actual = case.get("expect") or {}, case.get("actual") or {}
    patch = expected.get("patch", actual.get("patch")) or []
    ours = list(verdict.patch)
    if isinstance(patch, dict):  # one part of the patch is recorded alone
        ours = [operation for operation in ours if operation["path"] == patch["path"]]
        patch = [patch]
    expect("patch", ours, patch)


def _job(case: Case) -> Job:
    return lenient(case["object"], Job)


def _job_created(case: Case) -> None:
    """Judge as the validating hook does, with the cluster's features as recorded."""
    job, facts = _job(case), _facts(case)
    gates = case.get("featureGates") or {}
    queue = facts.queues.get(job.spec.queue)
    found = [
        *job_problems(job, pod_level=gates.get("PodLevelResources", True)),
        *queue_problems(
            job.spec.queue,
            queue.status.state if queue else None,
            exists=queue is not None,
            children=len(facts.children(job.spec.queue)),
        ),
    ]
    _compare(case, refused(found, separator=" ", end=";"))


def _numa(case: Case) -> None:
    """Judge one task of a job; everything else about it goes unrecorded."""
    job = lenient({"metadata": {"name": "j"}, "spec": {"tasks": [_named(case["object"])]}}, Job)
    found = [p for p in job_problems(job) if p.path.endswith("requests.cpu")]
    _compare(case, refused(found, separator=" ", end=";"))


def _named(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task whose containers have names, as the API requires."""
    spec = task["template"]["spec"]
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            container.setdefault("name", f"{group.lower()}-{index}")
            container.setdefault("image", "a")
    return task


def _topo_sort(case: Case) -> None:
    wanted = case["expect"]
    order = in_order(needs_of(_job(case)))
    expect("isDag", order is not None, wanted["isDag"])
    if "sortedTasks" in wanted:
        expect("sortedTasks", order, wanted["sortedTasks"])


def _graph(case: Case) -> None:
    graph, wanted = case["object"], case["expect"]
    unknown = any(target not in graph for targets in graph.values() for target in targets)
    expect("loadError", unknown, wanted["loadError"])
    expect("isDag", not unknown and not in_circles(graph), wanted["isDag"])


def _cron_name(case: Case) -> None:
    _compare(case, refused(cronjobs.name_problems(case["object"])))


def _cron_spec(case: Case) -> None:
    _compare(case, refused(cronjobs.spec_problems(lenient(case["object"], CronJob).spec)))


def _queue(judge: Callable[[Queue, ReviewFacts, Terms], Problem | None]) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        facts = _facts(case)
        children = [lenient(child, Queue) for child in case.get("children") or ()]
        known = {**facts.queues, **{child.metadata.name: child for child in children}}
        problem = judge(lenient(case["object"], Queue), ReviewFacts(queues=known), _terms(case))
        message = problem.reason if problem else ""
        problems = (problem,) if problem else ()
        _compare(case, Verdict(allowed=problem is None, message=message, problems=problems))

    return run


def _depth(queue: Queue, facts: ReviewFacts, terms: Terms) -> Problem | None:
    return queuetree.depth_problem(queue, facts, most_levels=terms.max_queue_depth)


def _ancestor(queue: Queue, facts: ReviewFacts, _: Terms) -> Problem | None:
    return queuetree.ancestor_problem(queue, facts)


def _children(queue: Queue, facts: ReviewFacts, _: Terms) -> Problem | None:
    return queuetree.children_problem(queue, facts)


_NARROW: dict[str, Callable[[Case], None]] = {
    "validateJobCreate": _job_created,
    "validateTaskTopoPolicy": _numa,
    "topoSort": _topo_sort,
    "LoadVertexs+IsDAG": _graph,
    "validateCronJobName": _cron_name,
    "validateCronjobSpec": _cron_spec,
    "validateQueueDepth": _queue(_depth),
    "validateChildAgainstAncestor": _queue(_ancestor),
    "validateChildrenConstraints": _queue(_children),
}
"""Functions that the corpus calls by themselves; all others are whole hooks."""
