"""The tasks on nodes that use claims, of volumes or of devices, and those of them that leave.

A task that terminates uses its claims until it is gone, and so does one that the session evicts:
the engine counts that one out, since tasks that wait need not heed it. Tasks that are bound do.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from pumice.plugins import Task
from shared.model.status import TaskStatus

_NO_USERS: Final[Mapping[str, str]] = {}


class ClaimUsers:
    """Users of each claim, by its key."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, str]] = {}
        """Claim → uid of each task on a node that uses it → node."""
        self._leaving: dict[str, set[str]] = {}
        """Claim → uids of those that terminate, or that this session has evicted."""
        self._counted: dict[str, TaskStatus] = {}
        """Uid → the status with which it was counted in."""

    def count(self, task: Task, claims: Iterable[str], sign: int) -> bool:
        """Add a task on its node (-1: remove it); return whether it uses its claims from then on.

        One that is counted out because this session has evicted it stays, as one that leaves.
        """
        if sign > 0:
            self._counted[task.uid] = task.status
            for key in claims:
                self._nodes.setdefault(key, {})[task.uid] = task.node
                self._set_leaving(key, task.uid, leaves=task.status is TaskStatus.RELEASING)
            return True
        before = self._counted.get(task.uid, TaskStatus.RELEASING)
        if task.status is TaskStatus.RELEASING and before is not TaskStatus.RELEASING:
            for key in claims:
                self._set_leaving(key, task.uid, leaves=True)
            return True
        self.drop(task.uid, claims)
        return False

    def drop(self, uid: str, claims: Iterable[str]) -> None:
        """Forget a task."""
        self._counted.pop(uid, None)
        for key in claims:
            self._set_leaving(key, uid, leaves=False)
            users = self._nodes.get(key)
            if users is not None and users.pop(uid, None) is not None and not users:
                del self._nodes[key]

    def _set_leaving(self, key: str, uid: str, *, leaves: bool) -> None:
        if leaves:
            self._leaving.setdefault(key, set()).add(uid)
        elif (leaving := self._leaving.get(key)) is not None:
            leaving.discard(uid)
            if not leaving:
                del self._leaving[key]

    # --- queries -----------------------------------------------------------------------------

    def claims(self) -> Iterable[str]:
        """Return the claims that are in use."""
        return self._nodes.keys()

    def nodes(self, key: str) -> Mapping[str, str]:
        """Return the uid of each task that uses a claim, with its node."""
        return self._nodes.get(key, _NO_USERS)

    def leaving(self, key: str) -> AbstractSet[str]:
        """Return the uids of those that leave."""
        return self._leaving.get(key, frozenset())

    def staying(self, key: str) -> list[str]:
        """Return the nodes of those that do not."""
        leaving = self.leaving(key)
        return [node for uid, node in self.nodes(key).items() if uid not in leaving]

    def present(self, key: str) -> list[str]:
        """Return the nodes of those that are there, or on their way; not of those that wait."""
        waits = TaskStatus.PIPELINED
        return [n for uid, n in self.nodes(key).items() if self._counted.get(uid) is not waits]

    def all(self) -> tuple[object, ...]:
        """Return everything that is known, in a fixed order."""
        return (
            sorted((key, sorted(users.items())) for key, users in self._nodes.items()),
            sorted((key, sorted(uids)) for key, uids in self._leaving.items()),
            sorted((uid, status.name) for uid, status in self._counted.items()),
        )
