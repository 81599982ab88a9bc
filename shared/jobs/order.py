"""Orders of things that depend on each other: tasks of a job (J25), jobs of a flow (F02).

Time is linear in names and needs: a flow may have as many jobs as an object can hold.
"""

from collections import deque
from collections.abc import Mapping, Sequence


def in_order(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the names so that what a name needs comes before it; None when there is a circle.

    A need that is no name itself is never met, so that there is no order either.
    """
    if any(need not in needs for wanted in needs.values() for need in wanted):
        return None
    order = _without_circles(needs)
    return order if len(order) == len(needs) else None


def in_circles(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that are in a circle or behind one; needs without a name are left out."""
    free = set(_without_circles(needs))
    return [name for name in needs if name not in free]


def _without_circles(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that no circle holds up, each behind what it needs."""
    left = {name: {need for need in wanted if need in needs} for name, wanted in needs.items()}
    followers: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in dict.fromkeys(wanted):
            if need in needs:
                followers[need].append(name)
    ready = deque(name for name, wanted in left.items() if not wanted)
    order = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for follower in followers[name]:
            left[follower].discard(name)
            if not left[follower]:
                ready.append(follower)
    return order
