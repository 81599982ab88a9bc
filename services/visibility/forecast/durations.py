"""How long jobs run: what they say themselves, else what jobs like them took (`History`).

History is asked from the nearest to the farthest: jobs of the same template or name, of the same
queue and namespace, of the queue, all. Each level counts the more the more it has seen: one with n
durations gets n/(n+3) of what the nearer ones have left over, and a spread from a minute to a day
gets the rest. Jobs of a kind that follow each other are often alike (a batch of one user, or a new
version): as much as they were so far, all that are drawn in one play are long or short together.
The time that a job already runs is a condition: levels whose durations were all
shorter drop out, and the others give only longer ones. A job that has outlived everything is
expected to last as long again, as a median. Jobs that run still count among those of their kinds,
with what is drawn for them: the ones that have ended by now are the shorter ones.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from pumice.events.types import JobPhaseChanged
from services.visibility.forecast.sketch import Sketch
from shared.jobs.durations import Basis, Expected, template_of

Uniform = Callable[[], float]
"""The next number of a random sequence, in [0, 1)."""

KINDS_MOST: Final = 4_096
"""So many kinds of jobs are remembered; those that ended longest ago are forgotten first."""
_DOUBT: Final = 3.0
_DEFAULT_S: Final = (60.0, 86_400.0)
_GRACE_S: Final = 30.0
"""The time that a pod gets beyond its deadline."""
_OVERRUN: Final = 0.15
"""A job beyond the duration that it stated goes on for this part of what it has run, as a mean."""
_RUNNING: Final = "Running"
_NORMAL: Final = NormalDist()
_LEAST: Final = 1e-12


class Subject(NamedTuple):
    """A job as history knows it."""

    namespace: str
    queue: str
    template: str
    """`template_of` the job."""

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of jobs that it belongs to, the nearest first."""
        return (
            f"template {self.template}",
            f"user {self.queue}/{self.namespace}",
            f"queue {self.queue}",
            "all",
        )


class History:
    """Sketches of how long jobs ran, by kind."""

    def __init__(self, most: int = KINDS_MOST) -> None:
        self._most = most
        self._sketches: OrderedDict[str, Sketch] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of kinds that are known."""
        return len(self._sketches)

    def ended(self, subject: Subject, seconds: float) -> None:
        """Count in how long a job ran."""
        for kind in subject.kinds():
            self._sketches.setdefault(kind, Sketch()).add(seconds)
            self._sketches.move_to_end(kind)
        while len(self._sketches) > self._most:
            self._sketches.popitem(last=False)

    def learn(self, event: JobPhaseChanged) -> None:
        """Take an event in: a job that has left the phase Running tells how long it was in it."""
        if event.previous != _RUNNING or event.phase == _RUNNING or event.seconds_running <= 0.0:
            return
        namespace, _, _ = event.job.partition("/")
        template = event.template or template_of(event.job, {})
        self.ended(Subject(namespace, event.queue, template), event.seconds_running)

    def levels(self, subject: Subject) -> list[Sketch]:
        """Return the sketches for a job, the nearest first; empty ones of kinds not known."""
        return [self._sketches.get(kind) or Sketch() for kind in subject.kinds()]

    def knows(self, subject: Subject) -> bool:
        """Tell whether any job of one of its kinds has ended."""
        return any(kind in self._sketches for kind in subject.kinds())


class _Level(NamedTuple):
    """Durations of one kind of job, as one play has them."""

    sketch: Sketch
    running: list[float]
    """Durations that were drawn for jobs that run."""

    def told(self) -> float:
        """Return how many jobs have told, or tell by running on."""
        return self.sketch.count + len(self.running)


class Durations:
    """Draws of how long jobs run; one per play."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._levels: dict[Subject, list[_Level]] = {}
        self._running: dict[str, list[float]] = {}
        self._common: dict[int, float] = {}
        """Sketch → how long its jobs are in this play: a number of the normal distribution."""

    def goes_on(
        self, subject: Subject, stated: Expected | None, elapsed: float, uniform: Uniform
    ) -> float:
        """Return how many seconds a job goes on that runs, before any that is yet to start."""
        if stated is not None:
            return _stated_rest(stated, elapsed, uniform)
        levels = [level._replace(running=[]) for level in self._known(subject)]
        total = self._draw(levels, elapsed, uniform)
        for kind in subject.kinds():
            self._running[kind].append(total)
        return total - elapsed

    def lasts(self, subject: Subject, stated: Expected | None, uniform: Uniform) -> float:
        """Return how many seconds a job runs from its start."""
        if stated is not None:
            return stated.seconds
        return self._draw(self._known(subject), 0.0, uniform)

    def basis(self, subject: Subject, stated: Expected | None) -> Basis:
        """Return where the duration of a job comes from."""
        if stated is not None:
            return stated.basis
        return Basis.HISTORY if self._history.knows(subject) else Basis.DEFAULT

    def _known(self, subject: Subject) -> list[_Level]:
        found = self._levels.get(subject)
        if found is None:
            kinds, sketches = subject.kinds(), self._history.levels(subject)
            found = self._levels[subject] = [
                _Level(sketch, self._running.setdefault(kind, []))
                for kind, sketch in zip(kinds, sketches, strict=True)
            ]
        return found

    def _draw(self, levels: Sequence[_Level], elapsed: float, uniform: Uniform) -> float:
        """Return a duration beyond `elapsed`, drawn from the levels by their weights."""
        left, weights = 1.0, []
        for level in levels:
            count = level.told()
            share = left * count / (count + _DOUBT)
            weights.append(share * (level.sketch.beyond(elapsed) if elapsed else 1.0))
            left -= share
        weights.append(left * _default_beyond(elapsed))
        wanted = uniform() * sum(weights)
        for level, weight in zip(levels, weights[:-1], strict=True):
            if wanted < weight:
                return self._of_level(level, elapsed, uniform)
            wanted -= weight
        return _default(elapsed, uniform)

    def _of_level(self, level: _Level, elapsed: float, uniform: Uniform) -> float:
        """Return a duration of one level; jobs that run count as those that have ended do."""
        among = int(uniform() * level.told())
        if among < len(level.running):
            return level.running[among]
        found = level.sketch.draw(self._at(level.sketch, uniform), elapsed=elapsed)
        return elapsed if found is None else found

    def _at(self, sketch: Sketch, uniform: Uniform) -> float:
        """Return a number in [0, 1) that is like others of its sketch in this play."""
        likeness, own = sketch.likeness, uniform()
        if not likeness:
            return own
        common = self._common.get(id(sketch))
        if common is None:
            common = self._common[id(sketch)] = _NORMAL.inv_cdf(max(uniform(), _LEAST))
        own = _NORMAL.inv_cdf(max(own, _LEAST))
        at = math.sqrt(likeness) * common + math.sqrt(1.0 - likeness) * own
        return min(_NORMAL.cdf(at), 1.0 - _LEAST)


def _default_beyond(elapsed: float) -> float:
    least, most = _DEFAULT_S
    if elapsed <= least:
        return 1.0
    return max(0.0, math.log(most / elapsed) / math.log(most / least))


def _default(elapsed: float, uniform: Uniform) -> float:
    least, most = _DEFAULT_S
    if elapsed >= most:
        return elapsed / (1.0 - uniform())
    low = max(least, elapsed)
    return float(low * (most / low) ** uniform())


def _stated_rest(stated: Expected, elapsed: float, uniform: Uniform) -> float:
    if elapsed < stated.seconds:
        return stated.seconds - elapsed
    if stated.basis is Basis.DEADLINE:
        return _GRACE_S
    return -_OVERRUN * elapsed * math.log(1.0 - uniform())


def subject_of(key: str, owner_job: str, queue: str, annotations: Mapping[str, str]) -> Subject:
    """Return what history knows a PodGroup by: its Job, else itself."""
    namespace, _, _ = key.partition("/")
    return Subject(namespace, queue, template_of(owner_job or key, annotations))
