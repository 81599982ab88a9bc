"""Jobs of flows and CronJobs are made once, whenever a process dies and however late news comes.

The reconcilers are the controller's own, on the embedded API server
(`tests.unit.controller.reconcilers`).
"""

import pytest

from shared.api import kinds, time
from tests.unit.controller.reconcilers import Died, Process, Stage, job_spec

pytestmark = pytest.mark.laws

DEATHS = range(1, 9)
"""The writes after which a process dies: none of these courses begins with more."""


class Successors:
    """Processes one after the other; the first dies, the next begins with empty stores."""

    def __init__(self, stage: Stage, *, dies_at: int) -> None:
        self.stage = stage
        self.process = Process(stage, dies_at=dies_at)

    async def look(self, *controllers: str, learn: bool = True) -> None:
        """Let the process, or its successor if it dies, look at everything."""
        if learn:
            self.process.relist()
        try:
            await self.process.look(*controllers)
        except Died:
            self.process = Process(self.stage)
            self.process.relist()
            await self.process.look(*controllers)


def flow_phase(stage: Stage) -> str:
    (flow,) = stage.items(kinds.JOBFLOW)
    return str(flow.get("status", {}).get("state", {}).get("phase", ""))


@pytest.mark.parametrize("dies_at", DEATHS)
@pytest.mark.parametrize("retain", ["retain", "delete"])
async def test_a_flow_makes_each_job_once_whenever_a_process_dies(
    dies_at: int, retain: str
) -> None:
    stage = Stage()
    for name in ("a", "b", "c"):
        stage.template(name)
    stage.flow("f", {"a": [], "b": [], "c": ["a", "b"]}, jobRetainPolicy=retain)
    successors = Successors(stage, dies_at=dies_at)
    for _ in range(12):
        await successors.look("jobflows", "jobtemplates")
        stage.advance_jobs()
    assert flow_phase(stage) == "Succeed"
    assert sorted(stage.made) == ["f-a", "f-b", "f-c"]
    left = [job["metadata"]["name"] for job in stage.items(kinds.JOB)]
    assert left == ([] if retain == "delete" else ["f-a", "f-b", "f-c"])


@pytest.mark.parametrize("lag", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "order", [("jobflows", "collector"), ("collector", "jobflows")], ids="-".join
)
async def test_a_flow_does_not_make_a_job_again_that_went_by_its_time_to_live(
    order: tuple[str, str], lag: int
) -> None:
    """The collector of one process may be far ahead of the controller of flows in another (G01)."""
    stage = Stage()
    for name in ("a", "b"):
        stage.template(name, ttlSecondsAfterFinished=0)
    stage.flow("f", {"a": [], "b": ["a"]})
    flows, collector = Process(stage), Process(stage)
    for number in range(40):
        for controller in order:
            if controller == "collector":
                collector.relist()
                await collector.look("collector")
            elif number % lag == 0:
                flows.relist()
                await flows.look("jobflows")
        stage.advance_jobs()
        await stage.clock.advance(1.0)
    assert flow_phase(stage) == "Succeed"
    assert stage.made == ["f-a", "f-b"]
    assert stage.items(kinds.JOB) == [], "each went when its flow had told of its end"


def due(first: str, last: str) -> list[str]:
    """Return the names of the jobs that are due from a minute to another."""
    begin, end = (int(time.parse(f"2025-03-11T{clock}:00Z")) // 60 for clock in (first, last))
    return [f"c-{minute}" for minute in range(begin, end + 1)]


@pytest.mark.parametrize("dies_at", DEATHS)
@pytest.mark.parametrize(
    ("policy", "ttl"), [("Allow", None), ("Allow", 0), ("Forbid", 0), ("Replace", 0)]
)
async def test_no_due_time_is_run_twice_or_lost_whenever_a_process_dies(
    dies_at: int, policy: str, ttl: int | None
) -> None:
    """Jobs end within their minute; the oldest are deleted, or go by their time to live."""
    stage = Stage()
    template = stage_template(ttl)
    spec = {"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": template}
    stage.create(kinds.CRONJOB, "c", {**spec, "successfulJobsHistoryLimit": 1})
    successors = Successors(stage, dies_at=dies_at)
    for _ in range(4 * 4):
        await successors.look("collector", "cronjobs")
        stage.advance_jobs()
        await stage.clock.advance(15.0)
    await successors.look("cronjobs")
    assert stage.made == due("10:01", "10:04")
    (cron,) = stage.items(kinds.CRONJOB)
    assert cron["status"]["lastScheduleTime"] == "2025-03-11T10:04:00Z"
    assert cron["status"]["lastSuccessfulTime"] == "2025-03-11T10:03:30Z"


@pytest.mark.parametrize("dies_at", DEATHS)
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
async def test_jobs_that_go_on_are_kept_waited_for_or_replaced_whenever_a_process_dies(
    dies_at: int, policy: str
) -> None:
    stage = Stage()
    template = stage_template(None)
    spec = {"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": template}
    stage.create(kinds.CRONJOB, "c", spec)
    successors = Successors(stage, dies_at=dies_at)
    for _ in range(4 * 3):
        await successors.look("cronjobs")
        stage.advance_jobs(most=2)
        await stage.clock.advance(20.0)
    await successors.look("cronjobs")
    times = due("10:01", "10:04")
    running = sorted(job["metadata"]["name"] for job in stage.items(kinds.JOB))
    (cron,) = stage.items(kinds.CRONJOB)
    assert sorted(ref["name"] for ref in cron["status"]["active"]) == running
    if policy == "Forbid":
        assert stage.made == running == times[:1]
    else:
        assert stage.made == times
        assert running == (times if policy == "Allow" else times[-1:])


async def test_a_job_that_ended_unnoticed_is_noted_before_it_goes() -> None:
    """Made by a process that died, run and collected by others: its time is not run again."""
    stage = Stage("2025-03-11T10:00:59Z")
    spec = {"schedule": "* * * * *", "jobTemplate": stage_template(0)}
    stage.create(kinds.CRONJOB, "c", spec)
    await stage.clock.advance(2.0)
    dying = Process(stage, dies_at=2)
    dying.relist()
    with pytest.raises(Died):
        await dying.look("cronjobs")
    for _ in range(3):
        stage.advance_jobs()
    other = Process(stage)
    other.relist()
    await other.look("collector")
    assert len(stage.items(kinds.JOB)) == 1, "its CronJob does not know of it yet"
    await other.look("cronjobs", "collector")
    assert stage.items(kinds.JOB) == []
    await other.look("cronjobs")
    assert stage.made == due("10:01", "10:01")


def stage_template(ttl: int | None) -> dict[str, object]:
    more = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    return {"spec": job_spec(**more)}


async def test_the_first_status_of_a_flow_that_only_waits_is_written_after_a_second():
    """Its creator may still update the flow, which an earlier status would make a Conflict."""
    stage = Stage()
    stage.template("a")
    stage.flow("f", {"a": []})
    process = Process(stage)
    for after_s, phase in ((0.0, ""), (0.9, ""), (0.1, "Pending")):
        await stage.clock.advance(after_s)
        process.relist()
        await process.look("jobflows")
        assert flow_phase(stage) == phase
