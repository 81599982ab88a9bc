"""Leaves out of an answer what concerns namespaces that its reader may not see, and counts it.

The reader may see a namespace when he may get `pendingjobs.visibility.pumice.dev` there. Lists of
objects need no hiding: the right to list them is the right to see them.
"""

from collections.abc import Collection, Iterator
from typing import TypeVar

from msgspec.structs import replace

from shared.api.visibility import Explanation, WhatIfStatus

T = TypeVar("T", Explanation, WhatIfStatus)


def namespaces(answer: Explanation | WhatIfStatus) -> set[str]:
    """Return the namespaces that an answer speaks of; objects of the cluster have none."""
    return set(filter(None, _named(answer)))


def _named(answer: Explanation | WhatIfStatus) -> Iterator[str]:
    if isinstance(answer, Explanation):
        yield from (holder.job.namespace for holder in answer.holders)
        return
    yield from (pod.namespace for pod in answer.evictions)
    yield from (job.namespace for job in answer.starting)
    yield from (delay.job.namespace for delay in answer.delays)
    yield from (losing.job.namespace for losing in answer.losing)


def hide(answer: T, seen: Collection[str]) -> T:
    """Return the answer with objects of namespaces that are `seen`, or of none, and no others."""
    if isinstance(answer, Explanation):
        holders = tuple(h for h in answer.holders if _is_seen(h.job.namespace, seen))
        count = answer.hidden_holders + len(answer.holders) - len(holders)
        return replace(answer, holders=holders, hidden_holders=count)
    evictions = tuple(pod for pod in answer.evictions if _is_seen(pod.namespace, seen))
    starting = tuple(job for job in answer.starting if _is_seen(job.namespace, seen))
    delays = tuple(delay for delay in answer.delays if _is_seen(delay.job.namespace, seen))
    losing = tuple(each for each in answer.losing if _is_seen(each.job.namespace, seen))
    count = answer.hidden + sum(
        len(before) - len(after)
        for before, after in (
            (answer.evictions, evictions),
            (answer.starting, starting),
            (answer.delays, delays),
            (answer.losing, losing),
        )
    )
    return replace(
        answer, evictions=evictions, starting=starting, delays=delays, losing=losing, hidden=count
    )


def _is_seen(namespace: str, seen: Collection[str]) -> bool:
    return not namespace or namespace in seen
