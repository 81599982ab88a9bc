"""Past arrivals of jobs, and future arrivals drawn from them for a simulation.

The arrival rate is the number of jobs over a period at least as long as the look-ahead
(`Arrivals.future`): a hundred jobs within one second are a hundred per hour, not a hundred per
second. Old arrivals are therefore not dropped in favour of the latest ones: above a limit,
neighbours that arrived close to each other are merged (`Stretch`), with their number and a few
examples.

Arrivals come from the cluster state, and after a restart from the events on admissions.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from pumice.events.types import GangAdmitted
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.forecast.durations import Uniform
from services.visibility.forecast.shapes import ArrivalShape, arrival_in, arrival_of
from shared.api import time as times

RECENT: Final = 256
"""Number of latest jobs that are stored singly, and least number that determines the rate."""
FEW: Final = 8
"""With fewer jobs no arrivals are drawn."""
KEPT: Final = 1_024
"""Most stretches that are stored."""
LEAST_S: Final = 3_600.0
"""Least period for the rate, in seconds, also where the history is shorter."""
_MINUTES: Final = 64
"""Least number of minutes with arrivals in it: the latest jobs may all be of one burst."""
_MOST_S: Final = 7 * 86_400.0
"""Longest look-ahead, and the age from which jobs are dropped, apart from the latest ones."""
_BLOCKS: Final = 16
"""The period is redrawn in this number of blocks, each unchanged: jobs come in bursts."""
_FIRST_JOBS: Final = 16
"""Most jobs that follow in the order in which they came after one like the latest."""
_EXAMPLES: Final = 4
_ROUNDED_S: Final = 1.0
"""Times of objects are whole seconds."""
_AFTER_S: Final = 0.001
_MINUTE_S: Final = 60.0
UIDS: Final = 16_384
"""Number of uids that are stored: the cluster state and an event report the same job."""
_NOT_ADMITTED: Final = frozenset({"", "Pending"})


class Stretch(NamedTuple):
    """Jobs that came after each other, at even distances; mostly a single one."""

    first: float
    last: float
    number: int
    examples: tuple[ArrivalShape, ...]

    @property
    def uid(self) -> str:
        """Return the uid of its first example: times of objects are whole seconds."""
        return self.examples[0].uid

    @property
    def apart_s(self) -> float:
        """Return the distance of two jobs that follow each other."""
        return (self.last - self.first) / max(self.number - 1, 1)

    def jobs(self, start: float, end: float) -> Iterator[tuple[float, ArrivalShape]]:
        """Give the jobs that came in a time, up to its end, by the examples in turn."""
        apart_s = self.apart_s
        before = math.ceil((start - self.first) / apart_s) if apart_s and start > self.first else 0
        for place in range(before, self.number):
            at = self.first + place * apart_s
            if at >= end:
                break
            yield at, self.examples[place % len(self.examples)]

    def joined(self, other: "Stretch") -> "Stretch":
        """Return both as one; `other` comes later."""
        examples = self.examples + other.examples
        return Stretch(
            self.first,
            max(self.last, other.last),
            self.number + other.number,
            examples if len(examples) <= _EXAMPLES else examples[::2],
        )


_ORDER: Final = attrgetter("first", "uid")
_FIRST: Final = attrgetter("first")


def _arrival_time(job: Job, now: float) -> float:
    return min(now, times.read(job.created) or now)


class JobArrivals:
    """The jobs that have come."""

    def __init__(self, *, recent: int = RECENT, kept: int = KEPT, uids: int = UIDS) -> None:
        self._recent = recent
        self._kept = kept
        self._uids_most = uids
        self._stretches: list[Stretch] = []
        """In the order of their times."""
        self._uids: dict[str, float] = {}
        """Of the jobs that were noted last → when they came."""
        self._closed_at = -math.inf
        """Jobs that came until then may have been noted, and their uids are forgotten."""
        self._since = math.inf
        """Since when jobs are noted as they come."""
        self._known: set[str] | None = None

    def __len__(self) -> int:
        """Return how many jobs are remembered."""
        return sum(stretch.number for stretch in self._stretches)

    @property
    def stretches(self) -> int:
        """Return how many stretches are kept of them."""
        return len(self._stretches)

    def reset(self) -> None:
        """Take the jobs of the next review for old ones: the state was read again."""
        self._known = None

    def review(self, cluster_state: ClusterState, now: float) -> None:
        """Note the jobs that have come since the last call.

        The jobs that are there at the first call are mostly long ones, and say little about those
        that come. Of these only the ones are noted that wait for their admission and came after
        one of the jobs that are known from events: their own events are still to come.
        """
        before, self._known = self._known, set()
        since = self._stretches[0].first if self._stretches else math.inf
        self._since = min(self._since, now)
        for job in sorted(cluster_state.jobs.all(), key=lambda job: (job.created, job.key)):
            if not job.has_group:
                continue
            self._known.add(job.uid)
            is_new = before is not None and job.uid not in before
            if is_new or (job.phase in _NOT_ADMITTED and _arrival_time(job, now) >= since):
                self.note(job, cluster_state.dimensions, now)

    def note(self, job: Job, dimensions: Dimensions, now: float) -> None:
        """Note one job that has come."""
        if job.uid not in self._uids:
            self._add(arrival_of(job, dimensions, at=_arrival_time(job, now)))

    def learn(self, event: GangAdmitted) -> None:
        """Record the job of an event; events without the job's creation time are ignored."""
        came = arrival_in(event) if event.uid not in self._uids else None
        if came is not None:
            self._add(came)

    def _add(self, came: ArrivalShape) -> None:
        if came.at <= self._closed_at:
            return
        insort(self._stretches, Stretch(came.at, came.at, 1, (came,)), key=_ORDER)
        self._uids[came.uid] = came.at
        if len(self._uids) > self._uids_most:
            self._closed_at = max(self._closed_at, self._uids.pop(next(iter(self._uids))))
        if len(self._stretches) > self._kept:
            self._make_room()

    def _make_room(self) -> None:
        """Forget the jobs of long ago, and join a third of the others but the latest ones."""
        recent, old = self._stretches[-self._recent :], self._stretches[: -self._recent]
        newest = recent[-1].last
        remaining = [stretch for stretch in old if stretch.last > newest - _MOST_S]
        if len(remaining) < len(old):
            self._since = max(stretch.last for stretch in old if stretch.last <= newest - _MOST_S)
        self._stretches = _joined(remaining, len(old) // 3, newest) + recent

    def future(self, now: float, uniform: Uniform) -> "FutureArrivals":
        """Return a source of jobs to come."""
        return FutureArrivals(self._stretches, now, self._since, uniform)


def _joined(stretches: list[Stretch], joins: int, newest: float) -> list[Stretch]:
    """Return the stretches after merging this number of neighbours, those that lose least.

    A join moves jobs by a part of its length; of long ago that says less.
    """

    def cost(at: int) -> float:
        one, other = stretches[at], stretches[at + 1]
        moved = (one.number + other.number) * (other.last - one.first)
        return moved / (newest - one.first + _MINUTE_S)

    taken: set[int] = set()
    heads: set[int] = set()
    for at in sorted(range(len(stretches) - 1), key=cost):
        if len(heads) == joins:
            break
        if at not in taken and at + 1 not in taken:
            taken |= {at, at + 1}
            heads.add(at)
    return [
        stretch.joined(stretches[at + 1]) if at in heads else stretch
        for at, stretch in enumerate(stretches)
        if at - 1 not in heads
    ]


def _reach(stretches: list[Stretch], now: float, since: float) -> float:
    """Return the start of the period that determines the arrival rate."""
    jobs, minutes, before = 0, 0, math.inf
    for stretch in reversed(stretches):
        last = min(stretch.last // _MINUTE_S, before - 1.0)
        minutes += int(max(0.0, last - stretch.first // _MINUTE_S + 1.0))
        before = min(before, stretch.first // _MINUTE_S)
        jobs += stretch.number
        if jobs >= RECENT and minutes >= _MINUTES:
            return min(stretch.first, now - LEAST_S)
    return min(stretches[0].first, since, now - LEAST_S)


class FutureArrivals:
    """Jobs to come in one simulation: times of the past as they were, in another order.

    What comes is drawn from a time that is as long as the look ahead or longer. It ends now, so
    that the time since the latest job counts as all others do. It begins where after a job as long
    nothing had come as nothing has come by now: jobs come in bursts, and one that is over is over.
    """

    def __init__(
        self, stretches: list[Stretch], now: float, since: float, uniform: Uniform
    ) -> None:
        self._stretches = stretches
        self._begun = now
        self._uniform = uniform
        self._known_since = min(since, stretches[0].first) if stretches else now
        few = sum(stretch.number for stretch in stretches[-FEW:]) < FEW
        self._past_s = 0.0 if few else now - _reach(stretches, now, since)
        self._source = iter(()) if few else self._jobs()
        self.at = now
        """When the next one comes; never, if nothing is known."""
        self._next: ArrivalShape | None = None
        self._advance()

    def take(self) -> ArrivalShape:
        """Return the job that comes at `at`."""
        found = self._next
        assert found is not None, "no job is to come"
        self._advance()
        return found

    def _advance(self) -> None:
        at, self._next = next(self._source, (math.inf, None))
        self.at = max(self.at, at)

    def _jobs(self) -> Iterator[tuple[float, ArrivalShape]]:
        """Give jobs with their times, block by block, for ever.

        Only the next few jobs come as after jobs like the latest one.
        """
        at = now = self._begun
        start = self._first_start()
        if start is not None:
            long_s = self._past_s / _BLOCKS
            end = at + long_s
            jobs = self._block(start, at, long_s=long_s, past_s=self._past_s)
            for number, (came, arrival) in enumerate(jobs, start=1):
                yield came, arrival
                if number == _FIRST_JOBS:
                    end = came
                    break
            at = end
        while True:
            past_s = max(self._past_s, min(at - now, now - self._known_since))
            long_s = past_s / _BLOCKS
            start = now - past_s + self._uniform() * past_s
            yield from self._block(start, at, long_s=long_s, past_s=past_s)
            at += long_s

    def _block(
        self, start: float, at: float, *, long_s: float, past_s: float
    ) -> Iterator[tuple[float, ArrivalShape]]:
        """Give the jobs of a time of the past, which continues at the beginning of the past."""
        now = self._begun
        yield from self._between(start, start + long_s, at)
        over_s = start + long_s - now
        if over_s > 0.0:
            begin = now - past_s
            yield from self._between(begin, begin + over_s, at + long_s - over_s)

    def _first_start(self) -> float | None:
        """Return a time of the past before which it was quiet for as long as it is now.

        After one of the jobs, the latest one, nothing is known of how it went on: None for it.
        """
        stretches, begun = self._stretches, self._begun
        quiet_s = max(0.0, begun - stretches[-1].last - _ROUNDED_S)
        begin = bisect_left(stretches, begun - self._past_s, key=_FIRST)
        found: list[tuple[int, Stretch]] = []
        for one, other in pairwise(stretches[begin:]):
            inside = one.number - 1 if one.apart_s > quiet_s else 0
            if jobs := inside + (other.first - one.last > quiet_s):
                found.append((jobs, one))
        remaining = int(self._uniform() * (1 + sum(jobs for jobs, _ in found)))
        for jobs, stretch in found:
            if remaining < jobs:
                return stretch.last - remaining * stretch.apart_s + quiet_s + _AFTER_S
            remaining -= jobs
        return None

    def _between(self, start: float, end: float, at: float) -> Iterator[tuple[float, ArrivalShape]]:
        """Give the jobs of a time of the past, as from `at` on."""
        stretches = self._stretches
        begin = bisect_left(stretches, start, key=_FIRST)
        while begin and stretches[begin - 1].last >= start:
            begin -= 1
        for number in range(begin, len(stretches)):
            if stretches[number].first >= end:
                break
            for came, arrival in stretches[number].jobs(start, end):
                yield at + came - start, arrival
