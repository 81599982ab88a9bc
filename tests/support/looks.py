"""Plays the API server to pure code that asks for things one by one (looks at CronJobs)."""

from collections.abc import Callable

from services.controller.cronjob.asks import Answer, Ask, Asking, Outcome


def played(look: Asking[Outcome], answer: Callable[[Ask], Answer]) -> Outcome:
    """Return what a look comes to when `answer` says what the API server makes of each ask."""
    said: Answer = None
    while True:
        try:
            ask = look.send(said)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        said = answer(ask)
