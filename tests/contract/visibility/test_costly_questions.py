"""What-ifs and explanations that take too much, while others are answered."""

import json

import msgspec
import pytest

from services.visibility.adapters import query_service
from services.visibility.interface import Queries
from shared.api.visibility import Explanation
from shared.api.whatifs import WhatIfSpec
from shared.runtime.errors import Rejected
from shared.runtime.tasks import TaskGroup
from shared.runtime.values import Seconds
from tests.contract.scheduler.scheduler_stage import Stage
from tests.contract.visibility.conftest import Instance, question, until_pending
from tests.unit.visibility.mirrors import job_of_tasks


async def test_a_what_if_that_takes_too_much_is_killed_and_others_are_answered_meanwhile(
    stage: Stage, instance: Instance
):
    """The pods of the job have a hundred containers each: making them takes more than a second."""
    async with instance(what_if_cpu=Seconds(1.0)) as answers:
        await stage.cluster(nodes=1, cpu="4")
        await until_pending(answers)
        small = question(job=job_of_tasks("train", worker=(1, "3")))
        large = json.loads(msgspec.json.encode(job_of_tasks("large", worker=(10_000, "1m"))))
        large["spec"]["minAvailable"] = 1
        template = large["spec"]["tasks"][0]["template"]["spec"]
        [container] = template["containers"]
        template["containers"] = [{**container, "name": f"c{n}"} for n in range(100)]

        async with TaskGroup() as tasks:
            asked = tasks.create_task(refused(answers, question(job=large)), name="large")
            meanwhile = 0
            while not asked.done():
                assert [tree.metadata.name for tree in await answers.queue_trees()]
                assert (await answers.what_if("ns", small)).starts_now
                meanwhile += 1

        assert "more than 1 s of a processor" in str(asked.result())
        assert meanwhile > 0
        assert (await answers.what_if("ns", small)).starts_now


async def test_an_explanation_that_takes_too_much_is_killed_and_others_are_answered_meanwhile(
    stage: Stage, instance: Instance, monkeypatch: pytest.MonkeyPatch
):
    def endless(*_: object, **__: object) -> Explanation:
        while True:
            pass

    monkeypatch.setattr(query_service, "explain", endless)
    async with instance(what_if_cpu=Seconds(1.0)) as answers:
        await stage.cluster(nodes=1, cpu="4")
        await stage.gang("big", 1, cpu="5")
        await until_pending(answers, "big")

        async def unexplained() -> str:
            with pytest.raises(Rejected) as refusal:
                await answers.explanation("ns", "big")
            return str(refusal.value)

        async with TaskGroup() as tasks:
            asked = tasks.create_task(unexplained(), name="unexplained")
            meanwhile = 0
            while not asked.done():
                assert [tree.metadata.name for tree in await answers.queue_trees()]
                meanwhile += 1

        assert "more than 1 s of a processor" in asked.result()
        assert meanwhile > 0


async def refused(answers: Queries, spec: WhatIfSpec) -> Rejected:
    """Return the refusal of a question."""
    with pytest.raises(Rejected) as refusal:
        await answers.what_if("ns", spec)
    return refusal.value
