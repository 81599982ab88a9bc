"""Parked jobs change no decision: a worker that parks decides what one decides that never does.

Both live through the same history; each sees the statuses that it wanted itself. What the first one
says of a waiting job it also says in the words of the second.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure
from tests.support.hits import count_hits, needs_hits
from tests.support.two_workers import Histories, check

_TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}%s]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, \
{name: %s}, {name: nodeorder}, {name: binpack}]
"""
_RESERVING = (
    ", {name: reservation, arguments: {reservation.order: %s, reservation.defaultDuration: 9s}}"
)
CONFIGURATIONS = [
    configure(DEFAULT_TEXT),
    configure('actions: "allocate, backfill"' + _TIERS % ("", "proportion")),
    configure('actions: "enqueue, allocate, backfill"' + _TIERS % ("", "capacity")),
    configure(
        'actions: "enqueue, allocate, preempt, reclaim, backfill"' + _TIERS % ("", "capacity")
    ),
    *(
        configure(
            'actions: "enqueue, allocate, backfill"' + _TIERS % (_RESERVING % order, "capacity")
        )
        for order in ("backfill", "strict")
    ),
]
queues = st.sampled_from(["a", "b"])
sizes = st.sampled_from(["1", "1", "2", "3"])
steps = st.one_of(
    st.tuples(
        st.just("submit"),
        queues,
        st.lists(sizes, min_size=1, max_size=3),
        st.sampled_from([0, 0, 0, 9]),
    ),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("rest"), st.sampled_from([1.0, 40.0])),
    st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["0", "2", "4"])),
    st.tuples(st.just("limit"), queues, st.sampled_from(["2", "4", "8"])),
)


@needs_hits(at_least=40)
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CONFIGURATIONS), st.lists(steps, min_size=10, max_size=50))
def test_a_worker_that_parks_jobs_decides_as_one_that_visits_all_of_them(config, history):
    histories = Histories(config)
    for step in history:
        parking, visiting = histories.step(step)
        check(parking, visiting)
    count_hits([None] * histories.parked)
