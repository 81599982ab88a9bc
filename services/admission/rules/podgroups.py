"""PodGroups: the queue of their namespace (W40), and validation of new ones (W41)."""

from collections.abc import Iterator

from services.admission.rules.review import (
    ALLOWED,
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    mutated,
    read,
    refused,
    unexpected,
)
from shared.api import keys
from shared.api.scheduling import DEFAULT_QUEUE, PodGroup, QueueState
from shared.jobs.problems import Problem
from shared.jobs.rules import topology_problems

_CREATE = "CREATE"


def mutate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Put a group that names no queue of its own into that of its namespace (W40)."""
    del terms
    if wrong := unexpected(request, _CREATE):
        return wrong
    spec = request.object.get("spec")
    queue = facts.namespace_annotations.get(keys.SCHEDULING_QUEUE_NAME)
    if not isinstance(spec, dict) or spec.get("queue") != DEFAULT_QUEUE or queue is None:
        return ALLOWED
    return mutated([{"op": "add", "path": "/spec/queue", "value": queue}])


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a group without an open queue, or with a tier named twice (W41)."""
    del terms
    group = read(request, PodGroup, _CREATE)
    if isinstance(group, Verdict):
        return group
    stated = request.object.get("spec")
    named = isinstance(stated, dict) and bool(stated.get("queue"))
    return refused([*(_queue(group, facts) if named else ()), *_topologies(group)])


def _queue(group: PodGroup, facts: ReviewFacts) -> Iterator[Problem]:
    name = group.spec.queue
    queue = facts.queues.get(name)
    if queue is None:
        yield Problem(
            "spec.queue", f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found'
        )
    elif queue.status.state not in {None, "", QueueState.OPEN}:
        yield Problem(
            "spec.queue",
            f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is"
            f" `{queue.status.state}`",
        )


def _topologies(group: PodGroup) -> Iterator[Problem]:
    yield from topology_problems("spec.networkTopology", group.spec.network_topology)
    for index, policy in enumerate(group.spec.sub_group_policy):
        at = f"spec.subGroupPolicy[{index}].networkTopology"
        for problem in topology_problems(at, policy.network_topology):
            yield Problem(at, f"in subGroupPolicy '{policy.name}': {problem.reason}")
