"""Questions about moves: which pods move, where they go, and what starts then."""

import msgspec
import pytest

from services.scheduler.engine.state.memory import memory_of
from services.visibility.api import hiding
from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.whatif import what_if
from shared.api.visibility import ObjectRef, WhatIfStatus
from shared.api.whatifs import WhatIfSpec
from tests.support.laws import configured
from tests.support.world import Json
from tests.unit.visibility.mirrors import NOW, World

CONF = """
actions: "ACTIONS"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
configurations:
- {name: defrag, arguments: {minRunningTime: 0s}}
"""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


def fragmented() -> World:
    """Two nodes with 3 of 4 CPUs idle; a pod of 4 CPUs waits."""
    world = World().queue("default")
    for number, cost in enumerate((7, 3)):
        world.node(f"n{number}", cpu="4")
        world.group(f"s{number}", phase="Running")
        meta = {"ownerReferences": [OWNER]}
        notes = {"pumice.dev/eviction-cost": str(cost)}
        world.pod(
            f"s{number}-0", f"s{number}", cpu="1", node=f"n{number}", metadata=meta,
            annotations=notes,
        )  # fmt: skip
        pod = world.objects["pods", f"ns/s{number}-0"]
        pod["metadata"]["annotations"] = {**notes, "scheduling.k8s.io/group-name": f"s{number}"}
        world.put("pods", pod)
    return world.gang("big", pods=1, cpu="4")


def ask(
    world: World,
    *,
    actions: str = "enqueue, allocate, preempt, backfill, defrag",
    conf: str = CONF,
    **asked: Json,
) -> WhatIfStatus:
    config = configured(conf.replace("ACTIONS", actions))
    policy = DecisionPolicy.of(config)
    question = msgspec.json.decode(msgspec.json.encode({"defragment": asked}), type=WhatIfSpec)
    return what_if(world.mirror, policy, question, namespace="ns", now=NOW)


def test_the_cheapest_move_is_named_with_its_price_and_what_starts():
    answer = ask(fragmented())
    [move] = answer.moves
    assert (move.name, move.uid, move.cost) == ("s1-0", "uid-s1-0", 3)
    assert (move.node, move.to) == ("n1", "n0")
    assert move.starts is not None
    assert move.starts.name == "big"
    assert [job.name for job in answer.starting] == ["big"]
    assert (answer.evictions, answer.makes_moves) == ((), True)


def test_the_question_leaves_the_state_as_it_was():
    world = fragmented()
    before = memory_of(world.mirror.state)
    first = ask(world)
    assert memory_of(world.mirror.state) == before
    assert world.mirror.state.audit() == []
    assert ask(world) == first


def test_moves_are_shown_to_an_installation_that_makes_none():
    answer = ask(fragmented(), actions="enqueue, allocate, backfill")
    assert [move.name for move in answer.moves] == ["s1-0"]
    assert not answer.makes_moves


def test_a_budget_of_costs_bounds_the_moves():
    assert ask(fragmented(), maxCost=2).moves == ()


@pytest.mark.parametrize("most", [0, 501])
def test_a_number_of_moves_out_of_range_is_refused(most: int):
    with pytest.raises(BadQuery, match=f"{most} is no number of moves"):
        ask(fragmented(), maxMoves=most)


def test_moves_need_pumices_evictions():
    with pytest.raises(BadQuery, match="volcanoEvictions"):
        ask(fragmented(), actions="allocate", conf=CONF + "volcanoEvictions: true\n")


def test_a_question_about_a_node_moves_nothing():
    world = fragmented()
    config = configured(CONF.replace("ACTIONS", "enqueue, allocate, defrag"))
    policy = DecisionPolicy.of(config)
    question = WhatIfSpec(drain_nodes=("n0",))
    answer = what_if(world.mirror, policy, question, namespace="ns", now=NOW)
    assert (answer.moves, answer.starting) == ((), ())


def test_moves_in_namespaces_of_others_are_counted():
    answer = ask(fragmented())
    hidden = hiding.hide(answer, set())
    assert (hidden.moves, hidden.hidden) == ((), 2)
    [move] = answer.moves
    other = msgspec.structs.replace(move, starts=ObjectRef(namespace="other", name="x", kind="Job"))
    shown = hiding.hide(msgspec.structs.replace(answer, moves=(other,)), {"ns"})
    assert [each.starts for each in shown.moves] == [None]
