"""A job whose handling takes for ever stops one process once, on a real nats-server."""

import asyncio
from pathlib import Path

import aiohttp

from pumice.events import decode
from services.scheduler.overruns import decode as entries_of
from shared.contracts import messages as m
from tests.contract.scheduler.scheduler_stage import STREAMS, SUBJECTS, Stage
from tests.support.fleet import Service
from tests.support.wait import until

BUG = '''
import services.scheduler.policy.plugins.gang as gang
exec("""
import ctypes, time
def contribute(self, hooks, cluster, before=Gang.contribute):
    before(self, hooks, cluster)
    def valid(job):
        while job.key == "ns/slow":
            {work}
        return None
    hooks.job_valid(valid)
Gang.contribute = contribute
""", gang.__dict__)
'''
BUSY = BUG.replace("{work}", "pass")
LETS_NO_THREAD_IN = BUG.replace("{work}", "ctypes.PyDLL(None).sleep(600)")
FLAGS = {"decision_budget": "1s", "decision_limit": "4s"}


async def livez(service: Service) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=5)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://{service.address}/livez") as answer,
    ):
        return answer.status, await answer.text()


async def ended(service: Service) -> None:
    async with asyncio.timeout(60):
        await service.process.exited()


async def test_a_slow_job_is_named_ends_its_process_and_keeps_the_next_one_from_nothing(
    stage: Stage,
) -> None:
    await stage.cluster()
    first = await stage.start("a", bug=BUSY, **FLAGS)
    assert await livez(first) == (200, "ok")
    await stage.gang("slow", 1)
    line = await first.said("object_quarantined", "ns/slow")
    assert '"gang"' in line, "the plugin"
    assert "decision_slow" in first.log
    assert await first.metric("pumice_scheduler_slow_decisions_total") == 1

    async def fails() -> bool:
        status, text = await livez(first)
        return status == 503 and "ns/slow" in text

    await until(fails, describe="/livez fails and names the job")
    await ended(first)
    assert "valid" in first.log, "the stack of the decision"
    await stage.gang("g", 3)
    second = await stage.start("b", bug=BUSY, **FLAGS)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/g"
    assert (await livez(second))[0] == 200

    async def told() -> bool:
        wanted = await stage.desired("podgroups", "ns/slow")
        return isinstance(wanted, m.DesiredPodGroup) and any(
            c.reason == "Quarantined" and "quarantined" in c.message for c in wanted.conditions
        )

    await until(told, describe="the PodGroup says that it is quarantined")
    subject = SUBJECTS.events_about("gang.unschedulable")
    told_of = [
        decode(message.payload) async for message in stage.bus.scan(STREAMS.events.name, subject)
    ]
    assert any("quarantined" in str(event) for event in told_of)


async def test_a_job_that_lets_no_other_thread_in_is_left_out_after_two_deaths(
    stage: Stage, tmp_path: Path
) -> None:
    flags = {**FLAGS, "watchdog_dir": str(tmp_path / "watchdog")}
    await stage.cluster()
    await stage.gang("slow", 1)
    await stage.gang("g", 3)
    for instance in "ab":
        await ended(await stage.start(instance, wait=False, bug=LETS_NO_THREAD_IN, **flags))
    third = await stage.start("c", bug=LETS_NO_THREAD_IN, **flags)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/g"
    assert "died_while_deciding" in third.log


async def test_a_kill_in_a_slow_decision_leaves_its_job_out_of_the_next(
    stage: Stage, tmp_path: Path
) -> None:
    directory = tmp_path / "watchdog"
    flags = {"watchdog_dir": str(directory)}
    await stage.cluster()
    first = await stage.start("a", bug=BUSY, **flags)
    await stage.gang("slow", 1)
    await until(lambda: (directory / "handling").read_bytes()[:1] == b"!", describe="it is slow")
    first.kill()
    await stage.gang("g", 3)
    await stage.start("b", bug=BUSY, **flags)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/g"

    async def published() -> bool:
        found = await stage.bus.last(STREAMS.lease.name, SUBJECTS.quarantine())
        return found is not None and [e.key for e in entries_of(found.payload)] == ["ns/slow"]

    await until(published, describe="standbys learn of it")
