"""Evictions on the bus: one intent per pod that waits, and what follows when room is there."""

from pathlib import Path

from shared.contracts import messages as m
from tests.contract.scheduler.scheduler_stage import Stage, nodes_of

PREEMPTING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


async def _preempting(stage: Stage, directory: Path) -> list[m.Evict]:
    """Fill two nodes with a job of low priority; return what a gang of high priority evicts."""
    conf = directory / "volcano-scheduler.conf"
    conf.write_text(PREEMPTING)
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "value": value}
        await stage.fact("priorityclasses", name, body)
    await stage.cluster(nodes=2, cpu="4")
    await stage.group("low", 1, phase="Running", priorityClassName="low")
    for index in range(8):
        await stage.pod("low", index, node=f"n{index % 2}")
    await stage.start(scheduler_conf=str(conf))
    await stage.group("high", 2, priorityClassName="high")
    for index in range(2):
        await stage.pod("high", index, cpu="2")
    commands = await stage.until_commands(2)
    assert all(isinstance(command, m.Evict) for command in commands)
    return [command for command in commands if isinstance(command, m.Evict)]


async def test_room_for_a_gang_is_made_by_one_message_per_pod_that_waits(
    stage: Stage, tmp_path: Path
):
    intents = await _preempting(stage, tmp_path)
    preemptors = {intent.preemptor.pod: intent.preemptor for intent in intents if intent.preemptor}
    assert preemptors.keys() == {"ns/high-0", "ns/high-1"}
    for intent in intents:
        assert intent.reason == "preempt"
        assert intent.preemptor is not None
        assert {victim.node for victim in intent.victims} == {intent.preemptor.node}
        assert len(intent.victims) == 2
        assert {victim.job for victim in intent.victims} == {"ns/low"}
    assert len({victim.uid for intent in intents for victim in intent.victims}) == 4


async def test_those_who_waited_are_bound_where_room_was_made_and_nobody_else_is_evicted(
    stage: Stage, tmp_path: Path
):
    intents = await _preempting(stage, tmp_path)
    nodes = {i.preemptor.pod: i.preemptor.node for i in intents if i.preemptor}
    for index in range(2):
        await stage.pod("high", index, cpu="2", nominated=nodes[f"ns/high-{index}"])
    assert len(await stage.commands()) == 2
    for intent in intents:
        await stage.evicted(intent)
    commands = await stage.until_commands(3)
    (bind,) = [command for command in commands if isinstance(command, m.BindGang)]
    assert nodes_of(bind) == nodes
    assert len(commands) == 3
