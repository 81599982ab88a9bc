"""One process that follows the bus as visibility does, asked nothing; see `benchmarks.following`.

It is run as a file, so that the services come from the checkout that PYTHONPATH names.
"""

import asyncio
import os
import random
import sys

import structlog

from services.visibility.app import query_parts
from services.visibility.settings import VisibilitySettings
from shared.bus.service import bus_of
from shared.runtime.clock import SystemClock
from shared.runtime.faults import Faults
from shared.runtime.health import Liveness, Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine, QuarantineRegistry
from shared.runtime.service import Context, tune_garbage_collector
from shared.runtime.settings import load
from shared.runtime.spans import NO_SPANS
from shared.runtime.tasks import TaskGroup
from shared.runtime.workqueue import WorkQueueMetrics


def context() -> Context:
    """Return what a service is given."""
    metrics, clock, log = Metrics(), SystemClock(), structlog.get_logger()
    return Context(
        service="visibility",
        instance="reader",
        clock=clock,
        rng=random.Random(0),
        log=log,
        readiness=Readiness(),
        liveness=Liveness(),
        metrics=metrics,
        work_queues=WorkQueueMetrics(metrics),
        quarantine=Quarantine(QuarantineRegistry(), clock=clock, log=log),
        faults=Faults("", ""),
        spans=NO_SPANS,
    )


async def main() -> None:
    """Follow until the end, and say when everything that there was has been read."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    given = context()
    settings = load(VisibilitySettings, service="visibility", argv=sys.argv[1:], environ=os.environ)
    bus = bus_of(settings, given)
    _, _, parts = query_parts(settings, given, bus)
    tune_garbage_collector()
    gate = given.readiness.gate("state")
    async with TaskGroup() as tasks:
        for part in parts:
            tasks.create_task(part.run(), name=part.name)
        while not gate.ok:  # noqa: ASYNC110 - once, at the beginning
            await asyncio.sleep(0.1)
        print("reads", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
