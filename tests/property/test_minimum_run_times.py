"""Laws of minimum run times: no action evicts a gang below its minimum before its time."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from shared.api import kinds
from shared.api.time import format_seconds

NOW = 1_800_000_000.0
NODE = 4
CONF = """
actions: "enqueue, allocate, {actions}, backfill"
tiers:
- plugins:
  - {{name: priority}}
  - {{name: gang, enablePreemptable: false, enableReclaimable: false}}
  - {{name: minruntime}}
- plugins:
  - {{name: drf}}
  - {{name: predicates}}
  - {{name: {sharing}}}
  - {{name: nodeorder}}
  - {{name: minruntime}}
"""


class Gang(NamedTuple):
    tasks: int
    least: int
    queue: int
    priority: int
    ran_s: int


running = st.builds(
    Gang,
    tasks=st.integers(1, NODE),
    least=st.integers(1, NODE),
    queue=st.integers(0, 1),
    priority=st.integers(0, 2),
    ran_s=st.integers(0, 100),
).map(lambda gang: gang._replace(least=min(gang.least, gang.tasks)))
least_s = st.tuples(st.integers(0, 100), st.integers(0, 100))
"""Before preemption and before reclaim."""


def cluster_of(conf: str, gangs: list[Gang], times: list[tuple[int, int]]) -> Cluster:
    """Make a cluster that is full of gangs, and one that waits per queue and priority."""
    cluster = Cluster(conf, queue=False)
    for at, (preempt, reclaim) in enumerate(times):
        annotations = {
            "pumice.dev/preempt-min-runtime": f"{preempt}s",
            "pumice.dev/reclaim-min-runtime": f"{reclaim}s",
        }
        meta = {"name": f"q{at}", "uid": f"q{at}", "annotations": annotations}
        cluster.put(kinds.QUEUE, {"metadata": meta, "spec": {}, "status": {"state": "Open"}})
    for value in range(4):
        meta = {"name": f"p{value}", "uid": f"p{value}"}
        cluster.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": value})
    for at, gang in enumerate(gangs):
        cluster.node(f"n{at}", cpu=str(gang.tasks))
        more = {"priorityClassName": f"p{gang.priority}", "queue": f"q{gang.queue}"}
        cluster.group(f"g{at}", min_member=gang.least, phase="Running", **more)
        status = {"startTime": format_seconds(NOW - gang.ran_s)}
        for number in range(gang.tasks):
            cluster.pod(
                f"g{at}-{number}", f"g{at}", cpu="1", node=f"n{at}", status=status,
                priority=gang.priority,
            )  # fmt: skip
    for queue in range(2):
        name = f"w{queue}"
        cluster.group(name, min_member=2, priorityClassName="p3", queue=f"q{queue}")
        for number in range(2):
            cluster.pod(f"{name}-{number}", name, cpu="1", priority=3)
    return cluster


@settings(max_examples=150)
@given(
    st.lists(running, min_size=1, max_size=4),
    st.lists(least_s, min_size=2, max_size=2),
    st.sampled_from(["preempt", "reclaim", "gangpreempt", "gangreclaim", "preempt, reclaim"]),
    st.sampled_from(["proportion", "capacity"]),
)
def test_a_gang_keeps_its_minimum_until_it_has_run_long_enough(
    gangs: list[Gang], times: list[tuple[int, int]], actions: str, sharing: str
) -> None:
    cluster = cluster_of(CONF.format(actions=actions, sharing=sharing), gangs, times)
    evictions = cluster.decide(now=NOW).evictions
    lost = Counter(eviction.job for eviction in evictions)
    for eviction in evictions:
        gang = gangs[int(eviction.job.partition("/g")[2])]
        preempt_s, reclaim_s = times[gang.queue]
        least_ran_s = preempt_s if eviction.reason.endswith("preempt") else reclaim_s
        assert gang.ran_s >= least_ran_s or gang.tasks - lost[eviction.job] >= gang.least
