"""Writes a Kubernetes Event on the queue of a budget that warns or is used up; a part.

The scheduler announces it on EVENTS. Each replica writes the Event; its name is the same for all.
"""

from contextlib import aclosing
from typing import Final

from pumice.events import BudgetReached, EventsError, decode
from services.controller.adapters.informers import Informers
from services.controller.adapters.recorder import ControllerRecorder
from shared.bus.nats import NatsBus
from shared.runtime.logs import Logger

_ALL: Final = 100


class BudgetWarnings:
    """Follows events of budgets; a part that does not count for readiness."""

    name: Final = "budget-warnings"

    def __init__(
        self,
        bus: NatsBus,
        informers: Informers,
        recorder: ControllerRecorder,
        *,
        subject: str,
        log: Logger,
    ) -> None:
        self._bus = bus
        self._informers = informers
        self._recorder = recorder
        self._subject = subject
        self._log = log

    async def run(self) -> None:
        """Follow the events until cancelled."""
        async with aclosing(self._bus.listen(self._subject)) as payloads:
            async for payload in payloads:
                self._receive(payload)

    def _receive(self, payload: bytes) -> None:
        try:
            reached = decode(payload).data
        except EventsError as error:
            self._log.warning("event_unreadable", reason=str(error))
            return
        if not isinstance(reached, BudgetReached):
            return
        queue = self._informers.queues.get(reached.queue)
        if queue is None:
            self._log.warning("budget_without_queue", queue=reached.queue, budget=reached.budget)
            return
        reason = "BudgetUsedUp" if reached.percent == _ALL else "BudgetWarning"
        occasion = f"{reached.budget}/{reached.begin}"
        self._recorder.queue_event(queue, reason, reached.message, occasion=occasion, warning=True)
