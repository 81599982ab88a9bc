"""Queues: defaults (W50), validation by itself (W51, W52) and of a deletion (W54).

Messages are exactly Volcano's, because these already name the field, or the queue and its resource.
`queuetree` validates a queue within the tree.
"""

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from services.admission.rules import queuetree
from services.admission.rules.review import (
    ALLOWED,
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    annotated_with,
    denied,
    mutated,
    refused,
)
from shared.api import keys
from shared.api.base import CrQuantity, Json
from shared.api.lenient import lenient
from shared.api.scheduling import DEFAULT_QUEUE, ROOT_QUEUE, Queue, QueueOrder, QueueState
from shared.jobs import wall_time
from shared.jobs.problems import Problem, unreadable
from shared.model import quantity
from shared.model.quantity import BadQuantity, is_quantity, milli

_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_DELETE: Final = "DELETE"
_STATES: Final = (QueueState.OPEN, QueueState.CLOSED)
_AT: Final = "requestBody"
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods", "storage")
_NATIVE_PREFIXES: Final = ("hugepages-", "attachable-volumes-", "requests.", "limits.")
"""Resources of Kubernetes itself, by its rules for names of resources."""

Amounts = Mapping[str, CrQuantity]


def mutate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Fill in what is missing (W50).

    A queue that cannot be read is left to the schema, which refuses it after the mutating hooks and
    names the field.
    """
    del facts, terms
    if request.operation != _CREATE:
        return denied(
            f"invalid operation `{request.operation}`, expect operation to be `{_CREATE}`"
        )
    try:
        lenient(request.object, Queue)
    except msgspec.ValidationError:
        return ALLOWED
    return mutated(_patch(request.object))


def _patch(stated: Json) -> Iterator[Json]:
    metadata, spec = stated.get("metadata") or {}, stated.get("spec")
    annotations = metadata.get("annotations") or {}
    path, weights = annotations.get(keys.HIERARCHY), annotations.get(keys.HIERARCHY_WEIGHTS)
    if path and weights and not path.startswith(ROOT_QUEUE):
        yield annotated_with(stated, keys.HIERARCHY, f"{ROOT_QUEUE}/{path}")
        yield annotated_with(stated, keys.HIERARCHY_WEIGHTS, f"1/{weights}")
    if spec is None:
        yield {"op": "add", "path": "/spec", "value": {"reclaimable": True, "weight": 1}}
        return
    if spec.get("reclaimable") is None:
        yield {"op": "add", "path": "/spec/reclaimable", "value": True}
    if not spec.get("weight"):
        yield {"op": "add", "path": "/spec/weight", "value": 1}


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a queue that contradicts itself or the tree that it is part of (W51 to W54)."""
    if request.operation == _DELETE:
        return _verdict(_deletion(_deleted(request), facts, terms))
    if request.operation not in {_CREATE, _UPDATE}:
        return denied(
            f"invalid operation `{request.operation}`, expect operation to be `CREATE`, `UPDATE`"
            " or `DELETE`"
        )
    try:
        queue = lenient(request.object, Queue)
        old = lenient(request.old, Queue) if request.operation == _UPDATE else None
    except msgspec.ValidationError as error:
        return refused([unreadable(error)])
    if old is not None and old.spec == queue.spec and queue.metadata.deletion_timestamp:
        return ALLOWED
    if found := list(dict.fromkeys(_of_itself(queue, old, facts))):
        texts = [str(problem) for problem in found]
        message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return Verdict(allowed=False, message=message, problems=tuple(found))
    if problem := _in_the_tree(queue, old, facts, terms):
        return _verdict(problem)
    return Verdict(hints=list(_unknown_resources(queue)))


def _verdict(problem: Problem | None) -> Verdict:
    return ALLOWED if problem is None else denied(problem.reason, problem.path)


def _in_the_tree(
    queue: Queue, old: Queue | None, facts: ReviewFacts, terms: Terms
) -> Problem | None:
    if old is None or old.spec.parent != queue.spec.parent:
        problem = queuetree.place_problem(queue, facts, most_levels=terms.max_queue_depth)
        if problem is not None:
            return problem
    changed = old is None or _resources(old) != _resources(queue)
    if queue.metadata.name == ROOT_QUEUE:
        if terms.protect_root and old is not None and changed:
            return Problem(
                "spec",
                "root queue's resource attributes (capability, deserved, guarantee) cannot be"
                " modified",
            )
        return None
    if changed or (old is not None and old.spec.parent != queue.spec.parent):
        return queuetree.share_problem(queue, facts)
    return None


def _resources(queue: Queue) -> tuple[dict[str, CrQuantity], ...]:
    """Return what a queue may use, in thousandths, so that `1` and `1000m` are the same.

    An amount that is none, of an older version, stands for itself.
    """
    spec = queue.spec
    return tuple(
        {name: milli(amount) if is_quantity(amount) else amount for name, amount in amounts.items()}
        for amounts in (spec.capability, spec.deserved, spec.guarantee.resource)
    )


def _of_itself(queue: Queue, old: Queue | None, facts: ReviewFacts) -> Iterator[Problem]:
    """Yield the problems of a queue; a state that the controller has written is accepted."""
    yield from _amounts(queue)
    state = queue.status.state
    is_kept = old is not None and old.status.state == state
    if state and state not in _STATES and not is_kept:
        yield _invalid("spec.state", str(state), f"queue state must be in [{' '.join(_STATES)}]")
    order = queue.metadata.annotations.get(keys.QUEUE_ORDER)
    if order is not None and order not in set(QueueOrder):
        known = ", ".join(QueueOrder)
        yield _invalid(f"metadata.annotations[{keys.QUEUE_ORDER}]", order, f"it is none of {known}")
    yield from wall_time.queue_problems(queue.metadata.annotations)
    yield from _hierarchy(queue, facts)


def _amounts(queue: Queue) -> Iterator[Problem]:
    """Guarantee ≤ deserved ≤ capability, each a quantity and none negative (W51)."""
    spec = queue.spec
    guarantee = spec.guarantee.resource
    unreadable = False
    for field, amounts in _bounds(queue):
        for problem in _quantities(field, amounts):
            unreadable = unreadable or "is no quantity" in problem.reason
            yield problem
    if unreadable:
        return
    for name, least in sorted(guarantee.items()):
        deserved = spec.deserved.get(name)
        at, shown = f"spec.deserved.{name}", quantity.canonical(least)
        if deserved is None:
            yield _invalid(at, "<nil>", f"deserved[{name}] must be >= guarantee[{name}]={shown}")
        elif milli(deserved) < milli(least):
            text = quantity.canonical(deserved)
            yield _invalid(
                at, text, f"deserved[{name}]={text} must be >= guarantee[{name}]={shown}"
            )
    for name, deserved in sorted(spec.deserved.items()):
        most = spec.capability.get(name)
        if most is not None and milli(deserved) > milli(most):
            text = quantity.canonical(deserved)
            yield _invalid(
                f"spec.deserved.{name}",
                text,
                f"deserved[{name}]={text} must be <= capability[{name}]={quantity.canonical(most)}",
            )


def _unknown_resources(queue: Queue) -> Iterator[str]:
    """Warn of resources that no node and no pod can have, so that the limit has no effect.

    Kubernetes takes names without a domain for its own resources alone.
    """
    for field, amounts in _bounds(queue):
        for name in sorted(amounts):
            if "/" in name or name in _NATIVE or name.startswith(_NATIVE_PREFIXES):
                continue
            near = difflib.get_close_matches(name, _NATIVE, n=1, cutoff=0.5)
            meant = f"; {near[0]} is one" if near else ""
            yield f'spec.{field}: Kubernetes has no resource "{name}"{meant}: it bounds nothing'


def _bounds(queue: Queue) -> tuple[tuple[str, Amounts], ...]:
    spec = queue.spec
    return (
        ("capability", spec.capability),
        ("deserved", spec.deserved),
        ("guarantee.resource", spec.guarantee.resource),
    )


def _quantities(field: str, amounts: Amounts) -> Iterator[Problem]:
    for name, amount in sorted(amounts.items()):
        at = f"spec.{field}.{name}"
        try:
            exact = milli(amount)
        except BadQuantity as error:
            yield Problem(f"{_AT}.{at}", str(error))
            continue
        shown = quantity.canonical(amount)
        if exact < 0:
            yield _invalid(at, shown, "must be greater than or equal to 0")
        if exact % 1000 and _is_whole(name):
            yield _invalid(at, shown, "must be an integer")


def _is_whole(name: str) -> bool:
    """Tell whether a resource is counted in whole units: pods, and devices of a domain."""
    return name == "pods" or ("/" in name and not name.startswith("requests."))


def _hierarchy(queue: Queue, facts: ReviewFacts) -> Iterator[Problem]:
    """W52: a path, as many weights, and no queue where another one's path goes on."""
    path = queue.metadata.annotations.get(keys.HIERARCHY, "")
    weights = queue.metadata.annotations.get(keys.HIERARCHY_WEIGHTS, "")
    at = "metadata.annotations"
    if not path and not weights:
        return
    if len(path.split("/")) != len(weights.split("/")):
        yield _invalid(
            at, path, f"{keys.HIERARCHY} must have the same length with {keys.HIERARCHY_WEIGHTS}"
        )
        return
    for weight in weights.split("/"):
        number = _number(weight)
        if math.isnan(number):
            yield _invalid(
                at,
                weights,
                f"{weight} in the {weights} is invalid number: strconv.ParseFloat: parsing"
                f' "{weight}": invalid syntax',
            )
            return
        if number <= 0:
            yield _invalid(at, weights, f"{weight} in the {weights} must be larger than 0")
            return
    for name in sorted(facts.queues):
        other = facts.queues[name].metadata.annotations.get(keys.HIERARCHY, "")
        if name != queue.metadata.name and other.startswith(f"{path}/"):
            yield _invalid(
                at, path, f"{path} is not allowed to be in the sub path of {other} of queue {name}"
            )
            return


def _number(text: str) -> float:
    """Return a number, NaN when it is none."""
    try:
        return float(text) if text.strip() == text and "_" not in text else math.nan
    except ValueError:
        return math.nan


def _deleted(request: AdmissionRequest) -> str:
    """Return the name of a deleted queue; in a collection delete only the objects have names."""
    metadata = request.old.get("metadata")
    return request.name or str(metadata.get("name", "") if isinstance(metadata, dict) else "")


def _deletion(name: str, facts: ReviewFacts, terms: Terms) -> Problem | None:
    """W54: a queue may be deleted unless it is in use.

    A closed queue has no PodGroups: pods in its status have ended, or are about to.
    """
    at = "metadata.name"
    if name in {DEFAULT_QUEUE, ROOT_QUEUE}:
        return Problem(at, f"`{name}` queue can not be deleted")
    queue = facts.queues.get(name)
    if queue is None:
        return Problem(at, f'queue.scheduling.volcano.sh "{name}" not found')
    pods = 0 if queue.status.state == QueueState.CLOSED else queuetree.pods_of(queue)
    if terms.check_allocated_pods and pods:
        return Problem(
            "status.allocated.pods",
            f"queue {name} cannot be deleted because it has allocated Pods: {pods}",
        )
    if children := [child.metadata.name for child in facts.children(name)]:
        return Problem(
            at,
            f"queue {name} can not be deleted because it has {len(children)} child queues:"
            f" {', '.join(children)}",
        )
    return None


def _invalid(path: str, value: str, why: str) -> Problem:
    """Return a problem in the form of Kubernetes's field errors."""
    return Problem(f"{_AT}.{path}", f'Invalid value: "{value}": {why}')
