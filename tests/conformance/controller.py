"""Kind `controller`: what a controller makes of an object, function by function.

`RUNS` has one row per function of the recorded cases; a controller that is added adds its rows
here, each a function that takes the case and raises `Mismatch` or `Unsupported`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.conformance import (
    controller_cron,
    controller_jobs,
    controller_objects,
    controller_queues,
)
from tests.conformance.report import Unsupported

RUNS: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "applyPolicies": controller_jobs.check_policies,
    "state.Execute": controller_jobs.check_move,
    "calcPGMinResources": controller_jobs.check_min_resources,
    "TasksPriority.CalcPGMinResources": controller_jobs.check_min_resources_by_priority,
    "createJobPod": controller_objects.check_pod,
    "expandJob": controller_objects.check_expansion,
    "queue state Execute": controller_queues.check_state,
    "syncCronJob": controller_cron.check_sync,
}


def run_controller(case: dict[str, Any]) -> None:
    """Run a case of kind `controller`; raises `Mismatch` or `Unsupported`."""
    run = RUNS.get(case["function"])
    if run is None:
        raise Unsupported(case["function"])
    run(case)
