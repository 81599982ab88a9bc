"""Messages about waiting jobs: missing amounts and the place in line, behind a gate's message.

Called by `statuses` at the end of a cycle. The figures change with every pod that comes or goes, so
a status is not written again for them alone: `same` leaves out what is free at the moment and the
time at which something is expected, and reads places in steps. A shown figure is as old as the
condition that shows it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from pumice.plugins import Condition
from services.scheduler.engine.plan import NAME_LETTERS, JobExplanation, Shortage, shortened
from services.scheduler.engine.resources.dimensions import readable
from services.scheduler.engine.session.failures import OverQuota
from services.scheduler.engine.session.session import Session
from shared.model.status import TaskStatus

NEVER: Final = "it never fits as it is"
_NODES: Final = "predicate"
"""The gate at which a shortage is one of nodes; at all others a job's minimum is too much."""
_OF_ALL: Final = frozenset({"enqueue", "queue", "quota"})
"""Gates that compare with a queue or the whole cluster; a pod that fits no node may pass them."""
_ONE_BY_ONE: Final = {
    "ReplicaSet": "an update makes them one by one, with maxSurge 100% all at once",
    "StatefulSet": "they are made one by one, with podManagementPolicy Parallel all at once",
}
"""Kind of an owner → how it creates pods, and the setting that makes it create all at once."""
_OF_A_NAMESPACE: Final = "resource quota"
_FREE: Final = re.compile(r"\S+ free\b|(?<=queues may admit )\S+(?= more)")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")
_PLACE: Final = re.compile(r"place (\d+) in queue")
_WORDED: Final = 10
"""Most shortages that a message gives in figures; each costs a search through all resources."""
_STEPS: Final = (1, 5, 20, 100, 1000)


class Wording:
    """Builds the messages about the jobs of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._largest: dict[str, int] = {}
        self._never = "" if session.may_grow else f": {NEVER}"

    def details(self, why: JobExplanation, place: int) -> str:
        """Return amounts, position and expected start in brackets behind a space; "" if unknown."""
        line = [f"place {place} in queue {why.queue}"] if place else []
        lacks = self._lacks(why)
        if not any(NEVER in words for words in lacks):
            lacks = [*lacks, *self._too_large(why), *self._one_by_one(why)]
        return _bracketed([*lacks, *line, *self._outlook(why.job)])

    def lacks(self, shortages: Sequence[Shortage]) -> str:
        """Return the resources that nodes lack for one task, in brackets behind a space."""
        return _bracketed(_some(self._of_nodes, shortages))

    def beyond_share(self, why: OverQuota) -> str:
        """Return the resources that a queue lacks for one task, in brackets behind a space."""
        return _bracketed(_some(lambda shortage: self._of_all(shortage, why.queue), why.shortages))

    def _too_large(self, why: JobExplanation) -> list[str]:
        """Return that even empty nodes are too small for a pod which an earlier gate stopped."""
        job = self._session.cluster_state.jobs.get(why.job)
        if why.gate not in _OF_ALL or job is None:
            return []
        pending = job.by_status[TaskStatus.PENDING].values()
        classes = {task.task_class.id: task.task_class for task in pending}
        largest = self._session.ledger.largest
        for _, task_class in sorted(classes.items()):
            for dim in task_class.dims:
                requested = int(task_class.request[dim])
                if requested > largest[dim]:
                    return [self._of_nodes(Shortage.of(self._session.resources[dim], requested, 0))]
        return []

    def _one_by_one(self, why: JobExplanation) -> list[str]:
        """Return advice for a gang whose owner creates each pod only after the one before runs.

        A StatefulSet and the update of a Deployment do so: such a gang never starts.
        """
        job = self._session.cluster_state.jobs.get(why.job)
        owner = job.controller if job is not None else None
        if why.gate != "gang" or job is None or owner is None or owner.kind not in _ONE_BY_ONE:
            return []
        if job.valid_count >= job.min_available:
            return []
        there = f"{job.valid_count} of {job.min_available} pods of {owner.kind} {owner.name}"
        return [f"{there} are there; {_ONE_BY_ONE[owner.kind]}"]

    def _outlook(self, key: str) -> list[str]:
        """Return the expected start of a job, by the plugins."""
        job = self._session.cluster_state.jobs.get(key)
        return [] if job is None else self._session.hooks.job_outlook(job)

    def _lacks(self, why: JobExplanation) -> list[str]:
        if why.gate == _NODES:
            return _some(self._of_nodes, why.shortages)
        queue = "" if why.message.startswith(_OF_A_NAMESPACE) else why.queue
        return _some(lambda shortage: self._of_all(shortage, queue, why.budget), why.shortages)

    def _of_nodes(self, short: Shortage) -> str:
        largest = self._largest_node(short.resource)
        if not largest:
            return f"no node has {short.resource}{self._never.replace(':', ',')}"
        needs = f"needs {readable(short.resource, short.requested)} {short.resource}"
        if short.requested > largest:
            most = readable(short.resource, largest)
            return f"{needs} on one node, the largest has {most}{self._never}"
        return f"{needs}, {readable(short.resource, short.largest_free)} free on one node"

    def _of_all(self, short: Shortage, queue: str, budget: str = "") -> str:
        """Return the shortages of a job's minimum in the cluster, a queue or a namespace.

        `budget` says what the amount that is left is a part of, if that is not what is free.
        """
        name = short.resource
        needs = f"needs {readable(name, short.requested)} {name}"
        if queue and (limit := self._limit(name, queue)) is not None:
            holder, most = limit
            if not most and holder == "the cluster":
                return f"no node has {name}, {NEVER}"
            if short.requested > most:
                return f"{needs}, {holder} has {readable(name, most)}: {NEVER}"
        left = readable(name, short.largest_free)
        return (
            f"{needs}; queues may admit {left} more ({budget})"
            if budget
            else f"{needs}, {left} free"
        )

    def _limit(self, name: str, queue: str) -> tuple[str, int] | None:
        """Return the queue or the cluster, and its maximum of a resource."""
        session = self._session
        if name not in session.resources:
            return None
        total = int(session.total[session.resources.index(name)])
        known = session.cluster_state.jobs.queues.get(queue)
        allowed = known.capability.get(name) if known is not None else None
        if allowed is not None and allowed < total:
            return f"queue {queue}", allowed
        return "the cluster", total

    def _largest_node(self, name: str) -> int:
        known = self._largest.get(name)
        if known is None:
            session = self._session
            ledger = session.ledger
            alive = ledger.alive[: ledger.size]
            row = ledger.allocatable[session.resources.index(name), : ledger.size]
            known = self._largest[name] = int(row[alive].max(initial=0))
        return known


def _some(reported: Callable[[Shortage], str], shortages: Sequence[Shortage]) -> list[str]:
    """Return the first shortages as text: a pod may request thousands of resources."""
    if not shortages:
        return []
    words = [reported(shortage) for shortage in shortages[:_WORDED]]
    left = len(shortages) - len(words)
    return [*words, f"and {left} more"] if left else words


def _bracketed(words: Sequence[str]) -> str:
    return f" ({'; '.join(words)})" if words else ""


def no_queue(name: str) -> str:
    """Return the message about a queue that does not exist."""
    return f"spec.queue: there is no queue {shortened(name, NAME_LETTERS)!r}"


def same(one: Sequence[Condition], other: Sequence[Condition]) -> bool:
    """Tell whether conditions are equal except for figures that change all the time."""
    return len(one) == len(other) and all(map(_alike, one, other))


def _alike(one: Condition, other: Condition) -> bool:
    return one == other or (
        one[:-1] == other[:-1] and settled(one.message) == settled(other.message)
    )


def settled(message: str) -> str:
    """Return a message without the figures that change all the time."""
    message = _FREE.sub("free", message)
    return _PLACE.sub(_step, _MOMENT.sub("then", message))


def _step(place: re.Match[str]) -> str:
    number = int(place[1])
    return f"place {next((step for step in _STEPS if number <= step), 'far')} in queue"
