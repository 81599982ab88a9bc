"""sla (PL11): admits jobs past their waiting time, and lets them stay Pipelined.

A PodGroup states how long it may wait in `volcano.sh/sla-waiting-time`; the argument
`sla-waiting-time` speaks for those that state nothing. Jobs whose time has come are let into their
queue and may keep what they wait for, whatever later tiers say.
"""

from typing import Final

from pumice.plugins import ABSTAIN, PERMIT, Arguments, Cluster, Hooks, Job, Opinion, Vote
from shared.api import keys
from shared.api import time as times
from shared.model import durations

_ARGUMENT: Final = "sla-waiting-time"
_BEGINNING: Final = -62135596800.0
"""When objects without a creation time were made: Go's zero time, the year 1."""


class Sla:
    """Waiting times."""

    name = "sla"

    def __init__(self, arguments: Arguments) -> None:
        """Take `sla-waiting-time`, a duration such as 1h30m; an unreadable one is none."""
        self._default = _positive(arguments.get(_ARGUMENT))

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the order by deadline and the votes of overdue jobs."""

        def overdue(job: Job) -> bool:
            deadline = self._deadline(job)
            return deadline is not None and cluster.now >= deadline

        def order(job: Job) -> tuple[bool, float]:
            deadline = self._deadline(job)
            return deadline is None, deadline or 0.0

        def enqueueable(job: Job) -> Opinion:
            return PERMIT if overdue(job) else ABSTAIN

        def pipelined(job: Job) -> Vote:
            return Vote.PERMIT if overdue(job) else Vote.ABSTAIN

        hooks.job_order(order)
        hooks.job_enqueueable(enqueueable)
        hooks.job_pipelined(pipelined)

    def _deadline(self, job: Job) -> float | None:
        """Return when a job's waiting time is over, None when it may wait forever."""
        stated = _positive(job.annotations.get(keys.SLA_WAITING_TIME))
        waiting_s = stated or _positive(job.annotations.get(_ARGUMENT)) or self._default
        return None if waiting_s is None else _created(job) + waiting_s


def _positive(text: object) -> float | None:
    seconds = durations.parse(text) if isinstance(text, str) else None
    return seconds if seconds is not None and seconds > 0 else None


def _created(job: Job) -> float:
    try:
        return times.parse(job.created) if job.created else _BEGINNING
    except ValueError:
        return _BEGINNING
