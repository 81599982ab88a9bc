"""Buckets of task-topology: as if each task were looked at by itself, in time that grows with them.

The buckets that are compared with are the plain ones: a list of tasks, and each of them a look at
each bucket (`tests.support.listed_buckets`).
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.policy import task_buckets
from services.scheduler.policy.task_buckets import ROLES_MAX, Buckets, rules_of
from shared.api import keys
from tests.support import listed_buckets
from tests.support.work import lines_run

ROLES = "abcd"
NODES = tuple(f"n{i}" for i in range(4))


class TaskClass(NamedTuple):
    request: Any


class Task(NamedTuple):
    uid: str
    name: str
    role: str
    node: str
    task_class: TaskClass


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
    said = stated(near, apart)
    rules, plain = (m.rules_of(said, frozenset(ROLES)) for m in (task_buckets, listed_buckets))
    assert rules == plain or tuple(rules) == tuple(plain)
    if rules is None:
        return
    ours, theirs = Buckets(tasks, rules), listed_buckets.Buckets(tasks, plain)
    assert {u: b.index for u, b in ours.of.items()} == {u: b.index for u, b in theirs.of.items()}
    assert [b.size for b in ours.all] == [b.size for b in theirs.all]


@given(TASKS, SETS, st.lists(st.integers(0, 6), min_size=4, max_size=4), st.data())
def test_scores_are_those_of_taking_tasks_away_one_by_one(drawn, apart, rooms, data) -> None:
    tasks = [a_task(n, role, 1000, node) for n, (role, _, node) in enumerate(drawn)]
    said = stated([list(ROLES)], apart)
    rules, plain = (m.rules_of(said, frozenset(ROLES)) for m in (task_buckets, listed_buckets))
    ours, theirs = Buckets(tasks, rules), listed_buckets.Buckets(tasks, plain)
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
