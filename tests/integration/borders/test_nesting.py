"""Jobs that are nested without end: the API server stores them, and nobody else may stumble."""

import json
import secrets

import pytest

from tests.integration.borders.conftest import Borders, state_of
from tests.support import world
from tests.support.api import path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]


async def submit(borders: Borders, levels: int) -> str:
    """Create a job whose template has a field of so many levels; the CRD leaves templates open."""
    job = world.job(f"deep-{secrets.token_hex(3)}", world.task("w", 1, cpu="100m", memory="16Mi"))
    job["spec"]["tasks"][0]["template"]["spec"]["deep"] = "HERE"
    nested = '{"a":' * levels + "1" + "}" * levels
    body = json.dumps(job).replace('"HERE"', nested).encode()
    assert await borders.api.send("POST", path("jobs", borders.namespace), body) == 201
    return str(job["metadata"]["name"])


async def test_a_job_beyond_the_bound_says_so(borders: Borders) -> None:
    name = await submit(borders, 300)
    job = await borders.has("jobs", name, lambda job: "message" in state_of(job))
    assert state_of(job)["reason"] == "InvalidSpec"
    assert state_of(job)["message"] == "spec.tasks[0].template: nested more than 100 levels deep"
    assert await borders.api.send("DELETE", path("jobs", borders.namespace, name)) == 200


async def test_a_job_that_no_decoder_can_read_is_reported_and_costs_no_other(
    borders: Borders,
) -> None:
    name = await submit(borders, 5000)
    await borders.said("cache", "object_unreadable", name, "nested more than 100 levels deep")
    await borders.a_good_job_runs()
    assert await borders.api.send("DELETE", path("jobs", borders.namespace, name)) == 200
