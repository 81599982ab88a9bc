"""Many flows and CronJobs do not storm the API server: what is written per object, counted."""

import pytest

from shared.api import keys, kinds
from shared.api.kinds import Kind
from tests.unit.controller.reconcilers import NAMESPACE, Process, Stage, job_spec

FLOWS = 40
CRONS = 60


def job_of_template(name: str, template: str) -> dict[str, object]:
    """Return a job that says which template it was made from."""
    labels = {keys.CREATED_BY_TEMPLATE: f"{NAMESPACE}.{template}"}
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
    kind = kinds.JOB
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": job_spec()}


async def test_a_flow_is_written_once_for_each_change_of_its_jobs_and_then_no_more() -> None:
    stage = Stage()
    for name in ("a", "b"):
        stage.template(name)
    for number in range(FLOWS):
        stage.flow(f"f{number}", {"a": [], "b": ["a"]})
    process = Process(stage)
    for _ in range(12):
        process.relist()
        await process.look("jobflows")
        stage.advance_jobs()
    assert len(stage.made) == 2 * FLOWS
    # Each of two jobs comes and enters three phases; the flow begins, which is its own write.
    assert stage.writes["PATCH jobflows/status"] <= 9 * FLOWS
    assert stage.writes.total() == stage.writes["PATCH jobflows/status"] + 2 * FLOWS
    before = stage.writes.total()
    for _ in range(3):
        process.relist()
        await process.look("jobflows")
    assert stage.writes.total() == before


async def test_a_due_time_of_a_cron_job_costs_three_writes_and_no_time_costs_none() -> None:
    stage = Stage()
    spec = {"schedule": "*/10 * * * *", "jobTemplate": {"spec": job_spec()}}
    for number in range(CRONS):
        stage.create(kinds.CRONJOB, f"c{number}", spec)
    process = Process(stage)
    for _ in range(5):
        process.relist()
        await process.look("cronjobs")
        await stage.clock.advance(60.0)
    assert stage.writes.total() == 0, "none is due before 10:10"
    await stage.clock.advance(300.0)
    for _ in range(6):
        process.relist()
        await process.look("cronjobs")
        stage.advance_jobs()
        await stage.clock.advance(10.0)
    assert stage.writes == {"POST jobs": CRONS, "PATCH cronjobs/status": 2 * CRONS}


async def test_a_template_is_written_once_a_second_however_many_jobs_are_made_of_it() -> None:
    stage = Stage()
    stage.template("t")
    process = Process(stage)
    process.relist()
    async with process.running("jobtemplates"):
        for number in range(50):
            stage.ask("POST", kinds.JOB, body=job_of_template(f"j{number}", "t"))
            process.relist()
            await stage.clock.advance(0.03)
        await stage.clock.advance(1.0)
    (template,) = stage.items(kinds.JOBTEMPLATE)
    assert len(template["status"]["jobDependsOnList"]) == 50
    assert stage.writes["PATCH jobtemplates/status"] <= 3


async def test_a_flow_is_looked_at_when_its_template_comes_and_not_with_each_job_made_of_it() -> (
    None
):
    stage = Stage()
    stage.flow("f", {"t": []})
    process = Process(stage)
    process.relist()
    waiting = process.controllers["jobflows"].queue
    async with process.running("jobflows"):
        await stage.clock.advance(1.0)
        assert stage.made == []
        stage.template("t")
        process.relist()
        await stage.clock.advance(1.0)
        assert stage.made == ["f-t"]
        process.relist()
        await stage.clock.advance(1.0)
        assert len(waiting) == 0
        stage.ask("POST", kinds.JOB, body=job_of_template("another", "t"))
        process.relist()
        assert len(waiting) == 0


async def test_what_is_wrong_with_a_flow_is_told_once_and_again_when_it_changes() -> None:
    stage = Stage()
    stage.template("a")
    stage.flow("f", {"a": [], "b": []})
    process = Process(stage)
    async with process.running("events"):
        for _ in range(6):
            process.relist()
            await process.look("jobflows")
            stage.advance_jobs()
            await stage.clock.advance(1.0)
        assert stage.writes["POST events"] == 2, "the job that was made, the template that is not"
        stage.ask("PATCH", kinds.JOBFLOW, "f", {"spec": {"flows": [{"name": "a"}, {"name": "c"}]}})
        process.relist()
        await process.look("jobflows")
        await stage.clock.advance(1.0)
    assert stage.writes["POST events"] == 3


@pytest.mark.parametrize("kind", [kinds.JOBFLOW, kinds.CRONJOB], ids=lambda kind: kind.plural)
async def test_jobs_that_are_refused_are_asked_for_twice_a_minute_and_when_a_user_acts(
    kind: Kind,
) -> None:
    stage = Stage("2025-03-11T10:00:00Z")
    if kind is kinds.JOBFLOW:
        stage.template("t")
        stage.flow("x", {"t": []})
    else:
        spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": job_spec()}}
        stage.create(kinds.CRONJOB, "x", spec)
        await stage.clock.advance(3600.0)
    process = Process(stage)
    process.refused = {"POST jobs"}
    async with process.running(kind.plural):
        process.relist()
        await stage.clock.advance(300.0)
        assert 10 <= process.denied <= 12
        process.refused.clear()
        note = {"metadata": {"annotations": {"touched": "yes"}}}
        stage.ask("PATCH", kind, "x", note)
        process.relist()
        await stage.clock.advance(1.0)
    assert len(stage.made) == 1


async def test_a_flow_that_is_made_anew_waits_only_for_the_end_of_the_old_ones_jobs() -> None:
    stage = Stage()
    stage.template("t")
    stage.flow("f", {"t": []})
    process = Process(stage)
    async with process.running("jobflows"):
        process.relist()
        await stage.clock.advance(1.0)
        (old,) = stage.items(kinds.JOB)
        hold = {"metadata": {"finalizers": ["example.com/slow"]}}
        stage.ask("PATCH", kinds.JOB, "f-t", hold)
        stage.ask("DELETE", kinds.JOBFLOW, "f")
        stage.flow("f", {"t": []})
        process.relist()
        await stage.clock.advance(1.0)
        assert stage.made == ["f-t"], "the old job is still there"
        stage.ask("PATCH", kinds.JOB, "f-t", {"metadata": {"finalizers": None}})
        process.relist()
        await stage.clock.advance(1.0)
    (new,) = stage.items(kinds.JOB)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert stage.made == ["f-t", "f-t"]


@pytest.mark.parametrize("needs", [{"a": []}, {"missing": []}], ids=["with-a-job", "waits"])
async def test_who_creates_a_flow_may_update_it_at_once(needs: dict[str, list[str]]) -> None:
    stage = Stage()
    stage.template("a")
    stage.flow("f", needs)
    created = stage.ask("GET", kinds.JOBFLOW, "f")
    process = Process(stage)
    for _ in range(3):
        process.relist()
        await process.look("jobflows")
    assert stage.made == (["f-a"] if "a" in needs else []), "its job is made without delay"
    created["metadata"]["labels"] = {"written": "at-once"}
    stage.ask("PUT", kinds.JOBFLOW, "f", created)
    await stage.clock.advance(1.0)
    process.relist()
    await process.look("jobflows")
    assert stage.ask("GET", kinds.JOBFLOW, "f")["status"]["state"]["phase"] == "Pending"


async def test_a_flow_whose_job_runs_says_so_without_delay() -> None:
    stage = Stage()
    stage.template("a")
    stage.flow("f", {"a": []})
    process = Process(stage)
    for _ in range(3):
        process.relist()
        await process.look("jobflows")
        stage.advance_jobs(most=2)
    assert stage.ask("GET", kinds.JOBFLOW, "f")["status"]["state"]["phase"] == "Running"
