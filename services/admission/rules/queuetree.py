"""Validates a queue within the tree of queues (W53): its parent, depth and resources.

Messages are exactly Volcano's. Amounts are compared as scheduling counts them; only the first
problem is reported.
"""

from typing import Final

from services.admission.rules.review import ReviewFacts
from shared.api.base import CrResourceList
from shared.api.scheduling import ROOT_QUEUE, Queue
from shared.jobs.problems import Problem
from shared.model import quantity
from shared.model.quantity import BadQuantity, is_quantity, milli
from shared.model.resources import Absent, Resource, parse_list

_PARENT: Final = "spec.parent"


def place_problem(queue: Queue, facts: ReviewFacts, *, most_levels: int) -> Problem | None:
    """Return why a queue cannot be below its parent."""
    name, parent = queue.metadata.name, queue.spec.parent
    if parent in {"", ROOT_QUEUE}:
        return None
    if parent == name:
        return Problem(_PARENT, f"queue {name} cannot use itself as parent")
    if (problem := depth_problem(queue, facts, most_levels=most_levels)) is not None:
        return problem
    above = facts.queues.get(parent)
    if above is None:
        return Problem(_PARENT, f"failed to get parent queue of queue {name}: {_not_found(parent)}")
    pods = pods_of(above)
    if pods and not facts.children(parent):
        return Problem(
            _PARENT,
            f"queue {parent} cannot be the parent queue of queue {name} because it has allocated"
            f" Pods: {pods}",
        )
    return None


def depth_problem(queue: Queue, facts: ReviewFacts, *, most_levels: int) -> Problem | None:
    """Return why a queue would be too deep in the tree; a cycle of parents is too deep, too."""
    name, parent = queue.metadata.name, queue.spec.parent
    depth = 1
    while parent not in {"", ROOT_QUEUE}:
        depth += 1
        if depth > most_levels:
            return Problem(
                _PARENT, f"queue {name} exceeds the maximum allowed depth of {most_levels}"
            )
        above = facts.queues.get(parent)
        if above is None:
            return Problem(
                _PARENT,
                f"failed to get parent queue {parent} of queue {name}: {_not_found(parent)}",
            )
        parent = above.spec.parent
    return None


def share_problem(queue: Queue, facts: ReviewFacts) -> Problem | None:
    """Return why a queue's resources conflict with those of its ancestors or children."""
    parent = queue.spec.parent
    if parent not in {"", ROOT_QUEUE}:
        above = facts.queues.get(parent)
        if above is None:
            return Problem(_PARENT, f"parent queue {parent} not found: {_not_found(parent)}")
        siblings = [s for s in facts.children(parent) if s.metadata.name != queue.metadata.name]
        problem = ancestor_problem(queue, facts) or _sums(
            above, [*siblings, queue], f"parent queue {parent}"
        )
        if problem is not None:
            return problem
    return children_problem(queue, facts)


def ancestor_problem(queue: Queue, facts: ReviewFacts) -> Problem | None:
    """Return why a queue's limit exceeds that of its nearest limited ancestor."""
    own = _amounts(queue.spec.capability)
    for name in own.names():
        bound = _bound_above(queue, name, facts)
        if bound is not None and own.get(name) > bound:
            return Problem(
                f"spec.capability.{name}",
                f"queue {queue.metadata.name} capability[{name}]={_text(name, own.get(name))}"
                f" exceeds its ancestor's capability={_text(name, bound)}",
            )
    return None


def children_problem(queue: Queue, facts: ReviewFacts) -> Problem | None:
    """Return why a queue's limit or guarantee is below those of its children."""
    children = facts.children(queue.metadata.name)
    if not children:
        return None
    own = _amounts(queue.spec.capability)
    for name in own.names():
        most = max(_most_below(child, name, facts) for child in children)
        if own.get(name) < most:
            return Problem(
                f"spec.capability.{name}",
                f"queue {queue.metadata.name} capability[{name}]={_text(name, own.get(name))}"
                f" is smaller than its descendants' max capability={_text(name, most)}",
            )
    return _sums(queue, children, f"queue {queue.metadata.name}")


def _sums(parent: Queue, children: list[Queue], who: str) -> Problem | None:
    """Return why the sum of children's guarantees exceeds their parent's."""
    guarantees = deserved = Resource()
    for child in children:
        guarantees = guarantees.plus(_amounts(child.spec.guarantee.resource))
        deserved = deserved.plus(_amounts(child.spec.deserved))
        for field, total, stated in (
            ("guarantee", guarantees, parent.spec.guarantee.resource),
            ("deserved", deserved, parent.spec.deserved),
        ):
            problem = _exceeded(who, field, total, stated)
            if problem is not None:
                return problem
    return None


def _exceeded(who: str, field: str, total: Resource, stated: CrResourceList) -> Problem | None:
    limit = _amounts(stated)
    if not limit.less_somewhere(total, Absent.ZERO):
        return None
    return Problem(
        f"spec.{field}",
        f"{who} validation failed: sum of children's {field} ({total.text()}) exceeds parent's"
        f" {field} limit ({limit.text()})",
    )


def _bound_above(queue: Queue, name: str, facts: ReviewFacts) -> float | None:
    """Return the limit of a resource at the nearest ancestor that has one."""
    parent, seen = queue.spec.parent, {queue.metadata.name}
    while parent not in {"", ROOT_QUEUE} and parent not in seen:
        above = facts.queues.get(parent)
        if above is None:
            return None
        bound = _amounts(above.spec.capability).get(name)
        if bound > 0:
            return bound
        seen.add(parent)
        parent = above.spec.parent
    return None


def _most_below(queue: Queue, name: str, facts: ReviewFacts) -> float:
    """Return the largest limit of a queue or, if it has none, of its descendants."""
    most, seen, left = 0.0, {queue.metadata.name}, [queue]
    while left:
        one = left.pop()
        bound = _amounts(one.spec.capability).get(name)
        if bound > 0:
            most = max(most, bound)
            continue
        below = [q for q in facts.children(one.metadata.name) if q.metadata.name not in seen]
        seen.update(q.metadata.name for q in below)
        left += below
    return most


def pods_of(queue: Queue) -> int:
    """Return the number of pods of a queue that are allocated."""
    return milli(_readable(queue.status.allocated).get("pods", 0)) // 1000


def _amounts(listed: CrResourceList) -> Resource:
    return parse_list(_readable(listed))


def _readable(listed: CrResourceList) -> CrResourceList:
    """Return the amounts without unreadable ones.

    Those are in queues that were created while no webhook existed. A change of such a queue is
    rejected for that reason; a change of another queue is not.
    """
    try:
        parse_list(listed)
    except BadQuantity:
        return {name: amount for name, amount in listed.items() if is_quantity(amount)}
    return listed


def _text(name: str, amount: float) -> str:
    if name == "cpu":
        return quantity.canonical(f"{amount:.0f}m")
    if name == "memory":
        return quantity.format_bytes(int(amount))
    return f"{amount:.2f}"


def _not_found(name: str) -> str:
    return f'queue.scheduling.volcano.sh "{name}" not found'
