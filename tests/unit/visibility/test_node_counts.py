"""How many nodes of which shapes a gang needs: the search, and the query."""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.node_counts import Counts, fewest
from shared.api.visibility import WhatIfStatus
from tests.unit.visibility.mirrors import World, ask, job_of_tasks, running

CONF = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def never() -> bool:
    return False


@given(st.integers(0, 20), st.integers(1, 20))
def test_one_shape_gets_its_minimum(needed: int, most: int) -> None:
    found = fewest(lambda counts: counts[0] >= needed, [most], is_over=never)
    assert found == ((needed,) if needed <= most else None)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_no_shape_can_do_with_one_node_less(
    shapes: list[tuple[int, int]], need: tuple[int, int]
) -> None:
    """Each shape has some CPUs and GPUs; the nodes together have to have enough of both."""

    def fits(counts: Counts) -> bool:
        return all(
            sum(n * shape[at] for n, shape in zip(counts, shapes, strict=True)) >= need[at]
            for at in range(2)
        )

    most = [6] * len(shapes)
    found = fewest(fits, most, is_over=never)
    possible = [counts for counts in product(range(7), repeat=len(shapes)) if fits(counts)]
    assert (found is None) == (not possible)
    if found is None:
        return
    assert fits(found)
    for at, count in enumerate(found):
        assert not count or not fits((*found[:at], count - 1, *found[at + 1 :]))
    alone = [sum(c) for c in possible if sum(map(bool, c)) <= 1]
    assert sum(found) <= min(alone, default=math.inf)


def test_the_best_so_far_counts_when_the_time_is_over() -> None:
    found = fewest(lambda counts: sum(counts) >= 3, [4, 4], is_over=lambda: True)
    assert found is not None
    assert sum(found) == 3


# --- the query -------------------------------------------------------------------------------


def shape(name: str, cpu: str, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    meta = {"name": name, "labels": labels}
    return {"metadata": meta, "status": {"allocatable": amounts}}


def needed(status: WhatIfStatus) -> dict[str, int]:
    return {each.shape: each.count for each in status.needed_nodes}


def test_a_job_needs_as_many_nodes_as_its_pods_fill_beyond_the_free_room() -> None:
    world = World().queue("default").node("n1", cpu="2")
    status = ask(world, CONF, job=job_of_tasks("train", worker=(7, "2")), shapes=[shape("s", "4")])
    assert needed(status) == {"s": 3}
    assert status.starts_now
    assert sum(placed.pods for placed in status.placements) == 7


def test_a_job_that_fits_needs_none() -> None:
    world = World().queue("default").node("n1", cpu="8")
    status = ask(world, CONF, job=job_of_tasks("train", worker=(4, "2")), shapes=[shape("s", "4")])
    assert (status.starts_now, needed(status)) == (True, {})


def test_nodes_come_in_the_place_of_evictions() -> None:
    world = World().queue("default").node("n1", cpu="4")
    for name, value in (("high", 1000), ("low", 1)):
        world.priority(name, value)
    running(world, "low", cpu="4", node="n1", priority="low", preemptable=True)
    job = job_of_tasks("train", priority="high", worker=(1, "2"))
    status = ask(world, CONF, job=job, shapes=[shape("s", "4")])
    assert (needed(status), status.evictions) == ({"s": 1}, ())


def test_the_smaller_sum_of_two_shapes_wins() -> None:
    world = World().queue("default")
    shapes = [shape("small", "2"), shape("large", "8")]
    status = ask(world, CONF, job=job_of_tasks("train", worker=(8, "2")), shapes=shapes)
    assert needed(status) == {"large": 2}


def test_a_job_that_no_number_of_nodes_starts_says_what_stops_it() -> None:
    world = World().queue("default")
    status = ask(world, CONF, job=job_of_tasks("train", worker=(2, "9")), shapes=[shape("s", "8")])
    assert (status.starts_now, needed(status)) == (False, {})
    assert "needs 18 cpu" in status.message


@pytest.mark.parametrize("job", [{}, {"job": job_of_tasks("train", worker=(1, "1"))}])
def test_shapes_without_a_job_or_too_many_are_refused(job: dict[str, Any]) -> None:
    with pytest.raises(BadQuery, match="shapes"):
        ask(World().queue("default"), CONF, shapes=[shape("s", "1")] * (5 if job else 1), **job)
