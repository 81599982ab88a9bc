"""Laws of evictions over time, on drawn histories in which every victim comes back."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.eviction_histories import OWNERS, Group, History
from tests.support.hits import count_hits, needs_hits

NODES = {"n0": 6, "n1": 4}
QUEUES: dict[str, dict[str, Any]] = {
    "a": {"deserved": {"cpu": "4"}},
    "b": {"deserved": {"cpu": "3"}},
    "c": {"deserved": {"cpu": "3"}, "capability": {"cpu": "6"}},
}
PLUGINS = """
tiers:
- plugins:
  - {name: priority}
  - {name: gang, enablePreemptable: %s}
  - {name: conformance}
- plugins:
  - {name: drf, enablePreemptable: %s}
  - {name: predicates}
  - {name: %s}
  - {name: nodeorder}
"""
PIPELINES = (
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, allocate, reclaim, preempt",
    "allocate, backfill, gangpreempt, gangreclaim",
    "reclaim, allocate, preempt",
)


@st.composite
def groups(draw: st.DrawFn, number: int) -> Group:
    cpus = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    return Group(
        f"g{number}",
        draw(st.sampled_from(OWNERS)),
        draw(st.sampled_from(sorted(QUEUES))),
        draw(st.sampled_from(["low", "low", "mid", "high"])),
        draw(st.integers(0, len(cpus))),
        cpus,
        draw(st.integers(1, 3)),
    )


@st.composite
def histories(draw: st.DrawFn, plugin: str = "capacity") -> History:
    """Play groups that come and go; between them the scheduler may begin anew."""
    yes = st.sampled_from(["true", "false"])
    conf = (
        f'actions: "{draw(st.sampled_from(PIPELINES))}"{PLUGINS % (draw(yes), draw(yes), plugin)}'
    )
    history = History(conf, NODES, QUEUES)
    for number in range(draw(st.integers(2, 7))):
        if history.groups and draw(st.integers(0, 4)) == 0:
            history.end(draw(st.sampled_from(sorted(history.groups))))
        else:
            history.arrive(draw(groups(number)))
        for _ in range(draw(st.integers(1, 4))):
            history.step()
        if draw(st.integers(0, 3)) == 0:
            history.restart()
    return history


@needs_hits(at_least=30)
@settings(max_examples=100, deadline=None)
@given(histories())
def test_evictions_end_and_each_is_for_a_pod_that_starts(history: History):
    """Whatever comes back, and whoever schedules: what is evicted is for good (law of evictions).

    No pod is evicted twice unless something changes outside. A node keeps the room that victims
    leave for those for whom they went, and nobody takes a place again before these have theirs.
    """
    quiet = history.rest(12)
    count_hits(history.evictions)
    event(f"evictions: {min(len(history.evictions), 6)}")
    assert history.broken == []
    assert quiet >= 6
    assert history.waiting_claimants() == []


@needs_hits(at_least=30)
@settings(max_examples=60, deadline=None)
@given(histories("proportion"))
def test_evictions_end_where_what_queues_deserve_changes_with_every_pod(history: History):
    quiet = history.rest(12)
    count_hits(history.evictions)
    assert quiet >= 6
