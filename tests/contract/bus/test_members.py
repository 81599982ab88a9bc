"""Members, versions and partitions: who is alive and who works on what."""

import asyncio
import contextlib
from typing import ClassVar

import pytest
import structlog

from shared.contracts.versions import ACCEPTED
from shared.election import members
from shared.election.members import Members
from shared.election.partition_elector import PartitionElector
from shared.runtime.clock import SystemClock
from tests.support.env import context_of_a_test
from tests.support.nats_servers import lease_of
from tests.support.wait import until

PARTS = 5


class Process:
    """One member of the service `controller` with its partitions."""

    busy: ClassVar[dict[int, list["Process"]]] = {}

    def __init__(self, bus, declared, subjects, name):
        clock, log = SystemClock(), structlog.get_logger()
        context = context_of_a_test(service="controller", instance=name)
        self.members = Members(bus, context, subjects=subjects)
        leases = [
            lease_of(bus, f"{name}.life", name=f"controller-{number}", clock=clock)
            for number in range(PARTS)
        ]
        self.partitions = PartitionElector(
            bus,
            leases,
            members=self.members,
            service="controller",
            instance=name,
            clock=clock,
            log=log,
        )
        self.working = set()
        self.tasks = []

    async def work(self, partition):
        everywhere = Process.busy.setdefault(partition, [])
        everywhere.append(self)
        assert len(everywhere) == 1, f"partition {partition} has two owners"
        self.working.add(partition)
        try:
            await asyncio.Event().wait()
        finally:
            self.working.discard(partition)
            everywhere.remove(self)

    def start(self):
        self.tasks = [
            asyncio.create_task(self.members.run()),
            asyncio.create_task(self.partitions.run(self.work)),
        ]

    async def stop(self):
        for task in reversed(self.tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def nothing():
    pass


@pytest.fixture
def process(bus, declared, subjects):
    Process.busy = {}
    return lambda name, on=bus: Process(on, declared, subjects, name)


async def test_partitions_are_spread_evenly_and_move_when_members_come_and_go(process, open_bus):
    one, two = process("a"), process("b", await open_bus())
    one.start()
    await until(lambda: len(one.working) == PARTS, describe="one owner of all")
    two.start()
    await until(lambda: (len(one.working), len(two.working)) == (3, 2), describe="an even spread")
    assert one.working | two.working == set(range(PARTS))
    await one.stop()
    await until(lambda: len(two.working) == PARTS, describe="all of them back")
    await two.stop()


async def test_a_lease_that_ran_out_is_a_death_though_its_member_is_still_announced(
    process, open_bus
):
    one, two = process("a"), process("b", await open_bus())
    one.start()
    two.start()
    await until(lambda: (len(one.working), len(two.working)) == (3, 2), describe="a spread")
    for lease in one.partitions._leases:
        lease.release = nothing  # a process that hangs gives nothing back
    one.tasks[1].cancel()
    Process.busy.clear()
    await until(lambda: len(two.working) == PARTS, describe="all at the living")
    await two.stop()
    one.tasks[0].cancel()


async def test_a_dead_members_partitions_move_to_the_living(process, open_bus):
    one, two = process("a"), process("b", await open_bus())
    one.start()
    two.start()
    await until(lambda: (len(one.working), len(two.working)) == (3, 2), describe="a spread")
    for lease in one.partitions._leases:
        lease.release = nothing  # a killed process gives nothing back
    for task in one.tasks:
        task.cancel()
    Process.busy.clear()
    await until(lambda: len(two.working) == PARTS, describe="all at the living")
    await two.stop()


async def test_what_a_member_announced_before_its_death_does_not_make_it_alive_again(process):
    one, two = process("a"), process("b")
    for each in (two, one, two):  # the second announcement of b comes after a has looked
        await each.members._round()
    one.members.note_death("b.life", 7)
    assert [m.instance for m in one.members.live()] == ["a"]
    await one.members._round()
    assert [m.instance for m in one.members.live()] == ["a"]
    await two.members._round()  # it lives after all
    await one.members._round()
    assert [m.instance for m in one.members.live()] == ["a", "b"]
    one.members.note_death("b.life", 7)  # the same lease, not taken yet
    assert [m.instance for m in one.members.live()] == ["a", "b"]
    one.members.note_death("b.life", 9)  # a lease that it has taken since
    assert [m.instance for m in one.members.live()] == ["a"]


async def test_a_member_is_listed_while_it_lives_and_says_good_bye(process, open_bus, monkeypatch):
    monkeypatch.setattr(members, "SILENT_S", 600.0)
    monkeypatch.setattr(members, "TTL_S", 600)
    one, two = process("a"), process("b", await open_bus())
    running = [asyncio.create_task(p.members.run()) for p in (one, two)]
    await until(lambda: len(one.members.live("controller")) == 2, describe="both members")
    assert [m.instance for m in one.members.live()] == ["a", "b"]
    assert one.members.live("scheduler") == []
    running[1].cancel()
    await until(lambda: len(one.members.live()) == 1, describe="the good-bye")
    running[0].cancel()


async def test_a_process_is_not_ready_while_a_live_one_cannot_read_what_it_writes(
    bus, declared, subjects
):
    def member(service, accepts):
        context = context_of_a_test(service=service, instance=f"{service}-1")
        return Members(bus, context, subjects=subjects, accepts=accepts)

    writer, reader = member("scheduler", ACCEPTED), member("binder", ACCEPTED)
    gate = writer.gate
    old = member("cache", frozenset({0}))
    running = [asyncio.create_task(each.run()) for each in (writer, reader)]
    await until(lambda: gate.ok, describe="the gate to open")
    ending = asyncio.create_task(old.run())
    await until(lambda: not gate.ok, describe="the gate to shut")
    assert "cache-1" in gate.reason
    ending.cancel()
    await until(lambda: gate.ok, describe="the gate to open again")
    for task in running:
        task.cancel()
