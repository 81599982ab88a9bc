"""Scopes of limits: which queues, users and namespaces a limit holds for, and what a job meets.

A limit belongs to a queue and holds for the sum over its subtree. With `users` it holds for each of
these users by itself, `*` being every user whom no earlier limit of the same queue names; without,
for all of them together. `namespaces` does the same for namespaces; with both, a limit holds for
each user in each namespace. Admission and the plugins `limits` and `budgets` of the scheduler ask
`scopes_of`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from shared.api.scheduling import ROOT_QUEUE, queue_lineage

EVERY: Final = "*"
"""Every user, or every namespace."""


class LimitHolder(NamedTuple):
    """Who uses up a limit: a user, a namespace, a user in a namespace, or ("", "") all together."""

    user: str = ""
    namespace: str = ""


class LimitScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue, users and namespaces that a limit holds for."""

    queue: str = ROOT_QUEUE
    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[bool, bool]:
        """Return whether it holds for each user, and for each namespace, by itself."""
        return bool(self.users), bool(self.namespaces)

    def has(self, user: str, namespace: str) -> bool:
        """Return whether it holds for a user in a namespace; without names it holds for all."""
        return _names(self.users, user) and _names(self.namespaces, namespace)

    def subject(self, holder: LimitHolder) -> str:
        """Return who uses up the limit, as a subject of a sentence."""
        user = f"user {holder.user or 'unknown'}" if self.users else ""
        namespace = f"namespace {holder.namespace}" if self.namespaces else ""
        return " in ".join(filter(None, (user, namespace))) or "all users together"

    def holds(self, holder: LimitHolder) -> str:
        """Return the subject with its verb, for an amount to follow."""
        return f"{self.subject(holder)} {'holds' if any(self.kind) else 'hold'}"


def _names(stated: Sequence[str], name: str) -> bool:
    return not stated or name in stated or EVERY in stated


def scopes_of(
    scopes: Sequence[LimitScope],
    queue: str,
    holder: LimitHolder,
    parent_of: Callable[[str], str],
) -> Iterator[tuple[int, LimitHolder]]:
    """Yield the limits that a job counts against, those of its queue first.

    Yields the index in `scopes`, and the user and namespace that it holds for by itself. `holder`
    has user and namespace of the job; `parent_of` returns the parent of a queue, or "" for `root`.
    Of the limits of one queue that hold for each user, or each namespace, or both, the first
    counts.
    """
    for name in queue_lineage(queue, parent_of):
        found = set()
        for number, scope in enumerate(scopes):
            if scope.queue != name or scope.kind in found or not scope.has(*holder):
                continue
            if any(scope.kind):
                found.add(scope.kind)
            user, namespace = scope.kind
            yield (
                number,
                LimitHolder(holder.user if user else "", holder.namespace if namespace else ""),
            )
