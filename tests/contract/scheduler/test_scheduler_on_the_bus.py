"""The scheduler as a process on a real nats-server; the test plays cache and binder by hand."""

import asyncio
import time
from pathlib import Path

import pytest

from pumice.local.nats import NatsServer
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.usage import QueueUsage
from tests.contract.scheduler.scheduler_stage import STREAMS, SUBJECTS, Stage, nodes_of
from tests.support.fleet import Service
from tests.support.wait import until


async def test_a_gang_is_bound_by_one_message_and_its_group_admitted_first(stage: Stage):
    await stage.cluster()
    await stage.start()
    await stage.group("g", 3, phase="Pending")

    async def admitted() -> bool:
        wanted = await stage.desired("podgroups", "ns/g")
        return isinstance(wanted, m.DesiredPodGroup) and wanted.phase == "Inqueue"

    await until(admitted, describe="the group is admitted")
    await stage.gang("g", 3)
    (command,) = await stage.until_commands(1)
    assert isinstance(command, m.BindGang)
    assert set(nodes_of(command)) == {"ns/g-0", "ns/g-1", "ns/g-2"}
    assert command.job == "ns/g"


async def test_the_metrics_page_tells_what_a_queue_holds_me4(stage: Stage):
    await stage.cluster()
    service = await stage.start()
    await stage.gang("g", 3)
    await stage.until_commands(1)

    async def told() -> bool:
        return await service.metric("volcano_queue_allocated_milli_cpu") == 3000

    await until(told, deadline_s=20, describe="the queue holds three CPUs on the page")


async def test_a_gang_that_does_not_fit_gets_no_bind_and_its_reason(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start()
    await stage.gang("big", 3, cpu="2")
    await stage.gang("small", 2)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/small"
    wanted = await until(lambda: stage.desired("podgroups", "ns/big"), describe="a status")
    assert isinstance(wanted, m.DesiredPodGroup)
    condition = next(c for c in wanted.conditions if c.type == "Unschedulable")
    assert condition.reason == "NotEnoughResources"


async def test_what_a_killed_scheduler_asked_for_is_counted_by_the_next(stage: Stage):
    await stage.cluster(nodes=1)
    first = await stage.start("first")
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    first.kill()
    await stage.start("second")
    await stage.gang("late", 3)
    await stage.gang("tiny", 1)
    commands = await stage.until_commands(2)
    assert [c.job for c in commands if c.id != asked.id] == ["ns/tiny"]


async def test_a_bind_that_state_does_not_show_yet_still_counts_after_a_restart(stage: Stage):
    await stage.cluster(nodes=1)
    first = await stage.start("first")
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    first.kill()
    await stage.outcome(asked, m.Result.BOUND)
    await stage.settle(asked)
    await stage.start("second")
    await stage.gang("late", 3)
    await stage.gang("tiny", 1)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/tiny"


async def test_a_bind_that_failed_is_decided_again(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start()
    await stage.gang("g", 2)
    (asked,) = await stage.until_commands(1)
    await stage.settle(asked)
    await stage.outcome(asked, m.Result.FAILED)
    (again,) = await stage.until_commands(1)
    assert again.id != asked.id
    assert nodes_of(again).keys() == nodes_of(asked).keys()


async def test_an_intent_of_a_newer_version_keeps_a_scheduler_waiting_not_dying(stage: Stage):
    await stage.cluster()
    await stage.start()
    newer = b'{"type":"bind","v":9,"id":"9-9-9"}'
    await stage.bus.publisher(STREAMS.command.name).publish(SUBJECTS.command(0), newer)
    second = await stage.start("second", wait=False)
    stage.kill_first()
    await until(
        lambda: _says(second, "only a newer scheduler"), describe="the second says what it lacks"
    )
    await stage.gang("g", 2)
    assert second.process.pid
    await stage.bus.purge(STREAMS.command.name, SUBJECTS.command(0))
    await stage.until_commands(1)
    await second.ready()


async def _says(service: Service, words: str) -> bool:
    return words in await service.unready()


async def test_no_cycle_starts_while_the_cache_is_silent(stage: Stage):
    await stage.cluster(nodes=1)
    service = await stage.start()
    stage.marking = False

    async def not_ready() -> bool:
        return "no marker" in await service.unready()

    await until(not_ready, deadline_s=15, describe="readiness says that the marker is missing")
    await stage.gang("g", 2)
    folded = await service.metric("pumice_scheduler_facts_total")
    await stage.pod("other", 0)
    await until(lambda: _more_facts(service, folded), describe="facts are folded all the same")
    assert await stage.commands() == []
    stage.marking = True
    await stage.until_commands(1)


async def _more_facts(service: Service, before: float) -> bool:
    return await service.metric("pumice_scheduler_facts_total") > before


async def test_state_that_begins_anew_is_read_anew(stage: Stage, nats_server: NatsServer):
    await stage.cluster(nodes=1)
    service = await stage.start()
    await stage.gang("g", 3)
    (asked,) = await stage.until_commands(1)
    await nats_server.restart(kill=True)
    await until(lambda: _epoch_is_new(stage), describe="STATE exists again")
    await stage.cluster(nodes=1)
    await stage.gang("g", 3)
    await stage.gang("late", 2)
    await stage.gang("tiny", 1)
    commands = await stage.until_commands(2)
    assert [c.job for c in commands if c.id != asked.id] == ["ns/tiny"]
    assert service.process.pid


async def _epoch_is_new(stage: Stage) -> bool:
    return (await stage.bus.info(STREAMS.state.name)).last_seq < 5


@pytest.mark.parametrize("how", ["rewrite", "rename"])
async def test_a_replaced_configuration_is_used_at_once(stage: Stage, tmp_path: Path, how):
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text('actions: "enqueue"\ntiers:\n- plugins:\n  - name: gang\n')
    await stage.cluster()
    service = await stage.start(scheduler_conf=str(conf))
    await stage.gang("g", 2)
    text = (
        'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
    )
    conf.write_text("actions: allocate, fly\n")
    await service.said("fly")
    assert await stage.commands() == []
    if how == "rename":
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(conf)
    else:
        conf.write_text(text)
    await stage.until_commands(1)


async def test_a_wrong_key_in_the_configuration_is_named_at_start(stage: Stage, tmp_path: Path):
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text("actions: allocate\ntires: []\n")
    service = await stage.start(wait=False, scheduler_conf=str(conf))
    assert await asyncio.wait_for(service.process.exited(), 10) == 2
    assert "tires" in service.process.last_line()


async def test_past_usage_decides_who_comes_first_before_and_after_a_restart(
    stage: Stage, tmp_path: Path
):
    conf = tmp_path / "fair.conf"
    conf.write_text(
        'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}, '
        "{name: fairshare, arguments: {fairshare.resourceKey: cpu}}]\n"
    )
    await stage.cluster(nodes=1, cpu="1")
    for name, user in (("a", "ann"), ("b", "bob")):
        await stage.group(name, 1, annotations={"pumice.dev/user": user})
        await stage.pod(name, 0)
    users = {"ann": {"cpu": 36000.0}, "bob": {"cpu": 3600.0}}
    usage = QueueUsage(queue="default", at=time.time(), half_life_s=604800.0, users=users)
    await stage.bus.publisher(STREAMS.usage.name).publish(
        SUBJECTS.usage("default"), codec.encode(usage)
    )
    await stage.start("first", scheduler_conf=str(conf))
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/b"
    stage.kill_first()
    await stage.fact("pods", "ns/b-0", None, "uid-ns/b-0")
    await stage.settle(command)
    await stage.group("c", 1, annotations={"pumice.dev/user": "bob"})
    await stage.pod("c", 0)
    await stage.start("second", scheduler_conf=str(conf))
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/c"
