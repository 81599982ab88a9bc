"""Writes a Kubernetes Event on the queue of a budget that warns or is used up; a part.

The scheduler announces it on EVENTS. Each replica writes the Event; its name is the same for all.
"""

from typing import Final

from typing_extensions import override

from pumice.events import BudgetReached
from pumice.events.types import Event
from services.controller.adapters.feed import EventListener
from services.controller.adapters.informers import Informers
from services.controller.adapters.recorder import ControllerRecorder
from shared.bus.nats import NatsBus
from shared.runtime.logs import Logger

_ALL: Final = 100


class BudgetWarnings(EventListener):
    """Writes the Events of budgets."""

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
        super().__init__(bus, subject=subject, log=log)
        self._informers = informers
        self._recorder = recorder

    @override
    def _receive(self, data: Event) -> None:
        if not isinstance(data, BudgetReached):
            return
        queue = self._informers.queues.get(data.queue)
        if queue is None:
            self._log.warning("budget_without_queue", queue=data.queue, budget=data.budget)
            return
        reason = "BudgetUsedUp" if data.percent == _ALL else "BudgetWarning"
        occasion = f"{data.budget}/{data.begin}"
        self._recorder.queue_event(queue, reason, data.message, occasion=occasion, warning=True)
