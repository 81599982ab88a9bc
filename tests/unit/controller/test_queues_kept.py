"""The controller of queues on an API server in memory: order, refusals, deaths (Q02, Q04, Q05)."""

from typing import Any

import pytest

from shared.api import kinds
from tests.unit.controller.reconcilers import Died, Process, Stage


def order(stage: Stage, action: str, queue: str) -> None:
    """Give an order to a queue."""
    uid = stage.ask("GET", kinds.QUEUE, queue)["metadata"]["uid"]
    target = {"apiVersion": kinds.QUEUE.api_version, "kind": "Queue", "name": queue, "uid": uid}
    body = {
        "apiVersion": kinds.COMMAND.api_version,
        "kind": "Command",
        "metadata": {"generateName": "order-"},
        "action": action,
        "target": target,
    }
    stage.ask("POST", kinds.COMMAND, body=body)


def tree(stage: Stage) -> None:
    """Create queue b below a, c below b, and d."""
    for name, parent in (("a", ""), ("b", "a"), ("c", "b"), ("d", "root")):
        stage.create(kinds.QUEUE, name, {"parent": parent} if parent else {})


def states(stage: Stage) -> dict[str, str]:
    found: dict[str, Any] = {q["metadata"]["name"]: q for q in stage.items(kinds.QUEUE)}
    return {name: queue.get("status", {}).get("state", "") for name, queue in found.items()}


async def keep(process: Process, *, rounds: int = 4) -> None:
    """Let the controller of queues reconcile a few times, and tell what it has to."""
    async with process.running("queues"), process.running("events"):
        await seconds(process, rounds)


async def seconds(process: Process, count: int) -> None:
    """Let time pass, and the process learn of the world each second."""
    for _ in range(count):
        process.relist()
        await process.stage.clock.advance(1.0)


async def test_queues_get_parents_and_states_and_then_nothing_is_written() -> None:
    stage = Stage()
    tree(stage)
    process = Process(stage)
    await keep(process)
    assert states(stage) == dict.fromkeys(("root", "default", "a", "b", "c", "d"), "Open")
    assert stage.ask("GET", kinds.QUEUE, "a")["spec"]["parent"] == "root"
    before = stage.writes.total()
    await keep(process, rounds=40)
    assert stage.writes.total() == before


async def test_one_queue_that_is_refused_holds_up_neither_others_nor_their_orders_q05() -> None:
    stage = Stage()
    tree(stage)
    process = Process(stage)
    process.refused = {"PATCH queues/a", "PATCH queues/a/status"}
    await keep(process)
    order(stage, "CloseQueue", "d")
    order(stage, "CloseQueue", "a")
    await keep(process)
    assert states(stage) == {
        "root": "Open", "default": "Open", "a": "", "b": "Open", "c": "Open", "d": "Closed",
    }  # fmt: skip
    assert stage.items(kinds.COMMAND) == []
    told = {
        (event["involvedObject"]["name"], event["type"], event["reason"])
        for event in stage.items(kinds.EVENT)
    }
    assert told >= {
        ("a", "Warning", "SyncQueue"),
        ("a", "Warning", "CloseQueue"),
        ("d", "Normal", "CloseQueue"),
    }
    before = stage.writes["PATCH queues"], stage.writes["PATCH queues/status"]
    await keep(process, rounds=60)
    assert (stage.writes["PATCH queues"], stage.writes["PATCH queues/status"]) == before


@pytest.mark.parametrize("dies_at", range(1, 7))
async def test_an_order_reaches_all_below_whenever_a_process_dies_q04(dies_at: int) -> None:
    """Three states, two marks and the end of the Command: six writes."""
    stage = Stage()
    tree(stage)
    await keep(Process(stage))
    for action, state in (("CloseQueue", "Closed"), ("OpenQueue", "Open")):
        order(stage, action, "a")
        dying = Process(stage, dies_at=dies_at)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with dying.running("queues"):
                await seconds(dying, 4)
        assert caught.group_contains(Died)
        await keep(Process(stage))
        found = states(stage)
        assert [found[name] for name in ("a", "b", "c")] == [state] * 3
        assert found["d"] == "Open"
        assert stage.items(kinds.COMMAND) == []
    marks = [q["metadata"].get("annotations", {}) for q in stage.items(kinds.QUEUE)]
    assert not any("volcano.sh/closed-by-parent" in mark for mark in marks)
