"""Kind `controller`: what a controller makes of an object, function by function.

`RUNS` has one row per function of the recorded cases; a controller that is added adds its rows
here, each a function that takes the case and raises `Mismatch` or `Unsupported`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from services.controller.queue.plan import QueueAction, next_state
from shared.api.scheduling import QueueState
from tests.conformance import (
    controller_cron,
    controller_jobs,
    controller_objects,
)
from tests.conformance.report import Unsupported, expect


def check_state(case: dict[str, Any]) -> None:
    """`queue state Execute` (Q02): the state that is written; an empty one stands for no change."""
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


RUNS: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "applyPolicies": controller_jobs.check_policies,
    "state.Execute": controller_jobs.check_move,
    "calcPGMinResources": controller_jobs.check_min_resources,
    "TasksPriority.CalcPGMinResources": controller_jobs.check_min_resources_by_priority,
    "createJobPod": controller_objects.check_pod,
    "expandJob": controller_objects.check_expansion,
    "queue state Execute": check_state,
    "syncCronJob": controller_cron.check_sync,
}


def run_controller(case: dict[str, Any]) -> None:
    """Run a case of kind `controller`; raises `Mismatch` or `Unsupported`."""
    run = RUNS.get(case["function"])
    if run is None:
        raise Unsupported(case["function"])
    run(case)
