"""Buckets of task-topology equal those of a plain loop, and take time in proportion to the tasks.

The plain loop compares each task with each bucket. Both read the rules with `rules_of`, which
`tests/unit/scheduler/test_moving_plugins.py` tests.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.plugins import IntArray
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.task_buckets import ROLES_MAX, Buckets, RoleRules, rules_of
from shared.api import keys
from tests.support.laws import lines_run

_MIB: Final = 1024 * 1024


class TaskClass(NamedTuple):
    request: Any


class Task(NamedTuple):
    uid: str
    name: str
    role: str
    node: str
    task_class: TaskClass


class ListedBucket:
    """Tasks that should share a node."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.roles: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        """Node → tasks of the bucket that are there."""
        self.waiting: list[IntArray] = []
        """Requests of those that have none."""
        self.score = 0.0

    @property
    def size(self) -> int:
        """Number of tasks with and without a node."""
        return len(self.waiting) + self.nodes.total()

    def add(self, task: Task) -> None:
        """Take a task in."""
        self.roles[task.role] += 1
        if task.node:
            self.nodes[task.node] += 1
            return
        self.waiting.append(task.task_class.request)
        self.score += _weight(task.task_class.request)

    def settle(self, node: str, request: IntArray, count: int) -> None:
        """Move waiting tasks of a request to a node, or back with a negative count."""
        self.nodes[node] += count
        if count < 0:
            self.waiting += [request] * -count
            return
        for _ in range(count):
            at = next((n for n, r in enumerate(self.waiting) if (r == request).all()), None)
            if at is not None:
                del self.waiting[at]


def _weight(request: IntArray) -> float:
    """Return one number for a request: a thousandth of a CPU or GPU counts as a MiB."""
    others = float(request.sum() - request[CPU_DIM] - request[MEMORY_DIM])
    return float(request[CPU_DIM]) + float(request[MEMORY_DIM]) / _MIB + others


class ListedBuckets:
    """The buckets of one job."""

    def __init__(self, tasks: Sequence[Task], rules: RoleRules) -> None:
        self.rules = rules
        self.all: list[ListedBucket] = []
        self.of: dict[str, ListedBucket] = {}
        """Task uid → bucket; tasks of roles without rules have none."""
        self.placed: dict[str, Counter[str]] = {}
        """Node → role → tasks that were put there in this session."""
        by_node: dict[str, ListedBucket] = {}
        for task in sorted((t for t in tasks if t.role in rules.order), key=self._first):
            bucket = by_node.get(task.node) if task.node else self._fitting(task)
            if bucket is None:
                bucket = ListedBucket(len(self.all))
                self.all.append(bucket)
                if task.node:
                    by_node[task.node] = bucket
            bucket.add(task)
            self.of[task.uid] = bucket
        self.largest = max((bucket.size for bucket in self.all), default=0)

    def _first(self, task: Task) -> tuple[bool, str, tuple[int, ...], str]:
        order = tuple(-place for place in self.rules.order[task.role])
        return not task.node, task.node, () if task.node else order, task.name

    def _fitting(self, task: Task) -> ListedBucket | None:
        """Return the bucket that attracts a task most, of equal ones the least loaded."""
        pulls = [(self.rules.pull(task.role, b.roles), b) for b in self.all]
        best = min(pulls, key=lambda pair: (-pair[0], pair[1].score, pair[1].index), default=None)
        return best[1] if best is not None and best[0] >= 0 else None

    def scores(
        self,
        bucket: ListedBucket,
        role: str,
        request: IntArray,
        room: IntArray,
        names: Sequence[str],
    ) -> IntArray:
        """Return how many tasks of a bucket each node would hold; `room` is resource by node."""
        score = np.full(len(names), len(bucket.waiting), dtype=np.int64)
        for column, name in enumerate(names):
            repelled = self.rules.pull(role, self.placed.get(name, {}), only_apart=True)
            score[column] += bucket.nodes.get(name, 0) + min(0, repelled)
        left = total_of(bucket.waiting, request)
        others = list(bucket.waiting)
        mine = next((n for n, r in enumerate(others) if (r == request).all()), None)
        if mine is not None:
            del others[mine]
        short = (left[:, None] > room).any(axis=0)
        for other in others:
            score[short] -= 1
            left = left - other
            short &= (left[:, None] > room).any(axis=0)
        score[(request[:, None] > room).any(axis=0)] = 0
        return score


ROLES = "abcd"
NODES = tuple(f"n{i}" for i in range(4))


def a_task(uid: int, role: str, cpu: int, node: str = "") -> Any:
    request = np.array([cpu, cpu * 1024 * 1024, 1], dtype=np.int64)
    return Task(str(uid), str(uid), role, node, TaskClass(request))


TASKS = st.lists(
    st.tuples(
        st.sampled_from(ROLES), st.sampled_from((1000, 2000)), st.sampled_from(("", "", *NODES))
    ),
    min_size=1,
    max_size=14,
)
SETS = st.lists(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3, unique=True), max_size=3)


def stated(near: list[list[str]], apart: list[list[str]]) -> dict[str, str]:
    found = {
        keys.TASK_TOPOLOGY_AFFINITY: ";".join(map(",".join, near)),
        keys.TASK_TOPOLOGY_ANTI_AFFINITY: ";".join(map(",".join, apart)),
    }
    return {key: text for key, text in found.items() if text}


@given(TASKS, SETS, SETS)
def test_buckets_are_those_of_looking_at_each_bucket_for_each_task(drawn, near, apart) -> None:
    tasks = [a_task(n, role, cpu, node) for n, (role, cpu, node) in enumerate(drawn)]
    rules = rules_of(stated(near, apart), frozenset(ROLES))
    if rules is None:
        return
    ours, theirs = Buckets(tasks, rules), ListedBuckets(tasks, rules)
    assert {u: b.index for u, b in ours.of.items()} == {u: b.index for u, b in theirs.of.items()}
    assert [b.size for b in ours.all] == [b.size for b in theirs.all]


@given(TASKS, SETS, st.lists(st.integers(0, 6), min_size=4, max_size=4), st.data())
def test_scores_are_those_of_taking_tasks_away_one_by_one(drawn, apart, rooms, data) -> None:
    tasks = [a_task(n, role, 1000, node) for n, (role, _, node) in enumerate(drawn)]
    rules = rules_of(stated([list(ROLES)], apart), frozenset(ROLES))
    ours, theirs = Buckets(tasks, rules), ListedBuckets(tasks, rules)
    waiting = [task for task in tasks if not task.node]
    if not waiting:
        return
    task = data.draw(st.sampled_from(waiting))
    room = np.array([[r * 1000 for r in rooms], [r << 30 for r in rooms], [9] * 4], dtype=np.int64)
    placed = data.draw(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(ROLES))))
    for buckets in (ours, theirs):
        for node, role in placed:
            buckets.placed.setdefault(node, Counter())[role] += 1
    request = task.task_class.request
    columns = {name: n for n, name in enumerate(NODES)}
    found = ours.scores(ours.of[task.uid], task.role, request, room, columns.__getitem__)
    assert (
        found.tolist()
        == theirs.scores(theirs.of[task.uid], task.role, request, room, NODES).tolist()
    )


@pytest.mark.parametrize(
    ("near", "apart"), [([], [["a"]]), ([["a"]], []), ([["a", "b"]], [["a"], ["b"]])]
)
def test_the_work_grows_with_the_tasks_and_not_with_their_square(near, apart) -> None:
    rules = rules_of(stated(near, apart), frozenset("ab"))

    def work(size: int) -> int:
        tasks = [a_task(n, "ab"[n % 2], 1000) for n in range(size)]
        return lines_run(lambda: Buckets(tasks, rules))

    assert work(800) < 2.5 * work(400)


def test_rules_on_more_roles_than_are_looked_at_are_no_rules() -> None:
    roles = [f"r{n}" for n in range(ROLES_MAX + 1)]
    assert rules_of(stated([roles], []), frozenset(roles)) is None
    assert rules_of(stated([roles[1:]], []), frozenset(roles)) is not None
