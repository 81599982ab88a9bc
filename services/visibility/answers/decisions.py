"""The leading scheduler's own words about gangs that wait: the last one per gang. Pure.

What a gang waits for is what the leader has decided, not what a session here would. A session of
the latest state tells what the leader says nothing of, and where it finds another gate by now.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Explanation, Shortage
from services.visibility.answers.pending import waits
from services.visibility.answers.wording import shortages
from shared.api.time import format_seconds
from shared.api.visibility import PendingJob
from shared.contracts.messages import WaitExplained
from shared.contracts.streams import WAITING_TTL_S

DECISIONS_MOST: Final = 50_000
"""Gangs that are remembered, those that were spoken of last."""


class Decided(NamedTuple):
    """The explanation of a wait, as the leader has published it."""

    why: Explanation
    at: float
    """Unix seconds of the cycle that decided so."""


class _Heard(NamedTuple):
    said: WaitExplained
    at: float


class Decisions:
    """The last word on each gang that waits, by the key of its PodGroup."""

    def __init__(self, monotonic: Callable[[], float], most: int = DECISIONS_MOST) -> None:
        self._monotonic = monotonic
        self._most = most
        self._by_gang: OrderedDict[str, _Heard] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_gang)

    def hear(self, said: WaitExplained) -> None:
        """Take in what the leader says; a gang of which it names no gate waits no longer."""
        self._by_gang.pop(said.gang, None)
        if said.gate:
            self._by_gang[said.gang] = _Heard(said, self._monotonic())
            if len(self._by_gang) > self._most:
                self._by_gang.popitem(last=False)

    def forget(self) -> None:
        """Begin anew."""
        self._by_gang.clear()

    def of(self, job: Job) -> Decided | None:
        """Return what the leader says of a gang; None if it says nothing, or the gang has started.

        A word that was not said again for as long as it lives on the bus is of a leader that is
        gone.
        """
        heard = self._by_gang.get(job.key)
        if heard is None or heard.said.uid != job.uid or not waits(job):
            return None
        if self._monotonic() - heard.at > WAITING_TTL_S:
            return None
        return Decided(_read(heard.said, job), heard.said.time)


def as_decided(pending: PendingJob, decided: Decided) -> PendingJob:
    """Return a job that waits with the leader's words; its place in line is the latest one."""
    why = decided.why
    return replace(
        pending,
        gate=why.gate,
        message=why.message + why.details,
        shortages=shortages(why.shortages),
        decided_at=format_seconds(decided.at),
    )


def _read(said: WaitExplained, job: Job) -> Explanation:
    return Explanation(
        job=said.gang,
        job_uid=said.uid,
        queue=job.queue,
        owner_job=job.owner_job,
        gate=said.gate,
        message=said.message,
        details=said.details,
        position=said.position,
        nodes=said.nodes,
        reasons=said.reasons,
        shortages=tuple(
            Shortage.of(short.resource, short.requested, short.largest_free)
            for short in said.shortages
        ),
    )
