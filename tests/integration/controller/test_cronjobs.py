"""CronJobs on a real API server (X01 to X04). No test waits for the clock, see `crons`."""

from typing import Any

import pytest

from shared.api.time import format_seconds
from tests.integration.controller.conftest import Hand
from tests.integration.controller.crons import change, jobs_of, make, wait_status, wait_told
from tests.support.fleet import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOT = "volcano.sh/cronjob-scheduled-timestamp"


async def test_a_missed_time_is_made_up_for_once_and_followed_to_its_end(
    controller: Service, hand: Hand
) -> None:
    await make(hand, "monthly", timeZone="Asia/Tokyo")
    status = await wait_status(hand, "monthly", lambda s: s.get("active"))
    (made,) = await jobs_of(hand, "monthly")
    meta = made["metadata"]
    assert meta["annotations"][SLOT].endswith("-01T00:00:00+09:00")
    assert meta["ownerReferences"][0]["kind"] == "CronJob"
    assert meta["ownerReferences"][0]["controller"] is True
    assert status["active"][0]["uid"] == meta["uid"]
    assert status["active"][0]["namespace"] == hand.namespace
    slot = int(meta["name"].removeprefix("monthly-")) * 60
    assert status["lastScheduleTime"] == format_seconds(slot)

    await hand.wait_pods(1)
    await hand.run_all()
    await hand.wait_job(meta["name"], "Running")
    await hand.report(f"{meta['name']}-a-0", "Succeeded", 0)
    await hand.wait_job(meta["name"], "Completed")
    ended = await wait_status(hand, "monthly", lambda s: s.get("lastSuccessfulTime"))
    assert not ended.get("active")
    assert ended["lastScheduleTime"] == status["lastScheduleTime"]
    await wait_told(hand, "monthly", "SuccessfulCreate", "SawCompletedJob")

    await change(hand, "monthly", successfulJobsHistoryLimit=0)
    await wait_told(hand, "monthly", "SuccessfulDelete")
    assert await jobs_of(hand, "monthly") == []


async def test_a_job_that_runs_is_waited_for_or_replaced_as_the_policy_says(
    controller: Service, hand: Hand
) -> None:
    await make(hand, "often", concurrencyPolicy="Forbid")
    await wait_status(hand, "often", lambda s: s.get("active"))
    (first,) = await jobs_of(hand, "often")
    await change(hand, "often", schedule="* * * * *")
    await wait_told(hand, "often", "ForbidConcurrent")
    assert [j["metadata"]["uid"] for j in await jobs_of(hand, "often")] == [
        first["metadata"]["uid"]
    ]

    await change(hand, "often", concurrencyPolicy="Replace")
    await wait_told(hand, "often", "ReplaceConcurrent", "SuccessfulDelete")

    def replaced(status: dict[str, Any]) -> bool:
        uids = {ref["uid"] for ref in status.get("active", [])}
        return bool(uids) and first["metadata"]["uid"] not in uids

    await wait_status(hand, "often", replaced)
    await change(hand, "often", suspend=True)
    assert first["metadata"]["name"] not in {
        j["metadata"]["name"] for j in await jobs_of(hand, "often")
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedule": "* * * * 7"}, "UnParseableCronJobSchedule"),
        ({"timeZone": "Mars/Base"}, "InvalidTimeZone"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_wrong_with_a_schedule_is_said(
    controller: Service, hand: Hand, spec: dict[str, Any], reason: str
) -> None:
    await make(hand, "wrong", **spec)
    await wait_told(hand, "wrong", reason)
    assert await jobs_of(hand, "wrong") == []
