"""Weights of the estimators of durations, by how well they would have predicted past jobs.

Whether a job resembles others of its template, of its size, or the latest of its user differs from
cluster to cluster and from user to user. Before the duration of an ended job is added, each
estimator reports how likely durations near it were; the likelihoods of the latest jobs make its
score. Weights mix the scores for the same queue and namespace with those for all jobs, which count
as long as the former are few.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

_DECAY: Final = 0.98
"""Factor of a score per ended job: about the latest fifty count."""
_OWN_JOBS: Final = 10.0
"""Number of jobs of a user that weigh as much as those of all users."""
_LIKELIHOOD_MIN: Final = 1e-4
"""Least likelihood: a single job does not rule out an estimator."""


class _Scores:
    """Sums of log likelihoods, one per estimator, and the number of jobs; both decay."""

    __slots__ = ("count", "sums")

    def __init__(self, estimators: int) -> None:
        self.sums = [0.0] * estimators
        self.count = 0.0

    def add(self, logs: Sequence[float]) -> None:
        self.sums = [_DECAY * old + new for old, new in zip(self.sums, logs, strict=True)]
        self.count = _DECAY * self.count + 1.0


class Trust:
    """Scores of estimators, by user and over all."""

    def __init__(self, prior: Sequence[float], most: int) -> None:
        """Begin with these weights; scores of so many users are kept."""
        self._prior = [math.log(weight) for weight in prior]
        self._most = most
        self._all = _Scores(len(prior))
        self._of_user: OrderedDict[str, _Scores] = OrderedDict()

    def score(self, user: str, likelihoods: Sequence[float]) -> None:
        """Add the likelihood (0 to 1) of an observed duration under each estimator."""
        logs = [math.log(max(each, _LIKELIHOOD_MIN)) for each in likelihoods]
        logs = [each - logs[0] for each in logs]
        self._all.add(logs)
        self._of_user.setdefault(user, _Scores(len(logs))).add(logs)
        self._of_user.move_to_end(user)
        if len(self._of_user) > self._most:
            self._of_user.popitem(last=False)

    def weights(self, user: str) -> list[float]:
        """Return the weights of the estimators for jobs of a user; they sum up to 1."""
        own = self._of_user.get(user) or _Scores(len(self._prior))
        others = _OWN_JOBS / (_OWN_JOBS + own.count)
        logs = [
            prior + mine + others * all_
            for prior, mine, all_ in zip(self._prior, own.sums, self._all.sums, strict=True)
        ]
        most = max(logs)
        weights = [math.exp(each - most) for each in logs]
        total = sum(weights)
        return [weight / total for weight in weights]
