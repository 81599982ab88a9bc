"""The `Env` and the `Context` of a process of tests."""

import random
from typing import Any

import structlog

from shared.runtime.clock import SystemClock
from shared.runtime.env import Env
from shared.runtime.faults import Faults
from shared.runtime.health import Liveness, Readiness
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine, QuarantineRegistry
from shared.runtime.service import Context
from shared.runtime.spans import NO_SPANS
from shared.runtime.workqueue import WorkQueueMetrics


def env_of_a_test(*, quarantined: QuarantineRegistry | None = None, **given: Any) -> Env:
    """Return an `Env` on the system clock with seed 1, except for the fields that are given."""
    return Env(**_fields(quarantined, given))


def context_of_a_test(service: str = "visibility", **given: Any) -> Context:
    """Return what a service is given at its start; `given` as for `env_of_a_test`."""
    fields = _fields(None, given)
    return Context(
        service=service,
        readiness=Readiness(),
        liveness=Liveness(),
        work_queues=WorkQueueMetrics(fields["metrics"]),
        **fields,
    )


def _fields(quarantined: QuarantineRegistry | None, given: dict[str, Any]) -> dict[str, Any]:
    clock, log = given.get("clock", SystemClock()), given.get("log", structlog.get_logger())
    registry = QuarantineRegistry() if quarantined is None else quarantined
    return {
        "instance": "test",
        "clock": clock,
        "rng": random.Random(1),
        "log": log,
        "metrics": Metrics(),
        "quarantine": Quarantine(registry, clock=clock, log=log),
        "faults": Faults("", ""),
        "spans": NO_SPANS,
        **given,
    }
