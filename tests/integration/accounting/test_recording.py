"""Accounting as a process on a real nats-server: nothing is lost or doubled when it is killed."""

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.events import Event, JobPhaseChanged, PodBound
from pumice.events.envelope import encode, subject
from pumice.local.nats import NatsServer
from shared.contracts import codec
from shared.contracts.usage import QueueUsage
from tests.contract.scheduler.scheduler_stage import STREAMS, SUBJECTS, Stage, scheduler_stage
from tests.support.wait import until
from tests.support.world import stored_group, stored_pod

PODS_PER_JOB = 4
KILLS = 8


class Usage:
    """What a test publishes, and the rows that accounting has to have in the end."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._events = stage.bus.publisher(STREAMS.events.name)
        self.bound: dict[str, float] = {}

    async def event(self, event: Event, at_s: float) -> None:
        payload = encode(event, id=f"{event.topic}-{event.key}-{at_s}", time=at_s, source="/test")
        await self._events.publish(subject(event, cluster="local"), payload)

    async def job(self, name: str) -> None:
        uid = f"uid-{name}"
        group = f"{name}-{uid}"
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "uid": uid}
        meta = {
            "ownerReferences": [{**owner, "controller": True}],
            "annotations": {"pumice.dev/user": "ann"},
        }
        spec = {"minMember": PODS_PER_JOB, "minResources": {"cpu": f"{2 * PODS_PER_JOB}"}}
        body = stored_group(f"ns/{group}", phase="Inqueue", metadata=meta, queue="research", **spec)
        await self._stage.fact("podgroups", f"ns/{group}", body)
        for index in range(PODS_PER_JOB):
            await self._start(name, group, f"{name}-{index}")

    async def _start(self, name: str, group: str, pod: str) -> None:
        key, at_s = f"ns/{pod}", round(time.time(), 3)
        marks = {
            "scheduling.k8s.io/group-name": group,
            "volcano.sh/job-name": name,
            "pumice.dev/user": "ann",
        }
        body = stored_pod(key, cpu="2", metadata={"annotations": marks})
        await self._stage.fact("pods", key, body)
        event = PodBound(
            pod=key, uid=f"uid-{key}", node="n0", gang=f"ns/{group}", queue="research",
            job=f"ns/{name}",
        )  # fmt: skip
        await self.event(event, at_s)
        self.bound[f"uid-{key}"] = at_s
        body = stored_pod(key, cpu="2", node="n0", metadata={"annotations": marks})
        await self._stage.fact("pods", key, body)

    async def end(self, name: str, *, deleted: bool) -> None:
        for index in range(PODS_PER_JOB):
            key = f"ns/{name}-{index}"
            if not deleted:
                meta = {"annotations": {"scheduling.k8s.io/group-name": f"{name}-uid-{name}"}}
                body = stored_pod(key, cpu="2", node="n0", phase="Succeeded", metadata=meta)
                await self._stage.fact("pods", key, body)
            await self._stage.fact("pods", key, None, f"uid-{key}")
        event = JobPhaseChanged(job=f"ns/{name}", uid=f"uid-{name}", phase="Completed")
        await self.event(event, time.time())


@pytest_asyncio.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with scheduler_stage(nats_server, tmp_path) as opened:
        yield opened


def rows(database: Path, query: str) -> list[tuple]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.nats
@pytest.mark.timeout(180)
async def test_killed_again_and_again_it_has_each_allocation_and_job_once(stage, tmp_path):
    database = tmp_path / "usage.db"
    usage, drawn = Usage(stage), random.Random(1)

    killed = asyncio.Event()

    async def publish() -> int:
        number = 0
        while not killed.is_set():
            await usage.job(f"j{number}")
            if number >= 3:
                await usage.end(f"j{number - 3}", deleted=number % 2 == 0)
            await asyncio.sleep(0.1)
            number += 1
        for left in range(number - 3, number):
            await usage.end(f"j{left}", deleted=False)
        return number

    publishing = asyncio.create_task(publish())
    for kill in range(KILLS):
        fault = drawn.choice(["accounting.before-write", "accounting.after-write"])
        service = await stage.fleet.start(
            "accounting",
            instance=f"k{kill}",
            wait=False,
            fault=f"{fault}@{drawn.randrange(2, 8)}",
            database=f"sqlite:///{database}",
        )
        await service.died_at_its_fault()
    killed.set()
    jobs = await publishing
    await stage.fleet.start("accounting", instance="last", database=f"sqlite:///{database}")

    def ended() -> bool:
        query = "select count(*) from allocations where ended is not null"
        query_of_jobs = "select count(*) from jobs where ended is not null"
        return rows(database, query) == [(jobs * PODS_PER_JOB,)] and rows(
            database, query_of_jobs
        ) == [(jobs,)]

    await until(ended, describe=stage.fleet.logs)
    found = rows(
        database, "select pod_uid, started, ended, cpu_milli, user, queue, job_uid from allocations"
    )
    assert {uid: started for uid, started, *_ in found} == usage.bound
    assert all(ended >= started for _, started, ended, *_ in found)
    assert {row[3:6] for row in found} == {(2000, "ann", "research")}
    assert {row[6] for row in found} == {f"uid-j{number}" for number in range(jobs)}
    assert rows(database, "select count(*), count(started), count(ended) from jobs") == [
        (jobs, jobs, jobs)
    ]
    expected = sum(2000 * (ended - started) for _, started, ended, *_ in found)
    ((recorded,),) = rows(
        database, "select sum(amount_seconds) from usage_days where resource = 'cpu'"
    )
    assert recorded == pytest.approx(expected)
    assert rows(database, "select * from gaps") == []


@pytest.mark.nats
async def test_events_that_were_discarded_while_it_was_away_leave_a_gap(stage, tmp_path):
    database, usage = tmp_path / "usage.db", Usage(stage)
    flags = {"database": f"sqlite:///{database}"}
    service = await stage.fleet.start("accounting", instance="before", **flags)
    await usage.job("a")
    query = "select count(*) from allocations where approximate = 0"
    await until(lambda: rows(database, query) == [(PODS_PER_JOB,)], describe=stage.fleet.logs)
    service.kill()
    await usage.end("a", deleted=True)
    await usage.job("b")
    await stage.bus.purge(STREAMS.events.name, "pumice.local.events.>")
    await usage.end("b", deleted=False)
    await stage.fleet.start("accounting", instance="after", **flags)

    def ended() -> bool:
        query = "select count(*) from allocations where ended is not null"
        return rows(database, query) == [(PODS_PER_JOB,)]

    await until(ended, describe=stage.fleet.logs)
    ((begin, end, reason),) = rows(database, 'select "begin", "end", reason from gaps')
    assert begin < end
    assert "no longer kept" in reason


@pytest.mark.nats
async def test_what_users_have_used_is_published_with_decay(stage, tmp_path):
    usage = Usage(stage)
    await usage.job("j0")
    await stage.fleet.start("accounting", database=f"sqlite:///{tmp_path}/usage.db")

    async def published() -> QueueUsage | None:
        message = await stage.bus.last(STREAMS.usage.name, SUBJECTS.usage("research"))
        return None if message is None else codec.decode_usage(message.payload)

    found = await until(published, describe=stage.fleet.logs)
    assert found is not None
    assert found.half_life_s == 7 * 86400
    held_s = sum(found.at - at_s for at_s in usage.bound.values())
    assert found.users["ann"]["cpu"] == pytest.approx(2 * held_s, rel=0.01)
