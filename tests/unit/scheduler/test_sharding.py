"""A scheduler's shard of the nodes: hard keeps to it, soft prefers it."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import conclude, configure, run_actions
from services.scheduler.decision import Decision
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.state.shards import NodeShards, Sharding, ShardMode, ShardStatus
from services.scheduler.scheduler_state import SchedulerState
from shared.api import kinds
from shared.api.scheduling import NodeShard
from shared.contracts import messages as m
from tests.support.world import fact, stored_pod

HARD = Sharding(mode=ShardMode.HARD)
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


def shard(
    world: Cluster, *nodes: str, name: str = "volcano", in_use: Sequence[str] | None = None
) -> Cluster:
    document = {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodesDesired": list(nodes)},
        "status": {"nodesInUse": list(nodes if in_use is None else in_use)},
    }
    return world.put(kinds.NODESHARD, document)


@pytest.mark.parametrize(
    ("mode", "nodes"),
    [
        (ShardMode.NONE, {"n1": 2, "n2": 1}),
        (ShardMode.HARD, {"n2": 1}),
        (ShardMode.SOFT, {"n1": 2, "n2": 1}),
    ],
)
def test_a_scheduler_keeps_to_the_shard_of_its_name_ca12(mode, nodes):
    world = Cluster(CONF).node("n1", cpu="8").node("n2", cpu="1").gang("g", tasks=3, min_member=1)
    shard(shard(world, "n1", name="other"), "n2")
    sharding = Sharding(mode=mode)
    if mode is ShardMode.NONE:
        world.node("n1", cpu="2")
    assert Counter(binds_of(world.decide(sharding=sharding)).values()) == nodes


def test_without_its_shard_a_scheduler_has_no_node_or_all_of_them():
    world = Cluster(CONF).node("n1").gang("g", tasks=1)
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.HARD))) == {}
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.SOFT))) == {"g-0": "n1"}
    shard(world, "n1")
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.HARD))) == {"g-0": "n1"}
    world.delete(kinds.NODESHARD, "volcano")
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.HARD))) == {}


# --- a node that goes from one scheduler to another (CA12) ---------------------------------------


@pytest.mark.parametrize("mode", [ShardMode.HARD, ShardMode.SOFT])
def test_a_node_is_not_used_while_another_scheduler_has_it_in_use_ca12(mode):
    world = Cluster(CONF).node("n1").node("n2").gang("g", tasks=1)
    shard(shard(world, "n1"), "n2", name="other", in_use=["n1", "n2"])
    found = binds_of(world.decide(sharding=Sharding(mode=mode)))
    assert found == ({} if mode is ShardMode.HARD else {"g-0": "n1"}), "soft takes what it finds"
    shard(world, "n2", name="other", in_use=["n2"])
    assert binds_of(world.decide(sharding=Sharding(mode=mode))) == {"g-0": "n1"}


def test_a_node_is_used_when_the_object_shows_that_it_is_in_use_ca12():
    world = Cluster(CONF).node("n1").gang("g", tasks=1)
    shard(world, "n1", in_use=())
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.HARD))) == {}
    shard(world, "n1")
    assert binds_of(world.decide(sharding=Sharding(mode=ShardMode.HARD))) == {"g-0": "n1"}


def node_shard(name: str, desired: str, in_use: str = "") -> NodeShard:
    document = {
        "metadata": {"name": name, "uid": name, "resourceVersion": "3"},
        "spec": {"nodesDesired": desired.split()},
        "status": {"nodesInUse": in_use.split()},
    }
    found: NodeShard = kinds.decode(kinds.NODESHARD, msgspec.json.encode(document))
    return found


def shards(**found: tuple[str, str]) -> NodeShards:
    made = NodeShards()
    for name, (desired, in_use) in found.items():
        made.put(name, node_shard(name, desired, in_use))
    return made


def status(in_use: str = "", to_add: str = "", to_remove: str = "") -> ShardStatus:
    return ShardStatus(
        in_use=frozenset(in_use.split()),
        to_add=frozenset(to_add.split()),
        to_remove=frozenset(to_remove.split()),
    )


def test_the_status_says_what_is_in_use_and_what_is_to_come_and_to_go_ca12():
    seen = shards(a=("n1 n2 n3", "n1 n4"), b=("n4", "n2"))
    assert seen.status("a", {"n4"}) == status("n1 n3 n4", "n2", "n4")
    assert seen.status("a", ()) == status("n1 n3", "n2")
    assert seen.status("none", ()) is None


def test_a_status_that_is_shown_or_on_its_way_is_not_wanted_again_ca12():
    seen = shards(a=("n1", ""))
    wanted = seen.status("a", ())
    assert wanted is not None
    seen.assume_status("a", wanted)
    assert seen.status("a", ()) is None
    assert seen.is_outstanding("a", "a", wanted)
    assert not seen.is_outstanding("a", "another", wanted)
    seen.put("a", node_shard("a", "n1"))
    assert seen.status("a", ()) == wanted, "another version may have refused it"
    seen.put("a", node_shard("a", "n1", "n1"))
    assert seen.status("a", ()) is None
    assert not seen.is_outstanding("a", "a", wanted)


def test_of_two_that_claim_one_node_neither_uses_it_and_one_gives_way_ca12():
    seen = shards(a=("n1", "n1"), b=("n1", "n1"))
    assert seen.usable("a") == seen.usable("b") == frozenset()
    assert seen.status("a", ()) is None
    assert seen.status("b", ()) == status(to_add="n1")


def put(to: SchedulerState, kind: str, body: dict, rv: str = "1") -> None:
    body["metadata"]["resourceVersion"] = rv
    assert to.fold([fact(kind, body)]) == []


def put_shard(to: SchedulerState, rv: str, desired: Sequence[str]) -> None:
    meta = {"name": "volcano", "uid": "s"}
    body = {"metadata": meta, "spec": {"nodesDesired": desired}, "status": {"nodesInUse": ["n1"]}}
    put(to, "nodeshards", body, rv)


def shard_wanted(decision: Decision) -> m.DesiredNodeShard:
    (found,) = (s.message for s in decision.statuses if isinstance(s.message, m.DesiredNodeShard))
    return found


def test_a_node_stays_in_use_while_a_bind_to_it_is_under_way_ca12():
    scheduler = SchedulerState(DecisionSettings(sharding=HARD), gang_message=10, settle_s=0)
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    put(
        scheduler,
        "nodes",
        {"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": amounts}},
    )
    queue = {"metadata": {"name": "default", "uid": "q"}, "spec": {}, "status": {"state": "Open"}}
    put(scheduler, "queues", queue)
    group = {"metadata": {"name": "g", "namespace": "ns", "uid": "g"}}
    spec = {"minMember": 1, "queue": "default"}
    put(scheduler, "podgroups", {**group, "spec": spec, "status": {"phase": "Inqueue"}})
    assert scheduler.fold([fact("pods", stored_pod("ns/p", uid="p", group="g"))]) == []
    put_shard(scheduler, "4", ["n1"])
    conf = configure(CONF)
    bound = scheduler.decide(conf, now=1.0, cycle=1, token=7)
    assert [bind.node for command in bound.commands for bind in command.binds] == ["n1"]

    put_shard(scheduler, "5", [])
    kept = shard_wanted(scheduler.decide(conf, now=2.0, cycle=2, token=7))
    assert (kept.in_use, kept.to_remove, kept.rv) == (("n1",), ("n1",), "5")

    assert scheduler.fold([fact("pods", stored_pod("ns/p", uid="p", group="g", node="n1"))]) == []
    left = shard_wanted(scheduler.decide(conf, now=3.0, cycle=3, token=7))
    assert (left.in_use, left.to_remove, left.rv) == ((), (), "5")


def bound_outcome(uid: str, node: str) -> m.Outcome:
    item = m.ItemOutcome(pod=f"ns/{uid}", uid=uid, result=m.Result.BOUND, node=node)
    return m.Outcome(intent=f"of-{uid}", items=(item,), instance="binder-0", time=1.0)


def test_a_new_leader_gives_a_node_back_on_which_pods_have_come_and_gone_ca12():
    scheduler = SchedulerState(DecisionSettings(sharding=HARD), gang_message=10, settle_s=0)
    assert scheduler.fold([fact("pods", stored_pod("ns/p", uid="p"))]) == []
    put_shard(scheduler, "4", [])
    scheduler.recover([], [bound_outcome("gone", "n1")])
    conf = configure(CONF)
    left = shard_wanted(scheduler.decide(conf, now=1.0, cycle=1, token=7))
    assert (left.in_use, left.to_remove) == ((), ())


def test_a_new_leader_keeps_a_node_on_which_no_fact_shows_a_bound_pod_yet_ca12():
    scheduler = SchedulerState(DecisionSettings(sharding=HARD), gang_message=10, settle_s=0)
    assert scheduler.fold([fact("pods", stored_pod("ns/p", uid="p"))]) == []
    put_shard(scheduler, "4", [])
    scheduler.recover([], [bound_outcome("p", "n1")])
    kept = shard_wanted(scheduler.decide(configure(CONF), now=1.0, cycle=1, token=7))
    assert (kept.in_use, kept.to_remove) == (("n1",), ("n1",))


# --- claims hold in one term of the Lease (CA12) -------------------------------------------------


def signed(leadership_term: str, desired: str = "n1", in_use: str = "n1") -> NodeShard:
    found = node_shard("a", desired, in_use)
    notes = {"pumice.dev/leadership-term": leadership_term} if leadership_term else {}
    meta = msgspec.structs.replace(found.metadata, annotations=notes)
    return msgspec.structs.replace(found, metadata=meta)


@pytest.mark.parametrize("now", ["ns/lease/u.2", ""])
def test_no_node_is_used_by_claims_of_another_term_ca12(now: str):
    seen = NodeShards()
    seen.leadership_term = now
    seen.put("a", signed("ns/lease/u.1"))
    assert seen.usable("a") == frozenset()
    assert seen.unsigned("a") == now
    assert seen.status("a", ()) == status("n1"), "it is to be signed anew"
    seen.put("a", signed(now))
    assert seen.usable("a") == {"n1"}
    assert seen.unsigned("a") is msgspec.UNSET
    assert seen.status("a", ()) is None


def test_what_only_looks_on_takes_claims_as_they_are_ca12():
    seen = NodeShards()
    seen.put("a", signed("ns/lease/u.1"))
    assert seen.usable("a") == {"n1"}
    assert seen.unsigned("a") is msgspec.UNSET


def test_a_scheduler_has_its_shard_bear_the_name_of_its_term_ca12():
    scheduler = SchedulerState(DecisionSettings(sharding=HARD), gang_message=10, settle_s=0)
    put_shard(scheduler, "4", ["n1"])
    term = "volcano-system/volcano/u.1"
    scheduler.set_leadership_term(term)
    wanted = shard_wanted(scheduler.decide(configure(CONF), now=1.0, cycle=1, token=7))
    assert (wanted.in_use, wanted.leadership_term) == (("n1",), term)
