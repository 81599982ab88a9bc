"""Assumptions: binds and evictions that were published and that STATE does not show yet.

A pod counts on its node from the moment its intent is published until STATE shows this uid bound,
terminal or gone, or another uid under its name, or OUTCOME says conflict, gone or failed for the
same intent. The result `bound` alone does not end it, and time does not either. The same rule holds
for a victim, which is Releasing.
"""

import enum
from collections.abc import Container
from typing import Final

from msgspec import Struct

from shared.contracts.messages import Result
from shared.model.status import PREEMPTABLE, TERMINAL, TaskStatus

_ENDING_RESULTS: Final = frozenset({Result.CONFLICT, Result.GONE, Result.FAILED, Result.SPARED})


class Purpose(enum.Enum):
    """The kind of intent."""

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
    is_done: bool = False
    """Whether its outcome says that it was bound: the API server shows it, or the pod is gone."""


class Nominations:
    """Nominated nodes of preemptors, until their own status shows them (SS11).

    Without this the next cycle, which comes before the status is written, might place the pods of
    a gang otherwise, and evict again for a pod that finds no node then.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[str, str]] = {}

    def items(self) -> tuple[tuple[str, str, str], ...]:
        """Return pod uid, intent and node of each, oldest first."""
        return tuple((uid, intent, node) for uid, (intent, node) in self._by_uid.items())

    def add(self, uid: str, intent: str, node: str) -> None:
        """Note the node that the evictions of an intent clear for a pod."""
        self._by_uid[uid] = (intent, node)

    def overlay(self, uid: str, nominated: str) -> str:
        """Return the nominated node; the one in the pod's status ends the assumption."""
        if nominated:
            self._by_uid.pop(uid, None)
            return nominated
        return self._by_uid[uid][1] if uid in self._by_uid else ""

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone or replaced by another one of its name."""
        self._by_uid.pop(uid, None)

    def end(self, intent: str) -> list[str]:
        """Forget the nominations of an intent that failed; return the uids of its preemptors."""
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
    """Assumptions by pod uid, also of pods that no fact has shown yet."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def items(self) -> tuple[tuple[str, Assumption], ...]:
        """Return pod uid and assumption of each, oldest first."""
        return tuple(self._by_uid.items())

    def nodes(self, known: Container[str]) -> set[str]:
        """Return the nodes of binds that no fact shows yet; `known` are the pods that have facts.

        A pod that was bound and has no fact is gone: a new leader assumes it from its outcome, and
        no fact will end that. Were its node busy, a shard would never give it back.
        """
        return {each.node for uid, each in self._by_uid.items() if uid in known or not each.is_done}

    def get(self, uid: str) -> Assumption | None:
        """Return the assumption of a pod."""
        return self._by_uid.get(uid)

    def add(self, uid: str, assumption: Assumption) -> None:
        """Add an assumption; a later intent for the same pod replaces an earlier one."""
        self._by_uid[uid] = assumption

    def clear(self) -> list[str]:
        """Forget everything; return the uids of the pods that had an assumption."""
        uids = list(self._by_uid)
        self._by_uid.clear()
        return uids

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone or replaced by another one of its name."""
        self._by_uid.pop(uid, None)

    def outcome(self, intent: str, uid: str, result: Result) -> bool:
        """Take over one item of an outcome; return whether that ended an assumption."""
        assumption = self._by_uid.get(uid)
        if assumption is None or assumption.intent != intent or result not in _ENDING_RESULTS:
            return False
        del self._by_uid[uid]
        return True

    def overlay(self, uid: str, status: TaskStatus, node: str) -> tuple[TaskStatus, str]:
        """Return status and node by fact and assumption; ends one that the fact shows."""
        assumption = self._by_uid.get(uid)
        if assumption is None:
            return status, node
        if TERMINAL[status]:
            del self._by_uid[uid]
            return status, node
        if assumption.purpose is Purpose.EVICT:
            return (TaskStatus.RELEASING if PREEMPTABLE[status] else status), node
        if node or status is not TaskStatus.PENDING:
            # Bound to any node: the fact counts. A pending pod that is being deleted holds nothing.
            del self._by_uid[uid]
            return status, node
        return TaskStatus.BINDING, assumption.node
