"""Estimates how long jobs run, from what they state and from the history of similar jobs.

A stated duration is multiplied by a ratio of real to stated duration, drawn from jobs that stated
theirs in the same form. Deadlines and annotations have separate ratios: deadlines are limits,
annotations are guesses. Without enough ended jobs the stated duration is used as it is.

Levels of history, from the most to the least similar: jobs of the same template or name, of the
same user (queue and namespace) and size, of the user, of the queue, all jobs. A level with n
durations gets the share n/(n+3) of the weight that the levels before it left; a spread from a
minute to a day gets the rest. An estimator starts at one of the first three levels, and may use
its latest durations only; `trust` has the weight of each estimator.

- Jobs of one kind in sequence are often similar (a batch of one user, a new version). As far as
  they were correlated so far, all draws of one simulation are long or short together.
- The time that a job already runs is a condition: levels with shorter durations only drop out, and
  the others give longer ones. A job that has run longer than all others is expected to last as long
  again, as a median.
- Running jobs count among those of their kinds, with the duration drawn for them: the jobs that
  have ended by now are the shorter ones.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Final, NamedTuple

from pumice.events.types import JobPhaseChanged
from services.scheduler.engine.jobs.records import Job
from services.visibility.forecast.sketch import AROUND, COUNT_MAX, ERROR, Sketch
from services.visibility.forecast.trust import Trust
from shared.jobs.expected_durations import Basis, Expected, size_of, template_of
from shared.model.quantity import BadQuantity, milli

Uniform = Callable[[], float]
"""The next number of a random sequence, in [0, 1)."""

KINDS_MAX: Final = 4_096
"""Most kinds of jobs that are stored; those that ended longest ago are dropped first."""
_DOUBT: Final = 3.0
_ENOUGH: Final = 8
"""Least number of ended jobs of a kind for a ratio to stated durations."""
_RATIO: Final = 1_000.0
"""Sketches of ratios count the seconds that jobs ran for so many stated ones."""
_RATIO_ERROR: Final = 0.01
"""Ratios are sketched finer: the errors of many jobs would all have the same sign."""
_LEADS: Final = 3
"""First level of an estimator: the template, the size, or the user."""
_LATEST: Final = 12.0
"""So many durations weigh at most in a sketch of the latest ones."""
_PRIOR: Final = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)
"""Initial weights of the estimators: the three first levels, and these with the latest only."""
_DEFAULT_S: Final = (60.0, 86_400.0)
_GRACE_S: Final = 30.0
"""The time that a pod gets beyond its deadline."""
_OVERRUN: Final = 0.15
"""A job beyond the duration that it stated runs on for this part of what it has run, as a mean."""
_RUNNING: Final = "Running"
_CUT_OFF: Final = frozenset(
    {"Pending", "Restarting", "Aborting", "Aborted", "Terminating", "Terminated"}
)
"""Phases of a job that was stopped: its run time does not show how long it takes."""
_ENDS: Final = 3
"""A kind of which fewer jobs have ended is not known."""
_STATED: Final = {basis.value: basis for basis in (Basis.ANNOTATION, Basis.DEADLINE)}
_NORMAL: Final = NormalDist()
_LEAST: Final = 1e-12


class HistoricJob(NamedTuple):
    """A job as history knows it."""

    namespace: str
    queue: str
    template: str
    """`template_of` the job."""
    size: str = ""
    """`size_of` the job."""

    @property
    def user(self) -> str:
        """Return the kind of all jobs of its queue and namespace."""
        return f"user {self.queue}/{self.namespace}"

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of jobs that it belongs to, the nearest first."""
        return (
            f"template {self.template}",
            f"size {self.queue}/{self.namespace} {self.size}",
            self.user,
            f"queue {self.queue}",
            "all",
        )


def size_in(min_resources: Mapping[str, str]) -> str:
    """Return the size of the job of an event; empty if the event has no amounts."""
    try:
        return size_of({name: milli(amount) for name, amount in min_resources.items()})
    except BadQuantity:
        return ""


class _Kinds:
    """A bounded number of sketches, by kind of job."""

    def __init__(self, most: int, *, error: float = ERROR, count_max: float = COUNT_MAX) -> None:
        self._most = most
        self._sketch = partial(Sketch, error, count_max)
        self._sketches: OrderedDict[str, Sketch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sketches)

    def __contains__(self, kind: str) -> bool:
        return kind in self._sketches

    def add(self, kinds: Iterable[str], value: float) -> None:
        for sketch in self.latest(kinds):
            sketch.add(value)

    def latest(self, kinds: Iterable[str]) -> list[Sketch]:
        """Return the sketches of kinds of which a job has ended now; new ones of new kinds."""
        found, sketches = list[Sketch](), self._sketches
        for kind in kinds:
            if kind in sketches:
                sketches.move_to_end(kind)
            else:
                sketches[kind] = self._sketch()
            found.append(sketches[kind])
        while len(sketches) > self._most:
            sketches.popitem(last=False)
        return found

    def of(self, kinds: Iterable[str]) -> list[Sketch]:
        """Return the sketches of kinds; empty ones of kinds not known."""
        return [self._sketches.get(kind) or self._sketch() for kind in kinds]


class History:
    """Sketches of how long jobs ran, and of how that compares with what they stated, by kind."""

    def __init__(self, most: int = KINDS_MAX) -> None:
        self._durations = _Kinds(most)
        self._latest = _Kinds(most, count_max=_LATEST)
        self._trust = Trust(_PRIOR, most)
        self._ratios = {basis: _Kinds(most, error=_RATIO_ERROR) for basis in _STATED.values()}

    def __len__(self) -> int:
        """Return the number of kinds that are known."""
        return len(self._durations)

    def ended(
        self, subject: HistoricJob, seconds: float, *, stated: Expected | None = None
    ) -> None:
        """Count in how long a job ran, and what it had stated if nothing cut the run off."""
        kinds = subject.kinds()
        durations, latest = self._durations.latest(kinds), self._latest.latest(kinds[:_LEADS])
        place = durations[0].place(seconds)
        self._trust.score(subject.user, _likelihoods(durations, latest, seconds, place))
        for sketch in (*durations, *latest):
            sketch.add_at(place)
        if stated is not None:
            ratio = _RATIO * seconds / stated.seconds
            self._ratios[stated.basis].add(kinds, ratio)

    def learn(self, event: JobPhaseChanged) -> None:
        """Process an event: a job that has ended by itself adds its duration."""
        if event.previous != _RUNNING or event.phase == _RUNNING or event.seconds_running <= 0.0:
            return
        if event.phase in _CUT_OFF:
            return
        namespace, _, _ = event.job.partition("/")
        template = event.template or template_of(event.job, {})
        subject = HistoricJob(namespace, event.queue, template, size_in(event.min_resources))
        self.ended(subject, event.seconds_running, stated=_stated_in(event))

    def levels(self, subject: HistoricJob) -> list[Sketch]:
        """Return the sketches for a job, the nearest first; empty ones of kinds not known."""
        return self._durations.of(subject.kinds())

    def latest(self, subject: HistoricJob) -> list[Sketch]:
        """Return the sketches of the latest jobs of its template, of its size and of its user."""
        return self._latest.of(subject.kinds()[:_LEADS])

    def weights(self, subject: HistoricJob) -> list[float]:
        """Return the weights of the estimators, in the order of `_PRIOR`; they sum up to 1."""
        return self._trust.weights(subject.user)

    def ratios(self, subject: HistoricJob, basis: Basis) -> list[Sketch]:
        """Return sketches of ratios to durations stated in this way, as `levels`."""
        return self._ratios[basis].of(subject.kinds())

    def knows(self, subject: HistoricJob) -> bool:
        """Return whether any job of one of its kinds has ended."""
        return any(kind in self._durations for kind in subject.kinds())

    def basis(self, subject: HistoricJob) -> Basis:
        """Return whether enough jobs like it have ended, or others, or none (DEFAULT)."""
        known = [sketch.count >= _ENDS for sketch in self._durations.of(subject.kinds())]
        if any(known[:_LEADS]):
            return Basis.HISTORY
        return Basis.OTHERS if any(known) else Basis.DEFAULT


def _stated_in(event: JobPhaseChanged) -> Expected | None:
    """Return the stated duration of a job, if its run time can be compared with it."""
    basis = _STATED.get(event.stated_by)
    if basis is None or event.seconds_stated <= 0.0:
        return None
    return Expected(event.seconds_stated, basis)


def _share(count: float) -> float:
    """Return the weight (0 to 1) of a level of which so many jobs were observed."""
    return count / (count + _DOUBT)


def _likelihoods(
    durations: Sequence[Sketch], latest: Sequence[Sketch], seconds: float, place: float
) -> list[float]:
    """Return the likelihood of a duration, whose place in a sketch is known, for each way."""
    likelihood, plain = _default_around(seconds), list[float]()
    for sketch in reversed(durations):
        likelihood = _mixed(sketch, place, likelihood)
        plain.append(likelihood)
    plain = plain[: -_LEADS - 1 : -1]
    return plain + [
        _mixed(sketch, place, likelihood) for sketch, likelihood in zip(latest, plain, strict=True)
    ]


def _mixed(sketch: Sketch, place: float, prior: float) -> float:
    share = _share(sketch.count)
    return share * sketch.around(place) + (1.0 - share) * prior


class _Level(NamedTuple):
    """Durations of one kind of job, as one simulation has them."""

    sketch: Sketch
    running: list[float]
    """Durations that were drawn for jobs that run."""

    def observed(self) -> float:
        """Return how many jobs were observed: those that have ended and those that run."""
        return self.sketch.count + len(self.running)


class _Known(NamedTuple):
    """All that is known of one subject, as one simulation has it."""

    levels: list[_Level]
    latest: list[_Level]
    """Of the first of the levels, the latest durations alone. Jobs that run count not among them:
    they have come over a longer time, and the longest of them are left."""
    weights: list[float]
    """Weights of the estimators for one simulation, from `Durations._weights`."""

    def shares(self) -> tuple[list[tuple[float, _Level]], float]:
        """Return levels with their weights, and the weight of what nothing is known of."""
        found, entering = list[tuple[float, _Level]](), [0.0] * len(self.levels)
        for lead, level in enumerate(self.latest):
            share = self.weights[_LEADS + lead] * _share(level.observed())
            found.append((share, level))
            entering[lead] = self.weights[lead] + self.weights[_LEADS + lead] - share
        left = 0.0
        for enters, level in zip(entering, self.levels, strict=True):
            left += enters
            share = left * _share(level.observed())
            found.append((share, level))
            left -= share
        return found, left


class Durations:
    """Draws of how long jobs run; one per simulation."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._subjects: dict[HistoricJob, _Known] = {}
        self._running: dict[str, list[float]] = {}
        """Kind → durations that were drawn for its jobs that run."""
        self._lately: dict[str, float] = {}
        """User → a number in [0, 1) that decides for all of his jobs whether the latest count."""
        self._ratios: dict[tuple[HistoricJob, Basis], list[Sketch]] = {}
        self._common: dict[int, float] = {}
        """Sketch → how long its jobs are in this simulation: a normally distributed number."""

    def remaining_s(
        self, subject: HistoricJob, stated: Expected | None, elapsed: float, uniform: Uniform
    ) -> float:
        """Return the remaining seconds of a running job; drawn before any that is yet to start."""
        if stated is not None:
            return self._stated_remaining(subject, stated, elapsed, uniform)
        total = self._draw(self._ended(subject, uniform), elapsed, uniform)
        for kind in subject.kinds():
            self._running[kind].append(total)
        return total - elapsed

    def total_s(self, subject: HistoricJob, stated: Expected | None, uniform: Uniform) -> float:
        """Return how many seconds a job runs in all, from its start."""
        if stated is not None:
            return self._stated_remaining(subject, stated, 0.0, uniform)
        return self._draw(self._known(subject, uniform), 0.0, uniform)

    def basis(self, subject: HistoricJob, stated: Expected | None) -> Basis:
        """Return where the duration of a job comes from."""
        if stated is not None:
            return stated.basis
        return self._history.basis(subject)

    def _stated_remaining(
        self, subject: HistoricJob, stated: Expected, elapsed: float, uniform: Uniform
    ) -> float:
        """Return the remaining seconds of a job that has stated a duration."""
        ratio = self._ratio(subject, stated, elapsed, uniform)
        if ratio is None:
            return _remaining_as_stated(stated, elapsed, uniform)
        total = stated.seconds * ratio / _RATIO
        if stated.basis is Basis.DEADLINE:
            total = min(total, max(stated.seconds, elapsed) + _GRACE_S)
        return max(0.0, total - elapsed)

    def _ratio(
        self, subject: HistoricJob, stated: Expected, elapsed: float, uniform: Uniform
    ) -> float | None:
        """Return a ratio beyond the time that has passed; None to believe what is stated."""
        key, passed = (subject, stated.basis), _RATIO * elapsed / stated.seconds
        if key not in self._ratios:
            self._ratios[key] = self._history.ratios(*key)
        left, weights = 1.0, []
        for sketch in self._ratios[key]:
            count = sketch.count if sketch.count >= _ENOUGH else 0.0
            share = left * count / (count + _DOUBT)
            weights.append((share * (sketch.beyond(passed) if passed else 1.0), sketch))
            left -= share
        if not (total := sum(weight for weight, _ in weights)):
            return None
        remaining = uniform() * (total + (left if elapsed < stated.seconds else 0.0))
        for weight, sketch in weights:
            if remaining < weight:
                return sketch.draw(self._at(sketch, uniform), elapsed=passed)
            remaining -= weight
        return None

    def _known(self, subject: HistoricJob, uniform: Uniform) -> _Known:
        found = self._subjects.get(subject)
        if found is None:
            kinds, history = subject.kinds(), self._history
            running = [self._running.setdefault(kind, []) for kind in kinds]
            found = self._subjects[subject] = _Known(
                [_Level(*each) for each in zip(history.levels(subject), running, strict=True)],
                [_Level(sketch, []) for sketch in history.latest(subject)],
                self._weights(subject, uniform),
            )
        return found

    def _weights(self, subject: HistoricJob, uniform: Uniform) -> list[float]:
        """Return the estimators' weights in this simulation: either the latest jobs count, or not.

        If those of a user continue as the latest ones did, then all of them do.
        """
        weights = self._history.weights(subject)
        lately = sum(weights[_LEADS:])
        at = self._lately.setdefault(subject.user, uniform())
        if at < lately:
            return [0.0] * _LEADS + [weight / lately for weight in weights[_LEADS:]]
        return [weight / (1.0 - lately) for weight in weights[:_LEADS]] + [0.0] * _LEADS

    def _ended(self, subject: HistoricJob, uniform: Uniform) -> _Known:
        """Return what is known of a subject by the jobs that have ended."""
        known = self._known(subject, uniform)
        return known._replace(levels=[level._replace(running=[]) for level in known.levels])

    def _draw(self, known: _Known, elapsed: float, uniform: Uniform) -> float:
        """Return a duration beyond `elapsed`, drawn from the levels by their weights."""
        shares, left = known.shares()
        weights = [
            share * (level.sketch.beyond(elapsed) if elapsed else 1.0) for share, level in shares
        ]
        remaining = uniform() * (sum(weights) + left * _default_beyond(elapsed))
        for (_, level), weight in zip(shares, weights, strict=True):
            if remaining < weight:
                return self._of_level(level, elapsed, uniform)
            remaining -= weight
        return _default(elapsed, uniform)

    def _of_level(self, level: _Level, elapsed: float, uniform: Uniform) -> float:
        """Return a duration of one level; jobs that run count as those that have ended do."""
        among = int(uniform() * level.observed())
        if among < len(level.running):
            return level.running[among]
        found = level.sketch.draw(self._at(level.sketch, uniform), elapsed=elapsed)
        return elapsed if found is None else found

    def _at(self, sketch: Sketch, uniform: Uniform) -> float:
        """Return a number in [0, 1) that is like others of its sketch in this simulation."""
        autocorrelation, own = sketch.autocorrelation, uniform()
        if not autocorrelation:
            return own
        common = self._common.get(id(sketch))
        if common is None:
            common = self._common[id(sketch)] = _NORMAL.inv_cdf(max(uniform(), _LEAST))
        own = _NORMAL.inv_cdf(max(own, _LEAST))
        at = math.sqrt(autocorrelation) * common + math.sqrt(1.0 - autocorrelation) * own
        return min(_NORMAL.cdf(at), 1.0 - _LEAST)


def _default_beyond(elapsed: float) -> float:
    least, most = _DEFAULT_S
    if elapsed <= least:
        return 1.0
    return max(0.0, math.log(most / elapsed) / math.log(most / least))


def _default_around(seconds: float) -> float:
    least, most = _DEFAULT_S
    return AROUND / math.log(most / least) if least <= seconds <= most else 0.0


def _default(elapsed: float, uniform: Uniform) -> float:
    least, most = _DEFAULT_S
    if elapsed >= most:
        return elapsed / (1.0 - uniform())
    low = max(least, elapsed)
    return float(low * (most / low) ** uniform())


def _remaining_as_stated(stated: Expected, elapsed: float, uniform: Uniform) -> float:
    """Return the remaining seconds of a job, by what it has stated alone."""
    if elapsed < stated.seconds:
        return stated.seconds - elapsed
    if stated.basis is Basis.DEADLINE:
        return _GRACE_S
    return -_OVERRUN * elapsed * math.log(1.0 - uniform())


def subject_of(job: Job) -> HistoricJob:
    """Return what history knows a PodGroup by: its Job, else itself."""
    template = template_of(job.owner_job or job.key, job.annotations)
    return HistoricJob(job.namespace, job.queue, template, size_of(job.min_listed))
