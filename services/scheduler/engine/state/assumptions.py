"""Assumptions: what was asked of the binder and is not yet seen on the API server.

A pod counts on its node from the moment its intent is published until STATE shows this uid bound,
terminal or gone, or another uid under its name, or OUTCOME says conflict, gone or failed for that
very intent. `bound` alone does not end it, nor does time. A victim stays Releasing by the same
rule.
"""

import enum
from typing import Final

from msgspec import Struct

from shared.contracts.messages import Result
from shared.model.status import PREEMPTABLE, TERMINAL, TaskStatus

_ENDING_RESULTS: Final = frozenset({Result.CONFLICT, Result.GONE, Result.FAILED, Result.SPARED})


class Purpose(enum.Enum):
    """The intent about a pod."""

    BIND = "bind"
    EVICT = "evict"


class Assumption(Struct, frozen=True, kw_only=True):
    """One pod of one intent."""

    intent: str
    purpose: Purpose
    pod: str
    """Key of the pod."""
    node: str = ""
    """Node that it is bound to; empty for an eviction."""


class Nominations:
    """Nodes on which preemptors wait for victims, until their own status says so (SS11).

    Without this the next cycle, which comes before the status is written, might place the pods of
    a gang in another way, and evict once more for the one that is left over.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[str, str]] = {}

    def items(self) -> tuple[tuple[str, str, str], ...]:
        """Return pod uid, intent and node of each, oldest first."""
        return tuple((uid, intent, node) for uid, (intent, node) in self._by_uid.items())

    def add(self, uid: str, intent: str, node: str) -> None:
        """Remember that the evictions of an intent clear a node for a pod."""
        self._by_uid[uid] = (intent, node)

    def overlay(self, uid: str, nominated: str) -> str:
        """Return the node to use, given what the pod's status says, which ends it."""
        if nominated:
            self._by_uid.pop(uid, None)
            return nominated
        return self._by_uid[uid][1] if uid in self._by_uid else ""

    def drop(self, uid: str) -> None:
        """Forget: the pod is gone or has become another one."""
        self._by_uid.pop(uid, None)

    def end(self, intent: str) -> list[str]:
        """Forget what an intent that failed was to clear; return the uids of its preemptors."""
        uids = [uid for uid, (of, _) in self._by_uid.items() if of == intent]
        for uid in uids:
            del self._by_uid[uid]
        return uids

    def clear(self) -> list[str]:
        """Forget everything; return the uids that were nominated."""
        uids = list(self._by_uid)
        self._by_uid.clear()
        return uids


class Assumptions:
    """The assumptions by pod uid. Those for pods that no fact has shown yet wait here."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def items(self) -> tuple[tuple[str, Assumption], ...]:
        """Return pod uid and assumption of each, oldest first."""
        return tuple(self._by_uid.items())

    def get(self, uid: str) -> Assumption | None:
        """Return what is assumed of a pod."""
        return self._by_uid.get(uid)

    def add(self, uid: str, assumption: Assumption) -> None:
        """Assume; a later intent for the same pod takes the place of an earlier one."""
        self._by_uid[uid] = assumption

    def clear(self) -> list[str]:
        """Forget everything; return the uids that something was assumed of."""
        uids = list(self._by_uid)
        self._by_uid.clear()
        return uids

    def drop(self, uid: str) -> None:
        """Forget: the pod is gone or has become another one."""
        self._by_uid.pop(uid, None)

    def outcome(self, intent: str, uid: str, result: Result) -> bool:
        """Take an item of an outcome in; return whether an assumption ended by it."""
        assumption = self._by_uid.get(uid)
        if assumption is None or assumption.intent != intent or result not in _ENDING_RESULTS:
            return False
        del self._by_uid[uid]
        return True

    def overlay(self, uid: str, status: TaskStatus, node: str) -> tuple[TaskStatus, str]:
        """Return the status and node to use, given what the fact says; ends what it fulfils."""
        assumption = self._by_uid.get(uid)
        if assumption is None:
            return status, node
        if TERMINAL[status]:
            del self._by_uid[uid]
            return status, node
        if assumption.purpose is Purpose.EVICT:
            return (TaskStatus.RELEASING if PREEMPTABLE[status] else status), node
        if node or status is not TaskStatus.PENDING:
            # Bound, wherever: the object's word ends it. A pending pod being deleted holds nothing.
            del self._by_uid[uid]
            return status, node
        return TaskStatus.BINDING, assumption.node
