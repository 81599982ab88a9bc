"""reclaim, shuffle and kube-batch's pipeline: evictions across queues, and for nobody's sake."""

import pytest

from pumice.plugins import Arguments, Hooks
from pumice.plugins.points import Points
from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.config import FLAG_DEFAULTS, PluginOption, SchedulerConfig, Tier
from services.scheduler.decide import conclude, open_session, run_actions

CONF = """
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
KUBE_BATCH = """
actions: "allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def two_queues(conf: str = CONF, *, running: int = 4, min_member: int = 1, **rich) -> Cluster:
    """One full node, all of it used by queue `rich`."""
    cluster = Cluster(conf, queue=False).node("n1", cpu=str(running))
    cluster.queue("rich", weight=1, **rich).queue("poor", weight=1)
    cluster.group("r", queue="rich", min_member=min_member, phase="Running")
    for number in range(running):
        cluster.pod(f"r-{number}", "r", cpu="1", node="n1")
    return cluster


def test_a_queue_takes_what_it_deserves_from_one_that_has_more_a07():
    cluster = two_queues().gang("p", queue="poor", tasks=2)
    plan = cluster.decide()
    assert evictions_of(plan) == {"r-3": "p-0", "r-2": "p-1"}
    assert {e.reason for e in plan.evictions} == {"reclaim"}
    assert [n.node for n in plan.nominations] == ["n1", "n1"]


def test_a_queue_takes_no_more_than_it_deserves_and_a_gang_that_needs_more_takes_nothing_a07():
    cluster = two_queues().gang("p", queue="poor", tasks=3)
    assert cluster.decide().evictions == ()  # two of four are what it deserves


def test_a_queue_that_may_not_be_reclaimed_from_keeps_all_a07():
    cluster = two_queues(reclaimable=False).gang("p", queue="poor", tasks=1)
    assert cluster.decide().evictions == ()


def test_only_running_pods_are_reclaimed_bound_ones_are_not_a07():
    cluster = two_queues(running=2, min_member=0).gang("p", queue="poor", tasks=1)
    for name in ("r-0", "r-1"):
        cluster.pod(name, "r", cpu="1", node="n1", phase="Pending")
    assert cluster.decide().evictions == ()


def test_a_pod_that_says_no_is_not_reclaimed():
    cluster = two_queues(running=2, min_member=0).gang("p", queue="poor", tasks=1)
    said = {"annotations": {"volcano.sh/preemptable": "false"}}
    cluster.pod("r-1", "r", cpu="1", node="n1", metadata=said)
    assert evictions_of(cluster.decide()) == {"r-0": "p-0"}


def test_a_closed_queue_reclaims_nothing():
    cluster = two_queues().queue("poor", state="Closed", weight=1)
    assert cluster.gang("p", queue="poor", tasks=1).decide().evictions == ()


def test_a_pod_whose_policy_is_never_reclaims_nothing_a07():
    cluster = two_queues().gang("p", queue="poor", tasks=1, preemptionPolicy="Never")
    assert cluster.decide().evictions == ()


def test_a_gang_is_not_cut_below_its_minimum():
    cluster = two_queues(min_member=4).gang("p", queue="poor", tasks=1)
    session = cluster.session()
    try:
        preemptor = next(iter(cluster.job("p").tasks.values()))
        candidates = list(cluster.job("r").tasks.values())
        proposed = session.hooks.of(Points.reclaimable).tiers[0][0].fn(preemptor, candidates)
    finally:
        session.close()
    assert proposed == []


def test_reclaimed_room_is_used_once_it_is_free_and_nobody_else_goes():
    cluster = two_queues().gang("p", queue="poor", tasks=2)
    gone = evictions_of(cluster.step())
    assert cluster.step().evictions == ()
    for name in gone:
        cluster.pod(name, "r", cpu="1", node="n1", phase="Succeeded")
    assert binds_of(cluster.step()) == {"p-0": "n1", "p-1": "n1"}
    assert cluster.step().evictions == ()


@pytest.mark.parametrize("waits", ["in its queue", "in another"])
def test_kube_batchs_pipeline_is_one_configuration_among_others(waits):
    """Allocate, backfill, preempt, reclaim in this order, without enqueue."""
    cluster = two_queues(KUBE_BATCH)
    queue = "rich" if waits == "in its queue" else "poor"
    cluster.group("p", queue=queue, min_member=2, phase="Pending").pod("p-0", "p", cpu="1")
    cluster.pod("p-9", "p")  # asks for nothing: backfill places it
    plan = cluster.decide()
    reason = {"rich": "preempt", "poor": "reclaim"}[queue]
    assert [(e.reason, e.preemptor) for e in plan.evictions] == [(reason, "ns/p-0")]
    assert [n.pod for n in plan.nominations] == ["ns/p-0"]


class Unwanted:
    """Names running tasks by their names."""

    name = "unwanted"

    def __init__(self, arguments: Arguments) -> None:
        self._names = arguments["names"]

    def contribute(self, hooks: Hooks, _: object) -> None:
        hooks.victim_tasks(lambda running: [t for t in running if t.name in self._names])


def shuffled(cluster: Cluster, *tiers: list[list[str]]) -> dict[str, str]:
    """Return whom shuffle evicts when the plugins of each tier name these tasks."""
    options = [
        Tier(
            plugins=tuple(
                PluginOption(name="unwanted", flags=FLAG_DEFAULTS, arguments={"names": names})
                for names in tier
            )
        )
        for tier in tiers
    ]
    config = SchedulerConfig(actions=("shuffle",), tiers=tuple(options), arguments={})
    session = open_session(cluster.cluster_state, config, now=0.0, plugins={"unwanted": Unwanted})
    try:
        run_actions(session, config)
        plan = conclude(session)
    finally:
        session.close()
    assert {e.reason for e in plan.evictions} <= {"shuffle"}
    assert plan.nominations == ()
    return evictions_of(plan)


def test_shuffle_evicts_what_the_plugins_of_the_first_tier_with_a_say_name_together_a10():
    cluster = two_queues(min_member=4)
    assert shuffled(cluster, [["r-0"], ["r-1", "r-0"]], [["r-3"]]) == {"r-0": "", "r-1": ""}
    assert shuffled(cluster, [[]], [["r-3", "nobody"]]) == {"r-3": ""}


def test_shuffle_looks_at_running_tasks_only_a10():
    cluster = two_queues(running=2).pod("r-1", "r", cpu="1", node="n1", phase="Pending")
    assert shuffled(cluster, [["r-0", "r-1"]]) == {"r-0": ""}
