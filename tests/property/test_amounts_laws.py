"""Laws of amounts over the whole range that objects may state: exact, bounded, never wrapped.

Everything is compared with Python's integers and fractions, which know no bounds.
"""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.plugins import NODE_MAX, POD_MAX
from pumice.testing import Cluster
from services.scheduler.engine.resources.amounts import (
    AMOUNT_MAX,
    USED_MAX,
    Sums,
)
from services.scheduler.policy.reservations import sharing as measure
from shared.api import kinds
from shared.model.quantity import milli, units
from shared.model.status import HOLDS_RESOURCES

INT64 = 2**63 - 1
SUFFIXES = {
    "": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
EDGES = [0, 1, 7, 2**31, 2**43, 2**50 - 1, 2**50, 2**50 + 1, 2**60, 2**62, INT64, INT64 + 1, 2**70]
NUMBERS = st.sampled_from(EDGES) | st.integers(0, 2**70)
SMALL = st.integers(0, 8)
RESOURCES = ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"]


@st.composite
def quantities(draw) -> tuple[str, Fraction]:
    """Draw a text and what it says."""
    number, suffix = draw(NUMBERS), draw(st.sampled_from(sorted(SUFFIXES)))
    if draw(st.booleans()):
        power = draw(st.integers(-30, 200))
        return f"{number}e{power}", number * Fraction(10) ** power
    if draw(st.booleans()):
        return f"-{number}{suffix}", -number * Fraction(SUFFIXES[suffix])
    return f"{number}{suffix}", number * Fraction(SUFFIXES[suffix])


@settings(max_examples=200, deadline=None)
@given(quantities())
def test_a_quantity_is_rounded_away_from_zero_and_ends_at_the_largest_of_int64(drawn) -> None:
    text, exact = drawn
    for read, scale in ((units, 1), (milli, 1000)):
        away = math.ceil(abs(exact) * scale)
        assert read(text) == (1 if exact >= 0 else -1) * min(away, INT64), text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**51), st.integers(1, 2**20)), max_size=12), st.data())
def test_sums_are_those_of_python_up_to_their_bound_whatever_comes_and_goes(members, data) -> None:
    sums, held = Sums((1, 2)), []
    for amount, count in members:
        weight = amount * count
        sums.weigh(weight)
        sums.add(0, count, np.array([amount, 1]))
        held.append((amount, count))
        if held and data.draw(st.booleans()):
            less, times = held.pop(data.draw(st.integers(0, len(held) - 1)))
            sums.add(0, -times, np.array([less, 1]))
            sums.weigh(-less * times)
        exact = [sum(a * n for a, n in held), sum(n for _, n in held)]
        assert sums.value[0].tolist() == [min(amount, AMOUNT_MAX) for amount in exact]


RESOURCE_LISTS = st.dictionaries(
    st.sampled_from(RESOURCES),
    st.one_of(quantities().map(lambda drawn: drawn[0]), SMALL.map(str)),
    max_size=3,
)
CONF = (
    'actions: "enqueue, allocate, preempt, reclaim, backfill"\ntiers:\n- plugins:\n'
    "  - {{name: priority}}\n  - {{name: gang}}\n  - {{name: conformance}}\n  - {{name: drf}}\n"
    "- plugins:\n  - {{name: overcommit}}\n  - {{name: predicates}}\n  - {{name: {sharing}}}\n"
    "  - {{name: nodeorder}}\n  - {{name: binpack}}\n"
)


@st.composite
def worlds(draw) -> Cluster:
    world = Cluster(CONF.format(sharing=draw(st.sampled_from(["proportion", "capacity"]))))
    for number in range(draw(st.integers(1, 3))):
        world.put(
            kinds.NODE,
            {
                "metadata": {"name": f"n{number}", "uid": f"n{number}"},
                "status": {"allocatable": {"pods": "110", "cpu": "4"} | draw(RESOURCE_LISTS)},
            },
        )
    for name in ("default", "other"):
        settings_of_queue = {
            field: draw(RESOURCE_LISTS) for field in ("capability", "deserved")
        } | {"guarantee": {"resource": draw(RESOURCE_LISTS)}}
        world.queue(name, **settings_of_queue)
    for number in range(draw(st.integers(1, 5))):
        name = f"g{number}"
        phase = draw(st.sampled_from(["Pending", "Inqueue", "Running"]))
        queue = draw(st.sampled_from(["default", "other"]))
        world.group(name, queue=queue, phase=phase, minResources=draw(RESOURCE_LISTS), min_member=1)
        for task in range(draw(st.integers(0, 4))):
            world.pod(
                f"{name}-{task}",
                name,
                node=draw(st.sampled_from(["", "", "n0", "n1"])),
                containers=[
                    {"name": str(at), "resources": {"requests": draw(RESOURCE_LISTS)}}
                    for at in range(draw(st.integers(1, 3)))
                ],
                overhead=draw(RESOURCE_LISTS),
                deleting=draw(st.sampled_from([False, False, True])),
            )
    return world


def sums_of(world: Cluster, tasks) -> list[int]:
    return summed(world, [task.task_class.request for task in tasks])


def stated_sums_of(world: Cluster, tasks) -> list[int]:
    """Sum what pods state, also where less of it counts in their queue."""
    return summed(world, [(task.task_class.unbounded or task.task_class).request for task in tasks])


def summed(world: Cluster, requests) -> list[int]:
    dims = range(len(world.cluster_state.dimensions.names))
    return [sum(int(request[dim]) for request in requests) for dim in dims]


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_no_amount_wraps_a_sum_or_puts_more_on_a_node_than_it_has(world) -> None:
    cluster_state = world.cluster_state
    dims = len(cluster_state.dimensions.names)
    check_sums(world)
    plan = world.step()
    world.step()
    check_sums(world)
    assert cluster_state.audit() == []
    for node in ("n0", "n1", "n2"):
        column = cluster_state.nodes.column(node)
        ours = [b for gang in plan.binds for b in gang.binds if b.node == node]
        if column < 0 or not ours:
            continue
        used = sums_of(world, cluster_state.nodes.tasks_on(node))
        asked = {d for b in ours for d in cluster_state.task(b.uid).task_class.dims} - {2}
        if all(cluster_state.task(b.uid).task_class.best_effort for b in ours):
            continue  # asks for nothing, and goes where there is nothing left (A04)
        for dim in asked:
            assert used[dim] <= int(cluster_state.nodes.ledger.allocatable[dim, column]), dim
        for bind in ours:
            assert not cluster_state.task(bind.uid).task_class.beyond
    assert int(cluster_state.nodes.ledger.allocatable.max()) <= NODE_MAX
    assert dims <= len(cluster_state.nodes.ledger.used)


def check_sums(world: Cluster) -> None:
    """Hold every stored sum against one of Python's integers."""
    cluster_state = world.cluster_state
    for job in cluster_state.jobs.all():
        holding = [t for t in job.tasks.values() if HOLDS_RESOURCES[t.status]]
        exact = sums_of(world, holding)
        largest = cluster_state.nodes.ledger.largest
        for task in holding:
            beyond = task.task_class.request > largest
            assert not largest.any() or not task.node or not beyond[[0, 1, 3]].any(), task.key
        assert job.allocated[: len(exact)].tolist() == [min(a, AMOUNT_MAX) for a in exact]
        for task in job.tasks.values():
            assert int(task.task_class.request.min()) >= 0
            assert int(task.task_class.request.max()) <= POD_MAX
    sums = cluster_state.jobs.rollup(measure).sums()
    for queue, amounts in sums.items():
        jobs = [j for j in cluster_state.jobs.all() if j.queue == queue and j.has_group]
        for row, of in enumerate(zip(*(measure(j) for j in jobs), strict=True)):
            exact = [min(sum(int(a[d]) for a in of), AMOUNT_MAX) for d in range(amounts.shape[1])]
            assert amounts[row].tolist() == exact
    for node in ("n0", "n1", "n2"):
        column = cluster_state.nodes.column(node)
        exact = stated_sums_of(world, cluster_state.nodes.tasks_on(node))
        if column >= 0:
            shown = cluster_state.nodes.ledger.used[: len(exact), column].tolist()
            assert shown == [min(a, USED_MAX) for a in exact]
