"""The action defrag: pods move so that a gang starts which no node has room for."""

from typing import Any

import pytest

from pumice.testing import Cluster, evictions_of
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from shared.api import kinds
from shared.api.time import format_seconds
from shared.jobs.defrag import approval

NOW = 1_800_000_000.0
CONF = """
actions: "enqueue, allocate, backfill, defrag"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}, {{name: minruntime}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
configurations:
- name: defrag
  arguments: {{{arguments}}}
"""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
EVERY_MINUTE = "schedule: '@every 1m'"


class Fragmented(Cluster):
    """A cluster at one time, whose schedule is due."""

    def __init__(self, arguments: str = EVERY_MINUTE, *, sizes: tuple[int, ...] = (4, 4)) -> None:
        super().__init__(CONF.format(arguments=arguments))
        for number, cpu in enumerate(sizes):
            self.node(f"n{number}", cpu=str(cpu))
        self.cluster_state.memory["defrag"] = NOW - 100

    def single(self, name: str, node: str = "", *, cpu: int = 1, **more: Any) -> "Fragmented":
        """Add a pod of its own group, which has run for an hour where a node is named."""
        metadata = {"ownerReferences": [OWNER], **more.pop("metadata", {})}
        status = {"startTime": format_seconds(NOW - more.pop("ran_s", 3600))} if node else {}
        self.group(name, phase="Running" if node else "Inqueue", **more.pop("group", {}))
        self.pod(
            f"{name}-0", name, cpu=str(cpu), node=node, metadata=metadata, status=status, **more
        )
        return self

    def moves(self) -> dict[str, str]:
        """Return pod → pod of the gang that it makes room for, when the schedule is due."""
        self.cluster_state.memory["defrag"] = NOW - 100
        return evictions_of(self.decide(now=NOW))


def halves(arguments: str = EVERY_MINUTE, **more: Any) -> Fragmented:
    """Two nodes of 4 CPUs with 3 idle each; a pod of 4 CPUs waits."""
    found = Fragmented(arguments).single("a", "n0", **more).single("b", "n1", **more)
    found.gang("big", tasks=1, cpu="4")
    return found


def test_the_pod_moves_that_is_in_the_way_of_a_waiting_one():
    plan = halves().decide(now=NOW)
    assert evictions_of(plan) == {"a-0": "big-0"}
    assert [(n.pod, n.node) for n in plan.nominations] == [("ns/big-0", "n0")]
    assert {e.reason for e in plan.evictions} == {"defrag"}


def test_nothing_moves_before_the_schedule_is_due():
    cluster = halves()
    cluster.cluster_state.memory["defrag"] = NOW - 59
    assert evictions_of(cluster.decide(now=NOW)) == {}


def test_the_clock_of_the_schedule_starts_with_the_first_cycle():
    cluster = halves()
    del cluster.cluster_state.memory["defrag"]
    assert evictions_of(cluster.decide(now=NOW)) == {}
    assert cluster.cluster_state.memory["defrag"] == NOW


def test_a_second_round_waits_for_the_schedule():
    cluster = halves()
    cluster.decide(now=NOW)
    assert evictions_of(cluster.decide(now=NOW + 59)) == {}
    assert evictions_of(cluster.decide(now=NOW + 60)) == {"a-0": "big-0"}


def test_the_cheapest_pod_moves():
    cluster = halves()
    cluster.single("a", "n0", metadata={"annotations": {"pumice.dev/eviction-cost": "5"}})
    assert cluster.moves() == {"b-0": "big-0"}


def test_one_costly_pod_moves_rather_than_two_cheap_ones():
    cluster = halves()
    cluster.single("b", "n1", metadata={"annotations": {"pumice.dev/eviction-cost": "5"}})
    cluster.single("c", "n0")
    assert cluster.moves() == {"b-0": "big-0"}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"metadata": {"ownerReferences": []}}, id="without an owner"),
        pytest.param({"ran_s": 599}, id="too young"),
        pytest.param({"group": {"min_member": 2}}, id="of a gang below its minimum"),
        pytest.param(
            {"metadata": {"annotations": {"volcano.sh/preemptable": "false"}}}, id="not preemptable"
        ),
        pytest.param({"priorityClassName": "system-node-critical"}, id="critical"),
        pytest.param(
            {"ports": [{"containerPort": 1, "hostPort": 1}]}, id="with a port of its node"
        ),
        pytest.param({"cpu": 3}, id="that fits nowhere else"),
        pytest.param({"group": {"priorityClassName": "high"}}, id="of a higher priority"),
    ],
)
def test_a_pod_does_not_move(more: dict[str, Any]):
    cluster = halves(**more)
    meta = {"name": "high", "uid": "high"}
    cluster.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": 1000})
    for name, node in (("a", "n0"), ("b", "n1")):
        cluster.single(name, node, **more)
    assert cluster.moves() == {}


def test_of_a_gang_only_pods_beyond_its_minimum_move():
    cluster = Fragmented(sizes=(4, 4, 4)).gang("big", tasks=1, cpu="4")
    cluster.group("crew", min_member=2, phase="Running")
    status = {"startTime": format_seconds(NOW - 3600)}
    for number in range(3):
        cluster.pod(
            f"crew-{number}", "crew", cpu="1", node=f"n{number}", status=status,
            metadata={"ownerReferences": [OWNER]},
        )  # fmt: skip
    assert len(cluster.moves()) == 1
    cluster.gang("huge", tasks=2, cpu="4")
    cluster.delete(kinds.PODGROUP, "ns/big").delete(kinds.POD, "ns/big-0")
    assert cluster.moves() == {}


def test_disruption_budgets_bound_the_moves():
    cluster = halves(metadata={"labels": {"app": "x"}})
    budget: dict[str, Any] = {
        "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.put(kinds.PDB, budget)
    assert cluster.moves() == {}
    cluster.put(kinds.PDB, {**budget, "status": {"disruptionsAllowed": 1}})
    assert cluster.moves() == {"a-0": "big-0"}


@pytest.mark.parametrize(("limit", "moves"), [("maxMoves: 1", 0), ("maxMoves: 2", 2)])
def test_a_round_has_a_budget_of_moves(limit: str, moves: int):
    cluster = Fragmented(f"{EVERY_MINUTE}, {limit}").gang("big", tasks=1, cpu="4")
    cluster.single("a", "n0").single("b", "n0").single("c", "n1").single("d", "n1")
    assert len(cluster.moves()) == moves


@pytest.mark.parametrize(("most", "moves"), [("4", 0), ("5", 1)])
def test_a_round_has_a_budget_of_costs(most: str, moves: int):
    costs = {"annotations": {"pumice.dev/eviction-cost": "5"}}
    cluster = halves(f"{EVERY_MINUTE}, maxCost: {most}", metadata=costs)
    assert len(cluster.moves()) == moves


def test_no_pod_moves_for_a_gang_that_its_queue_refuses():
    cluster = halves()
    cluster.queue("default", capability={"cpu": "5"})
    assert cluster.moves() == {}


def test_no_pod_moves_where_the_whole_gang_does_not_start():
    cluster = halves().gang("big", tasks=2, cpu="4")
    assert cluster.moves() == {}


def test_a_gang_gets_several_nodes_and_each_move_is_needed():
    cluster = Fragmented(sizes=(4, 4, 4, 4)).gang("big", tasks=2, cpu="4")
    for number in range(4):
        cluster.single(f"s{number}", f"n{number}")
    assert len(cluster.moves()) == 2


def test_gangs_of_one_round_do_not_share_the_room():
    cluster = (
        Fragmented(sizes=(4, 4, 4)).gang("big", tasks=1, cpu="4").gang("huge", tasks=1, cpu="4")
    )
    for number in range(3):
        cluster.single(f"s{number}", f"n{number}", cpu=2)
    assert len(cluster.moves()) == 1


def test_gangs_in_the_unschedulable_pool_take_part():
    cluster = halves("")
    cluster.step(now=NOW)
    assert cluster.moves() == {}
    root = {"name": "root", "uid": "root"}
    root["annotations"] = {"pumice.dev/defrag": approval(["uid-ns/b-0"], now=NOW)}
    cluster.put(kinds.QUEUE, {"metadata": root, "status": {"state": "Open"}})
    assert cluster.moves() == {"b-0": "big-0"}


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        (approval(["uid-ns/b-0"], now=NOW), {"b-0": "big-0"}),
        (approval(["uid-ns/b-0", "another"], now=NOW), {"b-0": "big-0"}),
        (approval(["another"], now=NOW), {}),
        (approval(["uid-ns/b-0"], now=NOW - 300), {}),
        (approval(["uid-ns/b-0"], now=NOW + 3600), {}),
        ("soon uid-ns/b-0", {}),
        ("", {}),
    ],
)
def test_approved_moves_are_made_until_the_approval_expires(text: str, moves: dict[str, str]):
    cluster = halves("")
    root = {"name": "root", "uid": "root", "annotations": {"pumice.dev/defrag": text}}
    cluster.put(kinds.QUEUE, {"metadata": root, "status": {"state": "Open"}})
    assert cluster.moves() == moves


def test_a_cycle_leaves_the_state_as_it_was():
    cluster = halves()
    before = cluster.cluster_state.nodes.ledger.used.copy()
    cluster.decide(now=NOW)
    assert (cluster.cluster_state.nodes.ledger.used == before).all()
    assert cluster.cluster_state.audit() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [("schedule: soon", "schedule: expected exactly 5 fields"), ("maxMoves: 0", "maxMoves: 0")],
)
def test_unreadable_arguments_are_refused(arguments: str, words: str):
    with pytest.raises(BadConfig, match=words):
        configure(CONF.format(arguments=arguments))


def test_rooms_of_moves_need_pumices_evictions():
    with pytest.raises(BadConfig, match="volcanoEvictions"):
        configure(CONF.format(arguments="") + "volcanoEvictions: true\n")
