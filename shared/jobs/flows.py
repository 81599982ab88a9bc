"""Orders of things that depend on each other: tasks of a job (J25), jobs of a flow (F02, W60).

For admission and the controller. Time is linear in names and needs: a flow may have as many jobs as
an object can hold.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from shared.api.flow import JobFlow
from shared.jobs.problems import Problem, Problems, some


def in_order(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the names so that what a name needs comes before it; None when there is a circle.

    A need that is no name itself is never met, so that there is no order either.
    """
    if any(need not in needs for required in needs.values() for need in required):
        return None
    order = _without_circles(needs)
    return order if len(order) == len(needs) else None


def in_circles(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that are in a circle or behind one; needs without a name are left out."""
    free = set(_without_circles(needs))
    return [name for name in needs if name not in free]


def _without_circles(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that no circle holds up, each behind what it needs."""
    left = {name: {need for need in required if need in needs} for name, required in needs.items()}
    followers: dict[str, list[str]] = {name: [] for name in needs}
    for name, required in needs.items():
        for need in dict.fromkeys(required):
            if need in needs:
                followers[need].append(name)
    ready = deque(name for name, required in left.items() if not required)
    order = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for follower in followers[name]:
            left[follower].discard(name)
            if not left[follower]:
                ready.append(follower)
    return order


NOT_DAG: Final = "jobflow Flow is not DAG"


def flow_problems(flow: JobFlow) -> Problems:
    """Return what is wrong with the order of a flow's jobs, in Volcano's words.

    ⚠ A name may come twice: the last one of it counts, as in Volcano.
    """
    needs = {f.name: tuple(f.depends_on.targets) if f.depends_on else () for f in flow.spec.flows}
    for index, one in enumerate(flow.spec.flows):
        for target in one.depends_on.targets if one.depends_on else ():
            if target not in needs:
                yield Problem(
                    f"spec.flows[{index}].dependsOn.targets",
                    f"{NOT_DAG}: vertex is not defined: {target}",
                )
    if stuck := in_circles(needs):
        waits = "wait for each other" if len(stuck) > 1 else "waits for itself"
        yield Problem("spec.flows", f"{NOT_DAG}: {some(stuck)} {waits}")
