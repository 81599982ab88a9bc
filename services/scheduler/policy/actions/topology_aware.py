"""preempt with `enableTopologyAwarePreemption` (A06): victims and their node, after kube-scheduler.

On each node looked at, victims go until the task fits; then, most important first, each comes back
if the task fits all the same. Of the nodes with victims the one is taken whose loss is smallest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from services.scheduler.engine.jobs.records import Queue
from services.scheduler.engine.session.evictions import Evicted
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.evictions import (
    fits_waiting,
    reprieve,
    residents,
    room_after,
)
from services.scheduler.policy.arguments import boolean, integer

_LIFT = 2**31
"""Added to priorities before they are summed up, so that fewer negative ones are not more."""


class Options(NamedTuple):
    """Arguments of the action (K07)."""

    spare: bool
    """Pumice's own `spareVictims` (default false): victims that turn out not to be needed stay, and
    no pod is evicted for less than a whole gang."""
    enabled: bool
    minimum_percent: int
    minimum: int
    maximum: int

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the options. `topologyAwarePreemptWorkerNum` has no effect: one thread."""
        return cls(
            spare=boolean(arguments, "spareVictims", default=False),
            enabled=boolean(arguments, "enableTopologyAwarePreemption", default=False),
            minimum_percent=integer(arguments, "minCandidateNodesPercentage", 10),
            minimum=integer(arguments, "minCandidateNodesAbsolute", 1),
            maximum=integer(arguments, "maxCandidateNodesAbsolute", 100),
        )

    def number(self, nodes: int) -> int:
        """Return how many nodes with victims are compared, out of so many reachable ones."""
        wanted = max(nodes * self.minimum_percent // 100, self.minimum)
        return min(wanted, self.maximum, nodes)


class Choice(NamedTuple):
    """A node and the pods that have to leave it, most important first."""

    column: int
    victims: Sequence[Task]

    def loss(self) -> tuple[int, int, int, float]:
        """Return what is compared: the smaller the better.

        The highest priority, the sum of priorities, the number of victims; last the longest
        running of the most important ones should have begun as late as can be.
        """
        priorities = [task.pod_priority for task in self.victims]
        highest = max(priorities)
        begun = min(task.started for task in self.victims if task.pod_priority == highest)
        first = priorities[0]
        return first, sum(priorities) + _LIFT * len(priorities), len(priorities), -begun


class Search(NamedTuple):
    """A task that looks for a place in its queue, and the pods that it may ask to leave."""

    session: Session
    orders: Orders
    queue: Queue
    task: Task
    may_go: Callable[[Task], bool]

    def best(self, columns: Sequence[int], options: Options) -> Choice | None:
        """Return the best of the nodes that can be cleared; changes nothing."""
        choices: list[Choice] = []
        limit = options.number(len(columns))
        for column in sorted(columns):
            if len(choices) == limit:
                break
            victims = self._on_node(column)
            if victims:
                choices.append(Choice(column, victims))
        return min(choices, key=lambda choice: (*choice.loss(), choice.column), default=None)

    def _on_node(self, column: int) -> list[Task]:
        """Return the fewest victims on a node, none when it cannot be cleared.

        ⚠ At least one has to go: a node that is free as it is is not preemption's business.
        """
        session, task = self.session, self.task
        candidates = residents(session, column, self.may_go)
        proposed = session.hooks.preemptable(task, candidates)
        if not room_after(session, task.task_class, column, proposed):
            return []
        with session.trial():  # never kept: this only finds out
            evicted: list[Evicted] = []
            heap = self.orders.victims(proposed, task)
            while heap:
                evicted.append(session.evict(heap.pop(), reason="trial", taker=task))
                if self._fits(column):
                    break
            if not evicted or not session.candidates(task.task_class).admits(column):
                return []
            return [e.task for e in reprieve(session, evicted, lambda: self._fits(column))]

    def _fits(self, column: int) -> bool:
        return fits_waiting(self.session, self.queue, self.task, column)
