"""A scheduler's shard of the nodes: hard keeps to it, soft prefers it."""

from collections import Counter

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import conclude, run_actions
from services.scheduler.engine.session.sharding import Mode, Sharding
from shared.api import kinds

CONF = """
actions: "allocate, backfill, preempt"
tiers:
- plugins: [{name: gang}, {name: priority}, {name: predicates}]
"""


def decided(world, *, hard):
    session = world.session()
    try:
        session.join_shard(["n2", "no-such-node"], hard=hard)
        run_actions(session, world.config)
        return conclude(session)
    finally:
        session.close()


@pytest.mark.parametrize(("hard", "nodes"), [(True, ["n2"]), (False, ["n2", "n1", "n1"])])
def test_other_nodes_are_never_or_last_taken(hard, nodes):
    world = Cluster(CONF).node("n1", cpu="8").node("n2", cpu="1").gang("g", tasks=3, min_member=1)
    binds = binds_of(decided(world, hard=hard))
    assert [binds[name] for name in sorted(binds)] == nodes


@pytest.mark.parametrize("hard", [True, False])
def test_pods_that_ask_for_nothing_keep_to_the_shard(hard):
    world = Cluster(CONF).node("n1").node("n2").group("g").pod("g-0", "g")
    assert binds_of(decided(world, hard=hard)) == {"g-0": "n2"}


def test_pods_that_ask_for_nothing_overflow_a_soft_shard():
    world = Cluster(CONF).node("n1", pods="5").node("n2", pods="1").group("g", min_member=3)
    for number in range(3):
        world.pod(f"g-{number}", "g")
    binds = binds_of(decided(world, hard=False))
    assert sorted(binds.values()) == ["n1", "n1", "n2"]


@pytest.mark.parametrize("hard", [True, False])
def test_room_is_made_in_the_shard_first(hard):
    world = Cluster(CONF)
    for name in ("n1", "n2"):
        world.node(name, cpu="1").group(f"old-{name}", min_member=0)
        world.pod(f"old-{name}-0", f"old-{name}", cpu="1", node=name)
    world.group("g", priorityClassName="").pod("g-0", "g", cpu="1", priority=10)
    job = world.job("g")
    job.priority = 10
    plan = decided(world, hard=hard)
    assert [eviction.pod for eviction in plan.evictions] == ["ns/old-n2-0"]


def test_nodes_outside_a_hard_shard_are_named_as_the_reason():
    world = Cluster(CONF).node("n1").node("n2", cpu="1").gang("g", tasks=1, cpu="2")
    message = decided(world, hard=True).explanations[0].message
    assert "1 node isn't in scheduler node shard" in message


# --- as a setting --------------------------------------------------------------------------------


def shard(world: Cluster, *nodes: str, name: str = "volcano") -> Cluster:
    document = {"metadata": {"name": name, "uid": name}, "spec": {"nodesDesired": list(nodes)}}
    return world.put(kinds.NODESHARD, document)


@pytest.mark.parametrize(
    ("mode", "nodes"),
    [(Mode.NONE, {"n1": 2, "n2": 1}), (Mode.HARD, {"n2": 1}), (Mode.SOFT, {"n1": 2, "n2": 1})],
)
def test_a_scheduler_keeps_to_the_shard_of_its_name_ca12(mode, nodes):
    world = Cluster(CONF).node("n1", cpu="8").node("n2", cpu="1").gang("g", tasks=3, min_member=1)
    shard(shard(world, "n1", name="other"), "n2")
    sharding = Sharding(mode=mode)
    if mode is Mode.NONE:
        world.node("n1", cpu="2")
    assert Counter(binds_of(world.decide(sharding=sharding)).values()) == nodes


def test_without_its_shard_a_scheduler_has_no_node_or_all_of_them():
    world = Cluster(CONF).node("n1").gang("g", tasks=1)
    assert binds_of(world.decide(sharding=Sharding(mode=Mode.HARD))) == {}
    assert binds_of(world.decide(sharding=Sharding(mode=Mode.SOFT))) == {"g-0": "n1"}
    shard(world, "n1")
    assert binds_of(world.decide(sharding=Sharding(mode=Mode.HARD))) == {"g-0": "n1"}
    world.delete(kinds.NODESHARD, "volcano")
    assert binds_of(world.decide(sharding=Sharding(mode=Mode.HARD))) == {}
