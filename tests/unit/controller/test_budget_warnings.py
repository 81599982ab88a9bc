"""A budget that warns or is used up gets a Kubernetes Event on its queue."""

import datetime as dt
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import structlog

from pumice.events import BudgetReached, encode
from services.controller.adapters.budget_warnings import BudgetWarnings
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.contracts.subjects import Subjects

SUBJECTS = Subjects(cluster="local")


class Stored:
    """Holds the queue research in place of the informers."""

    def __init__(self) -> None:
        self.queues = {"research": Queue(metadata=ObjectMeta(name="research", uid="u"))}


class Recorded:
    """Keeps Events in place of the recorder."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def queue_event(
        self, queue: Queue, reason: str, message: str, *, occasion: str, warning: bool
    ) -> None:
        assert warning
        self.events.append((queue.metadata.name, reason, message, occasion))


class Published:
    """A bus on which these payloads come."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads

    async def listen(self, subject: str) -> AsyncGenerator[bytes, None]:
        assert subject == SUBJECTS.budget_warnings
        for payload in self._payloads:
            yield payload


def reached(percent: int, **fields: Any) -> bytes:
    event = BudgetReached(
        budget="gpus", percent=percent, message="m", begin="2026-11-01T00:00:00Z", **fields
    )
    now = dt.datetime(2026, 11, 10, tzinfo=dt.UTC).timestamp()
    return encode(event, id="1", time=now, source="/pumice/c/scheduler/s")


async def test_each_level_gets_an_event_and_what_cannot_be_read_gets_none() -> None:
    recorded = Recorded()
    payloads = [
        reached(80, queue="research"), b"no event", reached(80, queue="gone"),
        reached(100, queue="research"),
    ]  # fmt: skip
    warnings: Any = BudgetWarnings
    await warnings(
        Published(payloads),
        Stored(),
        recorded,
        subject=SUBJECTS.budget_warnings,
        log=structlog.get_logger(),
    ).run()
    occasion = "gpus/2026-11-01T00:00:00Z"
    assert recorded.events == [
        ("research", "BudgetWarning", "m", occasion),
        ("research", "BudgetUsedUp", "m", occasion),
    ]


def test_the_controller_listens_for_the_subject_of_the_events() -> None:
    topic = BudgetReached.topic
    assert SUBJECTS.budget_warnings == SUBJECTS.republished(SUBJECTS.events_about(topic))
