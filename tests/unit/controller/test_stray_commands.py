"""Commands to jobs that are not there, or not the ones meant: told of and deleted (J05)."""

from typing import Any

import pytest

from shared.api import kinds
from tests.unit.controller.reconcilers import Process, Stage, job_spec
from tests.unit.controller.test_jobs_die import JobStage

OLD = "00000000-0000-4000-8000-000000009999"


def order(stage: Stage, name: str, **target: Any) -> None:
    whole = {"apiVersion": kinds.JOB.api_version, "kind": "Job", "name": name, **target}
    body = {
        "apiVersion": kinds.COMMAND.api_version,
        "kind": "Command",
        "metadata": {"name": "order"},
        "action": "AbortJob",
        "target": whole,
    }
    stage.ask("POST", kinds.COMMAND, body=body)


async def look(stage: Stage, key: str) -> list[str]:
    """Look at a job's key once; return what was told of Commands."""
    process = Process(stage)
    process.relist()
    await process.controllers["jobs"].process(key)
    async with process.running("events"):
        await stage.clock.advance(1.0)
    events = [e for e in stage.items(kinds.EVENT) if e["reason"] == "CommandIgnored"]
    assert all(e["involvedObject"]["name"] == "order" for e in events)
    return [e["message"] for e in events]


async def test_a_command_to_no_job_is_told_of_and_deleted() -> None:
    stage = JobStage()
    order(stage, "nobody", uid=OLD)
    told = await look(stage, "default/nobody")
    assert told == ["Command AbortJob has no effect: there is no job default/nobody"]
    assert stage.items(kinds.COMMAND) == []


async def test_a_command_with_the_uid_of_an_earlier_job_is_told_of_and_deleted() -> None:
    stage = JobStage()
    stage.create(kinds.JOB, "j", job_spec())
    order(stage, "j", uid=OLD)
    (told,) = await look(stage, "default/j")
    assert f"not {OLD}" in told
    assert stage.items(kinds.COMMAND) == []


@pytest.mark.parametrize("target", [{}, {"uid": ""}], ids=str)
async def test_a_command_needs_no_uid(target: dict[str, Any]) -> None:
    stage = JobStage()
    stage.create(kinds.JOB, "j", job_spec())
    order(stage, "j", **target)
    assert await look(stage, "default/j") == []
