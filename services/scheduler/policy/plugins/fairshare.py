"""fairshare: queues, and the users of a queue, come first that used least of their shares.

Usage is what accounting publishes: amount·seconds that decay with a half-life. The order is that of
Slurm's Fair Tree (`shared.model.fair_tree`). A queue's share is its weight, a user's is 1 unless
the queue's annotation `pumice.dev/user-shares` states another one. Without accounting, the last
values decay, and what jobs hold now counts as if they had held it since.

Arguments are named as in Volcano's plugin of this name; accounting has the half-life and keeps the
state, so that those arguments have no effect.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from pumice.plugins import Arguments, Cluster, Hooks, Job, Queue
from services.scheduler.engine.resources.dimensions import per_unit
from services.scheduler.policy.arguments import BadArgument, names, text
from services.scheduler.policy.states.past_usage import PastUsage
from shared.api import keys
from shared.api.scheduling import ROOT_QUEUE
from shared.contracts.usage import QueueUsage
from shared.jobs.users import user_of
from shared.model.decayed_usage import decay, held_seconds
from shared.model.fair_tree import paths, usage_over_share

_GPU: Final = "nvidia.com/gpu"


class FairShare:
    """Order by decayed usage over share."""

    name = "fairshare"

    def __init__(self, arguments: Arguments) -> None:
        """Take `fairshare.targetQueues`, `fairshare.resourceKey[.queue]` and `fairshare.weights`.

        Raises BadArgument.
        """
        self._targets = frozenset(names(arguments, "fairshare.targetQueues"))
        resource = text(arguments, "fairshare.resourceKey", _GPU)
        self._weights = _weights(arguments) or {resource: 1.0}
        self._of_queue = {
            key.removeprefix("fairshare.resourceKey."): {text(arguments, key): 1.0}
            for key in arguments
            if key.startswith("fairshare.resourceKey.")
        }

    def weights_of(self, queue: str) -> Mapping[str, float]:
        """Return resource → weight by which the usage of a queue counts."""
        return self._of_queue.get(queue, self._weights)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the orders of queues and jobs."""
        past = cluster.store(PastUsage)
        time = past.time(cluster.now)

        @cache
        def usage_of(queue: str) -> dict[str, float]:
            message = past.by_queue.get(queue)
            return {} if message is None else _usage(message, self.weights_of(queue), time, cluster)

        @cache
        def users_of(queue: str) -> dict[str, float]:
            usage, found = usage_of(queue), cluster.queue(queue)
            shares = dict.fromkeys(usage, 1.0) | (user_shares(found) if found else {})
            return usage_over_share(usage, shares)

        queues = [queue for queue in cluster.queues.values() if queue.name != ROOT_QUEUE]
        tree = paths(
            {queue.name: queue.parent for queue in queues},
            {queue.name: sum(usage_of(queue.name).values()) for queue in queues},
            {queue.name: float(queue.weight) for queue in queues},
        )

        def job_order(job: Job) -> float:
            if self._targets and job.queue not in self._targets:
                return 0.0
            return users_of(job.queue).get(_user(job), 0.0)

        hooks.queue_order(lambda queue: tree.get(queue.name, ()))
        hooks.job_order(job_order)


def user_shares(queue: Queue) -> dict[str, float]:
    """Return the shares that a queue states for users, `ann=2,bob=0.5`; others have 1.

    What cannot be read, and a negative share, is left out.
    """
    found = {}
    for entry in queue.annotations.get(keys.USER_SHARES, "").split(","):
        user, _, stated = entry.partition("=")
        try:
            share = float(stated)
        except ValueError:
            continue
        if 0.0 <= share < float("inf"):
            found[user.strip()] = share
    return found


def _user(job: Job) -> str:
    """Return who created a job; its namespace where that is not known."""
    return user_of(job.annotations) or job.namespace


def _usage(
    message: QueueUsage, weights: Mapping[str, float], time: float, cluster: Cluster
) -> dict[str, float]:
    """Return user → weighted usage at a time that is not before the message's."""
    elapsed_s = time - message.at
    kept = decay(elapsed_s, message.half_life_s)
    usage = {
        user: kept * sum(weight * used.get(name, 0.0) for name, weight in weights.items())
        for user, used in message.users.items()
    }
    if elapsed_s > 0.0:
        seconds = held_seconds(elapsed_s, message.half_life_s)
        for job in cluster.jobs_of(message.queue):
            user = _user(job)
            usage[user] = usage.get(user, 0.0) + seconds * _held(job, weights, cluster)
    return usage


def _held(job: Job, weights: Mapping[str, float], cluster: Cluster) -> float:
    """Return the weighted amounts that a job's pods hold, in the units of `QueueUsage`."""
    held = 0.0
    for name, weight in weights.items():
        at = cluster.resource(name)
        if at is not None:
            held += weight * float(job.allocated[at]) / per_unit(name)
    return held


def _weights(arguments: Arguments) -> dict[str, float]:
    stated = arguments.get("fairshare.weights") or {}
    try:
        weights = {str(name): float(weight) for name, weight in stated.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BadArgument("fairshare.weights: a mapping of resources to numbers") from error
    if any(not 0.0 <= weight < float("inf") for weight in weights.values()):
        raise BadArgument("fairshare.weights: no weight is negative or infinite")
    return weights
