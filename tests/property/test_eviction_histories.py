"""Laws of evictions over time, on drawn histories in which every victim comes back."""

from typing import Any, NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.property.eviction_histories import OWNERS, Group, History
from tests.support.laws import count_hits, needs_hits

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
def groups(draw: st.DrawFn) -> Group:
    cpus = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    return Group(
        "",
        draw(st.sampled_from(OWNERS)),
        draw(st.sampled_from(sorted(QUEUES))),
        draw(st.sampled_from(["low", "low", "mid", "high"])),
        draw(st.integers(0, len(cpus))),
        cpus,
        draw(st.integers(1, 3)),
    )


class Act(NamedTuple):
    """A change from outside, the time after it, and whether the scheduler begins anew then."""

    arrives: Group
    ends: int | None
    """In its place the group of this number ends, if there is any."""
    steps: int
    restarts: bool


yes = st.sampled_from(["true", "false"])
acts = st.builds(
    Act,
    groups(),
    st.sampled_from([None, None, None, 0, 1]),
    st.integers(1, 4),
    st.sampled_from([False, False, True]),
)


def play(pipeline: str, gang: str, drf: str, script: list[Act], plugin: str) -> History:
    """Play groups that come and go."""
    history = History(f'actions: "{pipeline}"{PLUGINS % (gang, drf, plugin)}', NODES, QUEUES)
    for number, act in enumerate(script):
        present = sorted(history.groups)
        if act.ends is not None and act.ends < len(present):
            history.end(present[act.ends])
        else:
            history.arrive(act.arrives._replace(name=f"g{number}"))
        for _ in range(act.steps):
            history.step()
        if act.restarts:
            history.restart()
    return history


scripts = st.lists(acts, min_size=2, max_size=7)


@needs_hits(at_least=30)
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PIPELINES), yes, yes, scripts)
def test_evictions_end_and_each_is_for_a_pod_that_starts(
    pipeline: str, gang: str, drf: str, script: list[Act]
):
    """Whatever comes back, and whoever schedules: what is evicted is for good (law of evictions).

    No pod is evicted twice unless something changes outside. A node keeps the room that victims
    leave for those for whom they went. What comes back takes no room with which these could start.
    """
    history = play(pipeline, gang, drf, script, "capacity")
    quiet = history.rest(12)
    count_hits(history.evictions)
    event(f"evictions: {min(len(history.evictions), 6)}")
    assert history.broken == []
    assert quiet >= 6
    assert history.waiting_claimants() == []


@needs_hits(at_least=30)
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PIPELINES), yes, yes, scripts)
def test_evictions_end_where_what_queues_deserve_changes_with_every_pod(
    pipeline: str, gang: str, drf: str, script: list[Act]
):
    history = play(pipeline, gang, drf, script, "proportion")
    quiet = history.rest(12)
    count_hits(history.evictions)
    assert quiet >= 6
