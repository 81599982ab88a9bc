"""CronJobs by the clock: what comes of them from one minute to the next (X01 to X04).

They play from the beginning on, beside all others, so that these two minutes cost none.
"""

from typing import Any

import pytest

from shared.api import time
from tests.integration.scenarios.offers import taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, ending, task
from tests.support import world

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

SLOT = "volcano.sh/cronjob-scheduled-timestamp"


async def every_minute(scene: Scene, name: str = "c", **spec: Any) -> None:
    """Create a CronJob of one pod per minute; `pod` are the annotations of the pods."""
    pod = spec.pop("pod", None)
    template = {"spec": world.job("x", task("a", 1, annotations=pod))["spec"]}
    whole_spec = {"schedule": "* * * * *", "jobTemplate": template, **spec}
    await taken(scene, "cronjobs", whole("cronjobs", name, whole_spec))


async def cron(scene: Scene, name: str = "c") -> Object:
    """Return a CronJob."""
    return await scene.api.get("cronjobs", scene.namespace, name)


async def jobs(scene: Scene, name: str = "c") -> dict[str, Object]:
    """Return the jobs that a CronJob controls and that are not being deleted, by name."""
    uid = (await cron(scene, name))["metadata"]["uid"]
    return {
        job["metadata"]["name"]: job
        for job in await scene.api.items("jobs", scene.namespace)
        if job["metadata"]["ownerReferences"][0]["uid"] == uid
        and "deletionTimestamp" not in job["metadata"]
    }


async def active(scene: Scene, count: int, *, name: str = "c", other_than: str = "") -> set[str]:
    """Wait until so many jobs are active, none of them `other_than`; return their names."""
    names: set[str] = set()

    async def found() -> bool:
        nonlocal names
        names = {
            ref["name"] for ref in (await cron(scene, name)).get("status", {}).get("active", [])
        }
        return len(names) == count and other_than not in names

    await scene.wait(found, lambda: f"{count} active jobs of {name}, there are {names}")
    return names


@scenarios
async def jobs_may_run_side_by_side(scene: Scene) -> None:
    await every_minute(scene)
    names = await active(scene, 2)
    made = await jobs(scene)
    assert names <= set(made)
    due = sorted(time.parse(made[name]["metadata"]["annotations"][SLOT]) for name in names)
    assert due[1] - due[0] == 60
    status = (await cron(scene))["status"]
    assert time.parse(status["lastScheduleTime"]) >= due[1]
    assert {job["metadata"]["ownerReferences"][0]["kind"] for job in made.values()} == {"CronJob"}
    await scene.pods(2, phase="Running")


@scenarios
async def a_job_that_runs_is_waited_for(scene: Scene) -> None:
    await every_minute(scene, concurrencyPolicy="Forbid")
    (first,) = await active(scene, 1)
    await scene.event("ForbidConcurrent", about="c")
    assert await active(scene, 1) == {first}
    assert set(await jobs(scene)) == {first}
    await scene.phase(first, "Running")
    await scene.end(f"{first}-a-0")
    (second,) = await active(scene, 1, other_than=first)
    await scene.phase(second, "Running")
    assert set(await jobs(scene)) == {first, second}, "the time that was missed is made up for once"


@scenarios
async def a_job_that_runs_is_replaced(scene: Scene) -> None:
    await every_minute(scene, concurrencyPolicy="Replace")
    (first,) = await active(scene, 1)
    await scene.phase(first, "Running")
    (second,) = await active(scene, 1, other_than=first)
    await scene.event("ReplaceConcurrent", about="c")
    await scene.gone("jobs", first)
    await scene.phase(second, "Running")
    assert set(await jobs(scene)) == {second}
    await scene.pods(1, phase="Running")


@scenarios
async def a_suspended_one_waits_and_begins_when_it_is_resumed(scene: Scene) -> None:
    await every_minute(scene, "rests", suspend=True)
    await every_minute(scene, "works")
    await active(scene, 1, name="works")
    assert await jobs(scene, "rests") == {}
    assert "lastScheduleTime" not in (await cron(scene, "rests")).get("status", {})
    await scene.api.patch("cronjobs", scene.namespace, "rests", {"spec": {"suspend": False}})
    await active(scene, 1, name="rests")


def forgets(code: int, phase: str, limit: str) -> Scenario:
    """Return the scenario of jobs that end at once, of which one is kept (X03)."""

    async def scenario(scene: Scene) -> None:
        await every_minute(scene, pod=ending(code), **{limit: 1})
        seen: dict[str, str] = {}

        async def second_alone() -> bool:
            found = {name: job["status"]["state"]["phase"] for name, job in await ended(scene)}
            seen.update(found)
            return len(seen) == 2 and set(found) == {max(seen)}

        await scene.wait(second_alone, lambda: f"the second {phase} job alone, seen {seen}")
        assert set(seen.values()) == {phase}
        await active(scene, 0)
        completed = "lastSuccessfulTime" in (await cron(scene))["status"]
        assert completed == (phase == "Completed")

    return scenario


async def ended(scene: Scene) -> list[tuple[str, Object]]:
    """Return the jobs that have ended."""
    return [
        (name, job)
        for name, job in (await jobs(scene)).items()
        if job.get("status", {}).get("state", {}).get("phase") in {"Completed", "Failed"}
    ]


scenarios.add(
    "of jobs that succeed one is kept", forgets(0, "Completed", "successfulJobsHistoryLimit")
)
scenarios.add("of jobs that fail one is kept", forgets(1, "Failed", "failedJobsHistoryLimit"))


@scenarios
async def what_it_made_goes_with_it(scene: Scene) -> None:
    await every_minute(scene)
    (name,) = await active(scene, 1)
    await scene.phase(name, "Running")
    await scene.api.delete("cronjobs", scene.namespace, "c")
    await scene.gone("jobs", name)
    await scene.pods(0)


@scenarios.mark()
async def test_minutes(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
