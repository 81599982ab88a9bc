"""Scopes of limits: for which queues and users a limit holds, and which limits count for a job.

A limit belongs to a queue and holds for the sum over its subtree. With `users` it holds for each of
these users by itself, `*` being every user whom no earlier limit of the same queue names; without,
for all of them together. Admission and the plugin `limits` of the scheduler ask `scopes_of`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from shared.api.scheduling import ROOT_QUEUE, queue_lineage

EVERY_USER: Final = "*"


class LimitScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue and the users that a limit holds for."""

    queue: str = ROOT_QUEUE
    users: tuple[str, ...] = ()

    def has(self, user: str) -> bool:
        """Return whether it holds for a user; without users it holds for all."""
        return not self.users or user in self.users or EVERY_USER in self.users

    def holder(self, user: str) -> str:
        """Return who uses up the limit, as a subject of a sentence."""
        return f"user {user or 'unknown'} holds" if self.users else "all users together hold"


def scopes_of(
    scopes: Sequence[LimitScope], queue: str, user: str, parent_of: Callable[[str], str]
) -> Iterator[tuple[int, str]]:
    """Yield the limits that a job of a user in a queue counts against, those of the queue first.

    Yields the index in `scopes`, and the user if the limit holds for each user by itself, else "".
    `parent_of` returns the parent of a queue, or "" for `root`.
    """
    for name in queue_lineage(queue, parent_of):
        of_user = False
        for number, scope in enumerate(scopes):
            if scope.queue != name or not scope.has(user) or (scope.users and of_user):
                continue
            of_user = of_user or bool(scope.users)
            yield number, user if scope.users else ""
