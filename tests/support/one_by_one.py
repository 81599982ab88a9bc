"""The slow way: places tasks one after another with plain arithmetic, as upstream does.

Written from the rules, node by node and in scalars, to hold the engine's vectorised way to.
"""

from fractions import Fraction

from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import TaskClass

CPU, MEMORY, PODS = 0, 1, 2


class SlowNode:
    """One node in plain numbers."""

    def __init__(self, session: Session, column: int) -> None:
        ledger = session.ledger
        self.column = column
        self.have = [int(ledger.allocatable[dim, column]) for dim in range(len(session.resources))]
        self.used = [int(ledger.used[dim, column]) for dim in range(len(session.resources))]
        self.releasing = [int(ledger.releasing[d, column]) for d in range(len(session.resources))]
        self.promised = [0] * len(session.resources)
        self.scoring = [int(ledger.scoring[0, column]), int(ledger.scoring[1, column])]
        self.labels = session.cluster_state.nodes.attributes._labels[column]
        self.soft_taints = len(_taints(session, column))

    def fits(self, task_class: TaskClass, *, waiting: bool) -> bool:
        if self.used[PODS] + self.promised[PODS] >= self.have[PODS]:
            return False
        for dim in task_class.dims:
            free = self.have[dim] - self.used[dim]
            if waiting:
                free += self.releasing[dim] - self.promised[dim]
            if task_class.request[dim] > free and not task_class.best_effort:
                return False
        return True

    def add(self, task_class: TaskClass, *, waiting: bool) -> None:
        target = self.promised if waiting else self.used
        for dim in range(len(target)):
            target[dim] += int(task_class.request[dim])
        self.scoring = [
            a + b for a, b in zip(self.scoring, task_class.scoring_request, strict=True)
        ]

    def least(self, task_class: TaskClass) -> int:
        scores = []
        for dim in (CPU, MEMORY):
            want = self.scoring[dim] + task_class.scoring_request[dim]
            scores.append(max(0, self.have[dim] - want) * 100 // self.have[dim])
        return sum(scores) // 2

    def balanced(self, task_class: TaskClass) -> int:
        if not task_class.request[CPU] and not task_class.request[MEMORY]:
            return 0
        after = self._balance([self._asked(d) + int(task_class.request[d]) for d in (CPU, MEMORY)])
        before = self._balance([self._asked(d) for d in (CPU, MEMORY)])
        return 50 + (50 + after - before) // 2

    def _asked(self, dim: int) -> int:
        return self.used[dim] + self.promised[dim]

    def _balance(self, want: list[int]) -> int:
        cpu, memory = (min(1.0, want[dim] / self.have[dim]) for dim in (CPU, MEMORY))
        return int((1 - abs(cpu - memory) / 2) * 100)

    def binpack(self, task_class: TaskClass) -> Fraction:
        parts = []
        for dim in (CPU, MEMORY):
            if task_class.request[dim]:
                then = self.used[dim] + int(task_class.request[dim])
                if then > self.have[dim]:
                    return Fraction(0)
                parts.append(Fraction(then, self.have[dim]))
        return 100 * sum(parts, Fraction(0)) / len(parts) if parts else Fraction(0)


def _taints(session: Session, column: int) -> list[int]:
    counts = session.cluster_state.nodes.attributes.taints(
        lambda taints: sum(t.effect == "PreferNoSchedule" for t in taints)
    )
    return [1] * int(counts[column])


def place_one_by_one(
    session: Session, task_class: TaskClass, count: int, *, waiting: bool
) -> list[int]:
    """Return the columns of `count` tasks, each placed before the next is looked at."""
    alive = [column for column in range(session.ledger.size) if session.ledger.alive[column]]
    slow = [SlowNode(session, column) for column in alive]
    chosen = []
    for _ in range(count):
        fitting = [node for node in slow if node.fits(task_class, waiting=waiting)]
        if not fitting:
            break
        best = max(fitting, key=lambda n: (_score(n, fitting, task_class), -n.column))
        best.add(task_class, waiting=waiting)
        chosen.append(best.column)
    return chosen


def _score(node: SlowNode, candidates: list[SlowNode], task_class: TaskClass) -> float:
    score = float(node.least(task_class) + node.balanced(task_class)) + float(
        node.binpack(task_class)
    )
    if len({n.soft_taints for n in candidates}) > 1:
        most = max(n.soft_taints for n in candidates)
        score += 3 * (100 - 100 * node.soft_taints // most)
    wishes = [_wished(n, task_class) for n in candidates]
    if len(set(wishes)) > 1:
        score += 2 * (100 * _wished(node, task_class) // max(wishes))
    return score


def _wished(node: SlowNode, task_class: TaskClass) -> int:
    affinity = task_class.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    return sum(
        term.weight
        for term in terms
        if all(node.labels.get(e.key) in e.values for e in term.preference.match_expressions)
    )
