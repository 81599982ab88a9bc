"""States of a queue: what an action makes of one (Q02)."""

from typing import Any

from services.controller.queue.phases import QueueAction, next_state
from shared.api.scheduling import QueueState
from tests.conformance.report import expect


def check_state(case: dict[str, Any]) -> None:
    """`queue state Execute`: the state that is written; an empty one stands for no change."""
    given = case["given"]
    written = given["queue"].get("status", {}).get("state")
    state = next_state(
        _known(written), QueueAction(case["action"]), groups=len(given.get("podGroups") or ())
    )
    for recorded in (case.get("expect", {}), case["actual"]):
        if "state" in recorded:
            expect("state", state.value, recorded["state"] or written)


def _known(written: str | None) -> QueueState | None:
    """The schema lets no other state through than the four; Volcano calls any other Unknown."""
    if not written:
        return None
    known = written in frozenset(QueueState)
    return QueueState(written) if known else QueueState.UNKNOWN
