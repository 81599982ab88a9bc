"""Removes from a result what its reader may not see, and what is too long; counts both.

The reader may see a namespace when he may get `pendingjobs.visibility.pumice.dev` there. Lists of
objects need no hiding: the right to list them is the right to see them.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from shared.api.visibility import Explanation, WhatIfStatus

T = TypeVar("T", Explanation, WhatIfStatus)

LISTED_MAX: Final = 500
"""Most entries of each list (placements, evictions, jobs) of a result."""


def _of_job(entry: Any) -> str:  # noqa: ANN401 - delays and jobs that lose pods
    return str(entry.job.namespace)


def _own(entry: Any) -> str:  # noqa: ANN401 - pods and references
    return str(entry.namespace)


_LISTS: Final[dict[str, Callable[[Any], str]]] = {
    "placements": lambda _: "",
    "evictions": _own,
    "moves": _own,
    "starting": _own,
    "delays": _of_job,
    "losing": _of_job,
}
"""Each list of a what-if's result, and how to read the namespace of an entry."""


def namespaces(result: Explanation | WhatIfStatus) -> set[str]:
    """Return the namespaces that a result names; cluster-scoped objects have none."""
    return set(filter(None, _named(result)))


def _named(result: Explanation | WhatIfStatus) -> Iterator[str]:
    if isinstance(result, Explanation):
        yield from map(_of_job, result.holders)
        return
    for name, namespace_of in _LISTS.items():
        yield from map(namespace_of, getattr(result, name))
    yield from (move.starts.namespace for move in result.moves if move.starts is not None)


def hide(result: T, seen: Collection[str]) -> T:
    """Return the result with only cluster-scoped objects and those of the namespaces `seen`.

    Of what may be seen `LISTED_MAX` entries of a list are named: a reader of one namespace finds
    its own first ones, not those that others leave room for.
    """
    if isinstance(result, Explanation):
        holders = tuple(h for h in result.holders if _is_seen(h.job.namespace, seen))
        count = result.hidden_holders + len(result.holders) - len(holders)
        return replace(result, holders=holders, hidden_holders=count)
    hidden, shown, remaining = result.hidden, {}, {}
    for name, namespace_of in _LISTS.items():
        whole = getattr(result, name)
        visible = tuple(each for each in whole if _is_seen(namespace_of(each), seen))
        hidden += len(whole) - len(visible)
        shown[name] = visible[:LISTED_MAX]
        if len(visible) > LISTED_MAX:
            remaining[name] = len(visible) - LISTED_MAX
    shown["moves"] = tuple(
        move
        if move.starts is None or _is_seen(move.starts.namespace, seen)
        else replace(move, starts=None)
        for move in shown["moves"]
    )
    return replace(result, **shown, hidden=hidden, remaining=remaining)


def _is_seen(namespace: str, seen: Collection[str]) -> bool:
    return not namespace or namespace in seen
