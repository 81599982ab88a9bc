"""Namespaces take turns in the work queue of every controller."""

import asyncio

import pytest

from services.controller.controllers import CONTROLLERS
from tests.support.clock import settle
from tests.unit.controller.reconcilers import Process, Stage

MANY = 600


@pytest.mark.parametrize("row", CONTROLLERS, ids=lambda row: row.name)
async def test_many_objects_of_one_namespace_do_not_hold_up_those_of_another(row) -> None:
    queue = Process(Stage()).controllers[row.reconciler.name].queue
    for i in range(MANY):
        queue.add(f"many/{i}")
    queue.add("other/gang")
    served: list[str] = []

    async def serve(key: str) -> None:
        served.append(key)

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(queue.run(serve, workers=1))
        await settle()
        serving.cancel()
    assert served.index("other/gang") <= 1
    assert sorted(served) == sorted([*(f"many/{i}" for i in range(MANY)), "other/gang"])
