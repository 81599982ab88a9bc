"""Reconcilers of CronJobs and flows that die by kill -9 at each fault point, on a real API server.

That no death at any write has a job made twice is shown in `tests/unit/controller/test_kept_once`;
here the process is a real one, and so are the API server, the cache and the bus.
"""

import pytest

from tests.integration.controller.conftest import Hand, services_of_a_test
from tests.integration.controller.crons import change, jobs_of, make, wait_status, wait_told
from tests.integration.controller.test_flows import finish, flow, in_phase, names, template
from tests.integration.controller.test_flows import wait_status as wait_flow
from tests.support.fleet import Fleet
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


services = services_of_a_test


async def uids(hand: Hand) -> dict[str, str]:
    """Return the uids of all jobs by name."""
    found = await hand.api.items("jobs", hand.namespace)
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


async def test_killed_between_two_jobs_of_a_flow_the_other_is_made_and_none_twice(
    services: Fleet, hand: Hand
) -> None:
    dying = await services.start("controller", fault="controller.after-flow-create")
    for name in ("a", "b", "end"):
        await template(hand, name)
    await flow(hand, "cut", {"a": [], "b": [], "end": ["a", "b"]})
    await dying.died_at_its_fault()
    made = await uids(hand)
    assert len(made) == 1
    await services.start("controller", instance="b")
    await finish(hand, "cut-a")
    await finish(hand, "cut-b")
    assert made.items() <= (await uids(hand)).items()
    await finish(hand, "cut-end")
    await wait_flow(hand, "jobflows", "cut", in_phase("Succeed"))
    assert await names(hand) == {"cut-a", "cut-b", "cut-end"}


async def test_killed_after_a_flows_status_its_jobs_are_made_once_by_whichever_controller(
    services: Fleet, hand: Hand
) -> None:
    dying = await services.start("controller", fault="controller.after-flow-status")
    await template(hand, "only")
    await flow(hand, "cut", {"only": []}, jobRetainPolicy="delete")
    await dying.died_at_its_fault()
    before = await uids(hand)
    await services.start("controller", instance="b")
    await finish(hand, "cut-only")
    assert set(before) <= {"cut-only"}
    await wait_flow(hand, "jobflows", "cut", in_phase("Succeed"))

    async def is_gone() -> bool:
        return await uids(hand) == {}

    await until(is_gone, deadline_s=30, describe=lambda: hand._told("no jobs", ""))


async def test_killed_between_a_cron_jobs_status_and_its_old_jobs_no_time_is_run_again(
    services: Fleet, hand: Hand
) -> None:
    # Passages: the job is active, the job has completed.
    dying = await services.start("controller", fault="controller.after-cron-status@2")
    await make(hand, "torn", successfulJobsHistoryLimit=0)
    await wait_status(hand, "torn", lambda s: s.get("active"))
    (made,) = await jobs_of(hand, "torn")
    name = made["metadata"]["name"]
    await hand.wait_pods(1)
    await hand.report(f"{name}-a-0", "Running")
    await hand.wait_job(name, "Running")
    await hand.report(f"{name}-a-0", "Succeeded", 0)
    await dying.died_at_its_fault()
    assert len(await jobs_of(hand, "torn")) == 1
    await services.start("controller", instance="b")
    await wait_told(hand, "torn", "SuccessfulDelete")
    await wait_status(hand, "torn", lambda s: s.get("lastSuccessfulTime") and not s.get("active"))
    assert await jobs_of(hand, "torn") == []


async def test_killed_between_a_replaced_job_and_its_successor_one_is_made(
    services: Fleet, hand: Hand
) -> None:
    dying = await services.start("controller", fault="controller.after-cron-delete")
    await make(hand, "often", concurrencyPolicy="Replace")
    status = await wait_status(hand, "often", lambda s: s.get("active"))
    before = status["active"][0]["uid"]
    await change(hand, "often", schedule="* * * * *")
    await dying.died_at_its_fault()
    assert await jobs_of(hand, "often") == []
    await services.start("controller", instance="b")
    seen: list[list[str]] = []

    async def replaced() -> bool:
        jobs = [job["metadata"]["uid"] for job in await jobs_of(hand, "often")]
        found = await hand.api.get("cronjobs", hand.namespace, "often")
        active = [ref["uid"] for ref in found["status"].get("active", [])]
        seen[:] = [jobs, active]
        return len(jobs) == 1 and jobs == active and jobs != [before]

    await until(replaced, deadline_s=30, describe=lambda: hand._told("one job", seen))
