"""Plays the API server to pure code that asks for things one by one (looks at CronJobs)."""

from collections.abc import Callable

from services.controller.cronjob.steps import Step, StepGenerator, StepResult, SyncResult


def played(look: StepGenerator[SyncResult], answer: Callable[[Step], StepResult]) -> SyncResult:
    """Return what a look comes to when `answer` says what the API server makes of each ask."""
    said: StepResult = None
    while True:
        try:
            ask = look.send(said)
        except StopIteration as stop:
            outcome: SyncResult = stop.value
            return outcome
        said = answer(ask)
