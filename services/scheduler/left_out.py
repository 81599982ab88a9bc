"""Conditions for pods and PodGroups that were left out, so that their owners learn why.

An object that could not be folded is in no session, and no other rule writes its status. The
worker notes it here; the conditions go out with the next plan. Pure.
"""

import hashlib

from msgspec.structs import replace

from pumice.plugins import Condition
from services.scheduler.engine.plan import Plan, PodConditionWanted, PodGroupStatusWanted
from shared.api.kinds import POD, PODGROUP
from shared.contracts.messages import Fact

_MOST_LETTERS = 300
_MOST = 1_000
"""Most conditions of one cycle."""


class LeftOutConditions:
    """Conditions that wait for the next plan."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], tuple[str, str]] = {}

    def tell(self, kind: str, key: str, uid: str, reason: Exception | str) -> None:
        """Note an object that is left out, and why."""
        if kind in {POD.token, PODGROUP.token} and uid and len(self._waiting) < _MOST:
            name = f"{type(reason).__name__}: " if isinstance(reason, Exception) else ""
            text = " ".join(f"{name}{reason}"[: 2 * _MOST_LETTERS].split())[:_MOST_LETTERS]
            self._waiting[kind, key] = (uid, f"left out by the scheduler until it changes: {text}")

    def added(self, plan: Plan) -> Plan:
        """Return a plan with the conditions that wait."""
        if not self._waiting:
            return plan
        waiting, self._waiting = self._waiting, {}
        pods = tuple(
            PodConditionWanted(
                key=key, uid=uid, condition=Condition("PodScheduled", "False", "SetAside", text)
            )
            for (kind, key), (uid, text) in waiting.items()
            if kind == POD.token
        )
        groups = tuple(
            PodGroupStatusWanted(
                key=key,
                uid=uid,
                phase="Pending",
                running=0,
                succeeded=0,
                failed=0,
                conditions=(Condition("Unschedulable", "True", "SetAside", text),),
            )
            for (kind, key), (uid, text) in waiting.items()
            if kind == PODGROUP.token
        )
        return replace(plan, pods=(*plan.pods, *pods), podgroups=(*plan.podgroups, *groups))


def digest(fact: Fact) -> bytes:
    """Return what tells one content of an object from another."""
    return hashlib.blake2b(bytes(fact.body), digest_size=16).digest()
