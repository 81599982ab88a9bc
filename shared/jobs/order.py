"""Orders of things that depend on each other: tasks of a job (J25), jobs of a flow (F02)."""

from collections.abc import Mapping, Sequence


def in_order(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the names so that what a name needs comes before it; None when there is a circle.

    A need that is no name itself is never met, so that there is no order either. Of those that
    could come next, the first of the mapping does.
    """
    done: dict[str, None] = {}
    left = list(needs)
    while left:
        ready = next((name for name in left if done.keys() >= set(needs[name])), None)
        if ready is None:
            return None
        done[ready] = None
        left.remove(ready)
    return list(done)


def in_circles(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that are in a circle or behind one; needs without a name are left out."""
    known = {name: [need for need in wanted if need in needs] for name, wanted in needs.items()}
    done: set[str] = set()
    while ready := [n for n, wanted in known.items() if n not in done and done.issuperset(wanted)]:
        done.update(ready)
    return [name for name in known if name not in done]
