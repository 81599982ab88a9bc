"""CronJobs for tests: made so that one has missed a time, which is made up for at once."""

import time
from collections.abc import Callable
from typing import Any

from shared.api.time import format_seconds
from tests.integration.controller.conftest import Hand
from tests.support.wait import until
from tests.support.world import job, task

DAY_S = 86_400


async def make(hand: Hand, name: str, **spec: Any) -> None:
    """Create a CronJob that has missed the first of this month, and nothing since."""
    template = {"metadata": {"labels": {"of": name}}, "spec": job("x", task("a", 1))["spec"]}
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "@monthly", "jobTemplate": template, "suspend": True, **spec},
    }
    await hand.api.create("cronjobs", body, hand.namespace)
    past = {"status": {"lastScheduleTime": format_seconds(time.time() - 70 * DAY_S)}}
    await hand.api.patch("cronjobs", hand.namespace, name, past, sub="status")
    await change(hand, name, suspend=False)


async def change(hand: Hand, name: str, **spec: Any) -> None:
    await hand.api.patch("cronjobs", hand.namespace, name, {"spec": spec})


async def jobs_of(hand: Hand, name: str) -> list[dict[str, Any]]:
    found = await hand.api.items("jobs", hand.namespace)
    return [one for one in found if one["metadata"]["labels"].get("of") == name]


async def wait_status(
    hand: Hand, name: str, holds: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    async def probe() -> bool:
        nonlocal seen
        seen = (await hand.api.get("cronjobs", hand.namespace, name)).get("status", {})
        return bool(holds(seen))

    await until(probe, deadline_s=30, describe=lambda: hand._told(f"cronjob {name}", seen))
    return seen


async def wait_told(hand: Hand, name: str, *reasons: str) -> None:
    told: set[str] = set()

    async def probe() -> bool:
        for event in await hand.api.items("events", hand.namespace):
            about = event["involvedObject"]
            if (about["kind"], about["name"]) == ("CronJob", name):
                told.add(event["reason"])
        return told >= set(reasons)

    await until(probe, deadline_s=30, describe=lambda: hand._told(f"{reasons}", told))
