"""The `Env` of a process of tests."""

import random
from typing import Any

import structlog

from shared.runtime.clock import SystemClock
from shared.runtime.env import Env
from shared.runtime.faults import Faults
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine, QuarantineRegistry
from shared.runtime.spans import NO_SPANS


def env_of_a_test(*, quarantined: QuarantineRegistry | None = None, **given: Any) -> Env:
    """Return an `Env` on the system clock with seed 1, except for the fields that are given."""
    return Env(**fields_of_env(quarantined=quarantined, **given))


def fields_of_env(*, quarantined: QuarantineRegistry | None = None, **given: Any) -> dict[str, Any]:
    """Return the fields of such an `Env`, for a class that has more of them."""
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
