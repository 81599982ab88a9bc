"""`Env`: what the parts of a process share, in one object instead of a parameter each."""

import random
from typing import Self

import msgspec

from shared.runtime.clock import Clock
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine
from shared.runtime.spans import Spans


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """What every part of a process may need beside what it works with."""

    instance: str
    """Name of the process."""
    clock: Clock
    rng: random.Random
    log: Logger
    metrics: Metrics
    """Makes metrics. Each of them is made once, so that parts get theirs ready."""
    quarantine: Quarantine
    faults: Faults
    spans: Spans

    def forgetting(self, after_s: float) -> Self:
        """Return it with a quarantine that releases objects without a failure for `after_s`."""
        quarantine = Quarantine(
            self.quarantine.registry, clock=self.clock, log=self.log, forget_after_s=after_s
        )
        return msgspec.structs.replace(self, quarantine=quarantine)
