"""The slow way: places tasks one after another with plain arithmetic, as upstream does.

Written from the rules, node by node and in scalars, to hold the engine's vectorised way to.
"""

from fractions import Fraction

from services.scheduler.engine.session import Session
from services.scheduler.engine.shapes import TaskClass

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
        self.labels = session.replica.nodes.attributes._labels[column]
        self.soft_taints = len(_taints(session, column))

    def fits(self, shape: TaskClass, *, waiting: bool) -> bool:
        if self.used[PODS] + self.promised[PODS] >= self.have[PODS]:
            return False
        for dim in shape.dims:
            free = self.have[dim] - self.used[dim]
            if waiting:
                free += self.releasing[dim] - self.promised[dim]
            if shape.request[dim] > free and not shape.best_effort:
                return False
        return True

    def add(self, shape: TaskClass, *, waiting: bool) -> None:
        target = self.promised if waiting else self.used
        for dim in range(len(target)):
            target[dim] += int(shape.request[dim])
        self.scoring = [a + b for a, b in zip(self.scoring, shape.scoring_request, strict=True)]

    def least(self, shape: TaskClass) -> int:
        scores = []
        for dim in (CPU, MEMORY):
            want = self.scoring[dim] + shape.scoring_request[dim]
            scores.append(max(0, self.have[dim] - want) * 100 // self.have[dim])
        return sum(scores) // 2

    def balanced(self, shape: TaskClass) -> int:
        if not shape.request[CPU] and not shape.request[MEMORY]:
            return 0
        after = self._balance([self._asked(d) + int(shape.request[d]) for d in (CPU, MEMORY)])
        before = self._balance([self._asked(d) for d in (CPU, MEMORY)])
        return 50 + (50 + after - before) // 2

    def _asked(self, dim: int) -> int:
        return self.used[dim] + self.promised[dim]

    def _balance(self, want: list[int]) -> int:
        cpu, memory = (min(1.0, want[dim] / self.have[dim]) for dim in (CPU, MEMORY))
        return int((1 - abs(cpu - memory) / 2) * 100)

    def binpack(self, shape: TaskClass) -> Fraction:
        parts = []
        for dim in (CPU, MEMORY):
            if shape.request[dim]:
                then = self.used[dim] + int(shape.request[dim])
                if then > self.have[dim]:
                    return Fraction(0)
                parts.append(Fraction(then, self.have[dim]))
        return 100 * sum(parts) / len(parts) if parts else Fraction(0)


def _taints(session: Session, column: int) -> list[int]:
    counts = session.replica.nodes.attributes.taints(
        lambda taints: sum(t.effect == "PreferNoSchedule" for t in taints)
    )
    return [1] * int(counts[column])


def place_one_by_one(session: Session, shape: TaskClass, count: int, *, waiting: bool) -> list[int]:
    """Return the columns of `count` tasks, each placed before the next is looked at."""
    alive = [column for column in range(session.ledger.size) if session.ledger.alive[column]]
    slow = [SlowNode(session, column) for column in alive]
    chosen = []
    for _ in range(count):
        fitting = [node for node in slow if node.fits(shape, waiting=waiting)]
        if not fitting:
            break
        best = max(fitting, key=lambda n: (_score(n, fitting, shape), -n.column))
        best.add(shape, waiting=waiting)
        chosen.append(best.column)
    return chosen


def _score(node: SlowNode, candidates: list[SlowNode], shape: TaskClass) -> float:
    score = float(node.least(shape) + node.balanced(shape)) + float(node.binpack(shape))
    if len({n.soft_taints for n in candidates}) > 1:
        most = max(n.soft_taints for n in candidates)
        score += 3 * (100 - 100 * node.soft_taints // most)
    wishes = [_wished(n, shape) for n in candidates]
    if len(set(wishes)) > 1:
        score += 2 * (100 * _wished(node, shape) // max(wishes))
    return score


def _wished(node: SlowNode, shape: TaskClass) -> int:
    affinity = shape.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    return sum(
        term.weight
        for term in terms
        if all(node.labels.get(e.key) in e.values for e in term.preference.match_expressions)
    )
