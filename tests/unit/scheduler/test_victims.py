"""Whom the plugins let others take from (PL01 to PL05); preempt and reclaim will ask them."""

from pumice.plugins.points import Points
from pumice.testing import Cluster
from shared.api import kinds

CRITICAL_ARE_SPARED = """
actions: "allocate, preempt, reclaim"
tiers:
- plugins: [{name: conformance}]
"""


def crowd() -> Cluster:
    world = Cluster().node("n1", cpu="8", memory="64Gi")
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high", "uid": "p"}, "value": 10})
    world.group("rich", min_member=1, phase="Running")
    for number in range(3):
        world.pod(f"rich-{number}", "rich", cpu="2", node="n1")
    world.group("poor", priorityClassName="high").pod("poor-0", "poor", cpu="1")
    return world


def test_only_what_all_plugins_of_the_first_tier_agree_on_may_be_preempted():
    world = crowd()
    session = world.session()
    try:
        preemptor = next(iter(world.job("poor").tasks.values()))
        victims = session.hooks.preemptable(preemptor, list(world.job("rich").tasks.values()))
    finally:
        session.close()
    # three run, one is the gang's minimum
    assert [task.name for task in victims] == ["rich-0", "rich-1"]


def test_nobody_takes_from_a_job_of_the_same_priority():
    world = crowd().group("poor")
    session = world.session()
    try:
        preemptor = next(iter(world.job("poor").tasks.values()))
        tasks = list(world.job("rich").tasks.values())
        proposed = [
            rule.fn(preemptor, tasks) for rule in session.hooks.of(Points.preemptable).tiers[0]
        ]
    finally:
        session.close()
    assert proposed[0] == []


def test_critical_pods_are_never_victims_pl03():
    """Of four pods that one may be taken from, the critical one alone is spared."""
    world = Cluster(CRITICAL_ARE_SPARED).node("n1", cpu="8", memory="64Gi")
    world.group("rich", min_member=0, phase="Running").group("poor").pod("poor-0", "poor", cpu="1")
    for number, name in enumerate(("", "system-node-critical", "system-cluster-critical", "high")):
        world.pod(f"rich-{number}", "rich", cpu="2", node="n1", priorityClassName=name)
    session = world.session()
    try:
        preemptor = next(iter(world.job("poor").tasks.values()))
        tasks = list(world.job("rich").tasks.values())
        victims = [
            session.hooks.reclaimable(preemptor, tasks),
            session.hooks.preemptable(preemptor, tasks),
        ]
    finally:
        session.close()
    assert [[task.name for task in some] for some in victims] == [["rich-0", "rich-3"]] * 2


def test_a_queue_that_holds_more_than_it_deserves_gives_until_it_does_not_pl05():
    world = Cluster(queue=False).node("n1", cpu="8", memory="64Gi")
    world.queue("a").queue("b").group("x", queue="a", min_member=0, phase="Running")
    for number in range(8):
        world.pod(f"x-{number}", "x", cpu="1", node="n1")
    world.gang("y", tasks=8, min_member=1, queue="b")
    session = world.session()
    try:
        preemptor = next(iter(world.job("y").tasks.values()))
        fn = session.hooks.of(Points.reclaimable).tiers[1][0].fn
        victims = fn(preemptor, list(world.job("x").tasks.values()))
    finally:
        session.close()
    assert len(victims) == 4
